"""Check whether a cluster is ready, and describe what is missing.

A cluster is ready when each service answers, one controller is active, it has registered every
broker, every broker has its full grant, every partition has a leader, and one of the coordinators
(if there are any) is active.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx

from leadline_cli.cluster_layout import ClusterLayout, ServiceSpec
from leadline_client.wire import NO_LEADER, Metadata

_TIMEOUT_S = 2.0


async def what_is_missing(layout: ClusterLayout, http: httpx.AsyncClient) -> list[str]:
    """Query every service once; return the reasons why the cluster is not ready."""
    answers = await asyncio.gather(*(_not_ready(service, http) for service in layout.services))
    missing = [problem for problem in answers if problem]
    metadata = await active_metadata(layout.controllers, http)
    if metadata is None or metadata.controller is None:
        return [*missing, "no controller is active"]
    missing += [
        f"{broker.name} is not registered"
        for broker in layout.brokers
        if broker.id not in metadata.brokers
    ]
    if layout.coordinators and await _active_coordinator(layout.coordinators, http) is None:
        missing.append("no coordinator is active")
    return missing + _offline_partitions(metadata)


def _offline_partitions(metadata: Metadata) -> list[str]:
    """Name the partitions without a leader."""
    return [
        f"{topic.name}-{row.partition} has no leader"
        for topic in metadata.topics.values()
        for row in topic.partitions
        if row.leader == NO_LEADER
    ]


async def active_metadata(
    controllers: Sequence[ServiceSpec], http: httpx.AsyncClient
) -> Metadata | None:
    """Return the metadata of the active controller; any controller answers or forwards."""
    for controller in controllers:
        document = await _get_json(http, f"{controller.url}/v1/metadata")
        if document is not None:
            return Metadata.from_json(document)
    return None


async def _active_coordinator(
    coordinators: Sequence[ServiceSpec], http: httpx.AsyncClient
) -> dict[str, Any] | None:
    """Return the active coordinator if all coordinators name the same one, or None."""
    answers = [await _get_json(http, f"{service.url}/v1/coordinator") for service in coordinators]
    named = [answer and answer["coordinator"] for answer in answers]
    return named[0] if all(one == named[0] for one in named) else None


async def _get_json(http: httpx.AsyncClient, url: str) -> dict[str, Any] | None:
    """Return the JSON at `url`, or None unless the answer is 200."""
    try:
        response = await http.get(url, timeout=_TIMEOUT_S)
    except httpx.HTTPError:
        return None
    if response.status_code != httpx.codes.OK:
        return None
    document: dict[str, Any] = response.json()
    return document


def why_not_ready(answer: httpx.Response) -> str:
    """Return the reasons in an answer of `/readyz`, or else its status."""
    try:
        reasons = answer.json()["reasons"]
    except (ValueError, KeyError, TypeError):
        reasons = []
    return "; ".join(map(str, reasons)) or f"HTTP status {answer.status_code}"


async def _not_ready(service: ServiceSpec, http: httpx.AsyncClient) -> str | None:
    try:
        response = await http.get(f"{service.url}/readyz", timeout=_TIMEOUT_S)
    except httpx.HTTPError:
        return f"{service.name} does not answer"
    if response.status_code == httpx.codes.OK:
        return None
    return f"{service.name} is not ready: {why_not_ready(response)}"

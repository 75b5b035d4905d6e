"""Is the cluster ready? What is still missing, in words.

Ready: each service answers, one controller is active, it knows every broker as
live, every broker has its full grant, every partition has a leader, and where
there are coordinators one of them is active.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx

from leadline_cli.plan import ClusterPlan, PlannedService
from leadline_client.wire import NO_LEADER, Metadata

_TIMEOUT_S = 2.0


async def what_is_missing(plan: ClusterPlan, http: httpx.AsyncClient) -> list[str]:
    """Ask every service once; return what keeps the cluster from being ready."""
    answers = await asyncio.gather(*(_not_ready(service, http) for service in plan.services))
    missing = [problem for problem in answers if problem]
    metadata = await active_metadata(plan.controllers, http)
    if metadata is None or metadata.controller is None:
        return [*missing, "no controller is active"]
    missing += [
        f"{broker.name} is not registered"
        for broker in plan.brokers
        if broker.id not in metadata.brokers
    ]
    if plan.coordinators and await _active_coordinator(plan.coordinators, http) is None:
        missing.append("no coordinator is active")
    return missing + leaderless(metadata)


def leaderless(metadata: Metadata) -> list[str]:
    """Name the partitions without a leader."""
    return [
        f"{topic.name}-{row.partition} has no leader"
        for topic in metadata.topics.values()
        for row in topic.partitions
        if row.leader == NO_LEADER
    ]


async def active_metadata(
    controllers: Sequence[PlannedService], http: httpx.AsyncClient
) -> Metadata | None:
    """Return the metadata of the active controller; any controller answers or forwards."""
    for controller in controllers:
        document = await get_json(http, f"{controller.url}/v1/metadata")
        if document is not None:
            return Metadata.from_json(document)
    return None


async def _active_coordinator(
    coordinators: Sequence[PlannedService], http: httpx.AsyncClient
) -> dict[str, Any] | None:
    """Return the coordinator that every one of them takes for the active one, or None."""
    answers = [await get_json(http, f"{one.url}/v1/coordinator") for one in coordinators]
    named = [answer and answer["coordinator"] for answer in answers]
    return named[0] if all(one == named[0] for one in named) else None


async def consult(http: httpx.AsyncClient, url: str) -> dict[str, Any] | None:
    """Return the coordinator that the broker at `url` names to clients, or None."""
    try:
        answer = await http.post(f"{url}/v1/consult", timeout=_TIMEOUT_S)
        coordinator: dict[str, Any] | None = answer.json().get("coordinator")
    except (httpx.HTTPError, ValueError):
        return None
    return coordinator


async def get_json(http: httpx.AsyncClient, url: str) -> dict[str, Any] | None:
    """Return the JSON at `url`, or None unless it is answered with 200."""
    try:
        response = await http.get(url, timeout=_TIMEOUT_S)
    except httpx.HTTPError:
        return None
    if response.status_code != httpx.codes.OK:
        return None
    document: dict[str, Any] = response.json()
    return document


def why_not_ready(answer: httpx.Response) -> str:
    """Return the reasons that a `/readyz` names, or else its status."""
    try:
        reasons = answer.json()["reasons"]
    except (ValueError, KeyError, TypeError):
        reasons = []
    return "; ".join(map(str, reasons)) or f"HTTP status {answer.status_code}"


async def _not_ready(service: PlannedService, http: httpx.AsyncClient) -> str | None:
    try:
        response = await http.get(f"{service.url}/readyz", timeout=_TIMEOUT_S)
    except httpx.HTTPError:
        return f"{service.name} does not answer"
    if response.status_code == httpx.codes.OK:
        return None
    return f"{service.name} is not ready: {why_not_ready(response)}"

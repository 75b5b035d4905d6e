"""Requests that must be refused, as rows of a table, and a look at what they must not change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from tests.support.checks.zk_history import ZkView, read_cluster
from tests.support.services.cluster import Cluster

JSON = {"content-type": "application/json"}
OCTETS = {"content-type": "application/octet-stream"}
MSGPACK = {"content-type": "application/msgpack"}
TEXT = {"content-type": "text/plain"}


@dataclass(frozen=True, slots=True)
class Bad:
    """One bad request and the code that it is to be answered with.

    `code` is Leadline's error code. `says` is a part of the answer that shows
    that the reason was understood: the name of a field, for instance.
    """

    name: str
    method: str
    path: str
    code: int
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    says: str = ""

    @property
    def status(self) -> int:
        """The HTTP status that goes with the code."""
        return self.code // 100 if self.code > 999 else self.code

    def __str__(self) -> str:
        return self.name


def bad_json(name: str, path: str, code: int, body: Any, says: str = "") -> Bad:
    """Return a POST of a JSON document; a string is sent as it is."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Bad(name, "POST", path, code, content, JSON, says)


@dataclass(frozen=True, slots=True)
class Everything:
    """All that a bad request could have changed: znodes, replicas' ends, what clients are told."""

    zookeeper: ZkView
    replicas: Mapping[str, list[dict[str, Any]]]
    metadata: Mapping[str, Any]


async def send(http: httpx.AsyncClient, url: str, bad: Bad) -> httpx.Response:
    """Send a bad request to the service at `url`."""
    return await http.request(
        bad.method, url + bad.path, content=bad.content or None, headers=dict(bad.headers)
    )


async def everything(cluster: Cluster) -> Everything:
    """Return the state of a cluster that nobody writes to."""
    names = [service.name for service in cluster.supervisor.layout.services]
    brokers = [broker.name for broker in cluster.supervisor.layout.brokers]
    view = await read_cluster(cluster)
    told = [entry for entry in view.audit if entry.outcome != "refused"]  # by these very requests
    return Everything(
        replace(view, audit=told, audited_in=()),
        {name: await cluster.replicas(name) for name in brokers},
        {name: (await cluster.get(name, "/v1/metadata")).json() for name in names},
    )

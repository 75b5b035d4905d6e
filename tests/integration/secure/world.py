"""The cluster that the tests of this directory share: clients see TLS only, and show tokens."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import InvalidStatus

from leadline_cli.certificates import Authority
from leadline_cli.credentials import Credentials
from leadline_client.channel import CHANNEL_PATH
from leadline_client.wire import Metadata
from leadline_common.identity import ServiceIdentity
from tests.support.issuer import TestIssuer
from tests.support.services.cluster import Cluster, wait_until

RECORDS = "/v1/topics/t/partitions/0/records"


def bearer(credentials: Credentials) -> dict[str, str]:
    """Return the header by which the administrator shows who it is."""
    return {"Authorization": f"Bearer {credentials.admin_token.read_text().strip()}"}


@dataclass
class World:
    """A running cluster, and a client that trusts its authority of today and that of tomorrow."""

    cluster: Cluster
    http: httpx.AsyncClient
    successor: Authority
    trusted: ssl.SSLContext
    issuer: TestIssuer

    @property
    def shown(self) -> dict[str, str]:
        """The header by which the administrator shows who it is."""
        return bearer(self.credentials)

    @property
    def credentials(self) -> Credentials:
        return self.cluster.credentials

    @property
    def services(self) -> list[ServiceIdentity]:
        return list(self.cluster.supervisor.layout.identities)

    def url(self, service: ServiceIdentity) -> str:
        return self.cluster.url(f"{service.kind}-{service.id}")

    async def metric(self, service: ServiceIdentity, line: str) -> float:
        text = (await self.http.get(f"{self.url(service)}/metrics")).text
        return next(
            (float(row.split()[1]) for row in text.splitlines() if row.startswith(line)), 0.0
        )

    async def replace(self, files: str, change: Callable[[], Any]) -> None:
        """Change files, and wait until every service that has such files uses them."""
        line = f'leadline_tls_files_loads{{files="{files}"}}'
        before = {one: await self.metric(one, line) for one in self.services}
        change()

        async def loaded() -> bool:
            return all([await self.metric(one, line) > before[one] for one in self.services])

        await wait_until(loaded, f"the {files} files are loaded again")


async def in_sync(world: World) -> bool:
    url = world.cluster.url("controller-1")
    metadata = Metadata.from_json((await world.http.get(f"{url}/v1/metadata")).json())
    rows = metadata.topics["t"].partitions if "t" in metadata.topics else ()
    return bool(rows) and all(row.leader >= 0 and len(row.isr) == 2 for row in rows)


async def produce(world: World, http: httpx.AsyncClient) -> int:
    """Produce one record to the leader, with all acknowledgements; return its offset."""
    body = {"records": [{"value": "v"}], "format": "string"}
    params = {"acks": "all", "timeout_ms": "20000"}
    url = world.cluster.url("broker-1")
    answer = await http.post(url + RECORDS, params=params, json=body)
    if answer.status_code == 421:  # another broker leads after a restart
        url = answer.json()["leader"]["url"]
        answer = await http.post(url + RECORDS, params=params, json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["base_offset"])


async def knows(world: World, token: str, status: int) -> bool:
    """Tell whether every service answers `status` to requests with a token."""
    shown = {"Authorization": f"Bearer {token}"}
    for service in world.services:
        path = "/v1/groups" if service.kind == "coordinator" else "/v1/brokers"
        answer = await world.http.get(world.url(service) + path, headers=shown)
        if answer.status_code != status:
            return False
    return True


async def new_user(world: World, name: str, *roles: str, **quotas: int) -> dict[str, str]:
    """Make a user with these roles for everything; return the header by which it shows its token.

    All services know the user and its quotas then.
    """
    users = f"{world.cluster.url('controller-1')}/v1/users"
    new = {"name": name, "grants": [{"role": role} for role in roles]}
    (await world.http.post(users, json=new)).raise_for_status()
    await set_quotas(world, name, **quotas)
    made = await world.http.post(f"{users}/{name}/tokens", json={})
    made.raise_for_status()
    token = made.json()["token"]
    await wait_until(partial(knows, world, token, 200), "every service knows the user")
    return {"Authorization": f"Bearer {token}"}


async def set_quotas(world: World, name: str, **quotas: int) -> None:
    """Replace the quotas of a user; services know them within seconds."""
    url = f"{world.cluster.url('broker-1')}/v1/users/{name}/quotas"
    changed = await world.http.put(url, json=quotas)
    assert changed.status_code == 200, changed.text


async def hello(world: World, shown: dict[str, str], group: str, wanted: dict[str, Any]) -> str:
    """Return what a consumer's first frame, or its handshake, is answered with."""
    broker = world.cluster.url("broker-1")
    coordinator = (await world.http.post(f"{broker}/v1/consult")).json()["coordinator"]["url"]
    url = "wss" + coordinator.removeprefix("https") + CHANNEL_PATH.format(group=group)
    try:
        async with connect_websocket(url, ssl=world.trusted, additional_headers=shown) as channel:
            await channel.send(json.dumps({"type": "hello", **wanted}))
            answer = json.loads(await channel.recv())
    except InvalidStatus as refused:
        return f"status {refused.response.status_code}"
    kind = answer["type"]
    return f"error {answer['error_code']}" if kind == "error" else str(kind)

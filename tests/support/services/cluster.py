"""A real cluster for tests: real processes, real ZooKeeper, real disks, broken on purpose.

    async with Cluster(tmp_path, brokers=3, settings={"zookeeper.session.timeout.ms": "2000"}) as c:
        topic = await c.client.create_topic(NewTopic("t", 6, 3))
        await c.kill((await c.leader_of("t", 0)).name)

It stands on the supervisor behind `leadline up`. With `zookeeper`, the connection string of a
running server, it starts none. When the block is left by an exception, the ends of all service
logs are printed.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from leadline_cli import secure_cluster
from leadline_cli.cluster_file import ClusterFile, Service, read_cluster_file
from leadline_cli.cluster_layout import ClusterOptions, ServiceSpec
from leadline_cli.credentials import Credentials, client_security, credentials_in
from leadline_cli.processes import Child
from leadline_cli.supervisor import Supervisor
from leadline_client.client import AsyncClient
from leadline_client.retry import RetryPolicy
from leadline_common.identity import ServiceIdentity
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.session import ZkSession
from tests.support.freezing import freeze
from tests.support.services.identities import load_tls

T = TypeVar("T")
DEADLINE_S = 60.0
CALM = {"zookeeper.session.timeout.ms": "20000"}
"""Settings for tests that expire no session: a busy machine is not to expire one either."""
_POLL_S = 0.05


async def wait_until(
    condition: Callable[[], Awaitable[T | None]],
    what: str = "the condition holds",
    deadline_s: float = DEADLINE_S,
) -> T:
    """Return the first truthy value of `condition`; fail after `deadline_s` seconds."""
    give_up = time.monotonic() + deadline_s
    while True:
        value = await condition()
        if value:
            return value
        if time.monotonic() > give_up:
            raise AssertionError(f"waited {deadline_s:.0f} s until {what}; last: {value!r}")
        await asyncio.sleep(_POLL_S)


class Cluster:
    """Started on entry, stopped on exit. Processes go by name: `broker-1`, `controller-2`."""

    def __init__(
        self,
        data_dir: Path,
        *,
        brokers: int = 3,
        controllers: int = 1,
        coordinators: int = 0,
        zookeeper_members: int = 1,
        zookeeper: str | None = None,
        racks: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        policy: RetryPolicy | None = None,
        secure: bool | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.supervisor = Supervisor(
            ClusterOptions(
                data_dir,
                brokers,
                controllers,
                zookeeper=zookeeper,
                zookeeper_members=zookeeper_members,
                coordinators=coordinators,
                settings={"zookeeper.session.timeout.ms": "2000", **(settings or {})},
                racks=racks,
                secure=secure,
            )
        )
        self.watchers: list[Callable[[str, str], None]] = []
        """Told of each thing that is done to a process, before it is done: action and name."""
        self._policy = policy
        self._client: AsyncClient | None = None
        self._made_http: httpx.AsyncClient | None = None

    @property
    def client(self) -> AsyncClient:
        """A client that bootstraps from all brokers."""
        if self._client is None:
            urls = [broker.url for broker in self.supervisor.layout.brokers]
            security = client_security(self.data_dir)
            self._client = AsyncClient(urls, policy=self._policy, security=security)
        return self._client

    @property
    def _http(self) -> httpx.AsyncClient:
        """A client for the cluster's services, which trusts the authority that `up` has made."""
        if self._made_http is None:
            self._made_http = secure_cluster.http_client(
                client_security(self.data_dir), timeout_s=5
            )
        return self._made_http

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(broker.url for broker in self.supervisor.layout.brokers)

    @property
    def file(self) -> ClusterFile:
        """What cluster.json says now."""
        document = read_cluster_file(self.data_dir)
        assert document is not None
        return document

    def service(self, name: str) -> Service:
        """Return a service's row of cluster.json."""
        kind, _, number = name.rpartition("-")
        rows = {
            "broker": self.file.brokers,
            "controller": self.file.controllers,
            "coordinator": self.file.coordinators,
            "zookeeper": self.file.zookeeper_servers,
        }[kind]
        return next(row for row in rows if row.id == int(number))

    def child(self, name: str) -> Child:
        """Return a process."""
        return self.supervisor.children[name]

    def url(self, name: str) -> str:
        """Return the base URL of a service."""
        return next(one.url for one in self.supervisor.layout.services if one.name == name)

    def log(self, name: str) -> str:
        """Return what a service has logged, over all its runs."""
        return self.child(name).log_path.read_text(errors="replace")

    async def kill(self, name: str) -> None:
        """Kill -9, and wait for the process to be gone."""
        self._tell("kill", name)
        await self.child(name).kill()

    async def terminate(self, name: str) -> int:
        """End a process cleanly and return its exit code."""
        self._tell("terminate", name)
        child = self.child(name)
        await child.stop()
        return child.exit_code if child.exit_code is not None else 0

    def pause(self, name: str) -> None:
        """Freeze a process (SIGSTOP)."""
        self._tell("freeze", name)
        child = self.child(name)
        if child.running and child.pid is not None:
            freeze(child.pid)

    def resume(self, name: str) -> None:
        """Let a frozen process go on (SIGCONT)."""
        self._tell("resume", name)
        self.child(name).signal(signal.SIGCONT)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Freeze a process during the block."""
        self.pause(name)
        try:
            yield
        finally:
            self.resume(name)

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send any other signal."""
        self._tell(number.name, name)
        self.child(name).signal(number)

    def restart(self, name: str) -> None:
        """Run a process's argv again. It is not waited for: see `until_ready`."""
        child = self.child(name)
        assert not child.running, f"{name} still runs"
        self._tell("restart", name)
        child.start()
        self.supervisor.document().write(self.data_dir)

    def note(self, action: str, target: str) -> None:
        """Tell the watchers of a fault that was not done by a method of this class."""
        self._tell(action, target)

    def _tell(self, action: str, name: str) -> None:
        for watcher in self.watchers:
            watcher(action, name)

    async def until_ready(self, name: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until a service says that it is ready."""

        async def ready() -> bool:
            assert self.child(name).running, f"{name} ended:\n{self.child(name).tail()}"
            return await self._status(f"{self.url(name)}/readyz") == httpx.codes.OK

        await wait_until(ready, f"{name} is ready", deadline_s)

    async def get(self, name: str, path: str, **params: Any) -> httpx.Response:
        """GET a path of a service."""
        return await self._http.get(self.url(name) + path, params=params)

    async def post(self, name: str, path: str, **arguments: Any) -> httpx.Response:
        """POST to a path of a service (`json=`, `content=`, `params=`, `headers=`)."""
        return await self._http.post(self.url(name) + path, **arguments)

    async def request(self, method: str, name: str, path: str, **arguments: Any) -> httpx.Response:
        """Send any other request to a service."""
        return await self._http.request(method, self.url(name) + path, **arguments)

    # -- what only services and operators may do --------------------------------

    @property
    def credentials(self) -> Credentials:
        """The credentials that the cluster's services use."""
        return credentials_in(self.data_dir)

    @asynccontextmanager
    async def zookeeper(self, *, as_operator: bool = True) -> AsyncIterator[ZkSession]:
        """Open a session as the cluster's operator, or as nobody."""
        operator = self.credentials.zookeeper_administrator() if as_operator else None
        async with self.zookeeper_as(operator) as session:
            yield session

    @asynccontextmanager
    async def zookeeper_as(self, user: ZkCredentials | None) -> AsyncIterator[ZkSession]:
        """Open a session that logs in as any user, or not at all."""
        session = ZkSession(credentials=user)
        await session.start(self.file.zookeeper, 10_000)
        try:
            yield session
        finally:
            await session.close()

    def internal_url(self, name: str) -> str:
        """Return the URL of the internal listener of a broker or a controller."""
        found: list[str] = re.findall(r'"internal_url": ?"(https:[^"]+)"', self.log(name))
        return found[-1]

    def internal_client(self, name: str, caller: ServiceIdentity) -> httpx.Client:
        """Return a client that calls a service's internal listener as `caller`."""
        host_name = _identity(name).host_name

        def name_service(request: httpx.Request) -> None:
            request.extensions["sni_hostname"] = host_name

        return httpx.Client(
            base_url=self.internal_url(name),
            trust_env=False,
            timeout=60,
            verify=load_tls(self.credentials, caller).client,
            event_hooks={"request": [name_service]},
        )

    async def post_internally(
        self, name: str, path: str, *, caller: ServiceIdentity, **arguments: Any
    ) -> httpx.Response:
        """POST to the internal listener of a service with the certificate of `caller`."""
        with self.internal_client(name, caller) as http:
            return await asyncio.to_thread(http.post, path, **arguments)

    async def leader_of(self, topic: str, partition: int, *, not_in: Sequence[str] = ()) -> str:
        """Return the name of a partition's leader, waiting for one outside `not_in`."""

        async def leader() -> str | None:
            row = (await self.client.describe(topic)).partitions[partition]
            name = f"broker-{row.leader}"
            return name if row.leader >= 0 and name not in not_in else None

        return await wait_until(leader, f"{topic}-{partition} has a leader")

    async def active_controller(self, *, not_in: Sequence[str] = ()) -> str:
        """Return the name of the active controller, waiting for one outside `not_in`."""
        return await self._active("controller", self.supervisor.layout.controllers, not_in)

    async def active_coordinator(self, *, not_in: Sequence[str] = ()) -> str:
        """Return the name of the active coordinator, waiting for one outside `not_in`."""
        return await self._active("coordinator", self.supervisor.layout.coordinators, not_in)

    async def replicas(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a broker's `GET /v1/replicas`, without the times in them.

        What a leader knows of its followers changes with each of their fetches.
        """
        document = (await self.get(name, "/v1/replicas")).raise_for_status().json()
        rows: list[dict[str, Any]] = document["replicas"]
        return [{key: row[key] for key in row if key != "followers"} for row in rows]

    async def in_sync(self, topic: str, count: int, deadline_s: float = DEADLINE_S) -> None:
        """Wait until every partition of a topic has a leader and `count` ISR members."""

        async def holds() -> bool:
            rows = (await self.client.describe(topic)).partitions
            return all(row.leader >= 0 and len(row.isr) == count for row in rows)

        await wait_until(holds, f"{topic} has {count} in sync everywhere", deadline_s)

    async def __aenter__(self) -> Self:
        await self.supervisor.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.print_logs()
        if self._client is not None:
            await self._client.aclose()
        if self._made_http is not None:
            await self._made_http.aclose()
        self.supervisor.kill()  # A stop in order takes seconds, and no test looks at it here.
        await self.supervisor.stop()

    def print_logs(self, lines: int = 40) -> None:
        """Print the ends of all service logs."""
        for child in self.supervisor.children.values():
            state = "running" if child.running else f"ended with {child.exit_code}"
            sys.stderr.write(f"--- {child.name} ({state}) {child.log_path}\n{child.tail(lines)}\n")

    async def _active(
        self, role: str, services: Sequence[ServiceSpec], not_in: Sequence[str]
    ) -> str:
        async def active() -> str | None:
            for service in services:
                if service.name in not_in or not self.child(service.name).running:
                    continue
                try:
                    answer = await self.get(service.name, f"/v1/{role}")
                except httpx.HTTPError:
                    continue
                if answer.status_code == httpx.codes.OK and answer.json()["active"]:
                    return service.name
            return None

        return await wait_until(active, f"a {role} is active")

    async def _status(self, url: str) -> int | None:
        try:
            return (await self._http.get(url)).status_code
        except httpx.HTTPError:
            return None


def _identity(name: str) -> ServiceIdentity:
    kind, _, number = name.rpartition("-")
    return ServiceIdentity("controller" if kind == "controller" else "broker", int(number))


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return ") Z " not in Path(f"/proc/{pid}/stat").read_text()

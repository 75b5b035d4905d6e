"""Runs a cluster on this machine: one process per service, watched, and stopped in order.

`leadline up`, `leadline demo` and the tests use this. Services are forked from a process that has
imported them (`forked_child`). No child outlives its supervisor, even if that is killed.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Self

import httpx

from leadline_cli import secure_cluster
from leadline_cli.cluster_file import (
    ClusterFile,
    DamagedClusterFile,
    Service,
    read_cluster_file,
)
from leadline_cli.cluster_layout import (
    ClusterLayout,
    ClusterOptions,
    PortTaken,
    ServiceSpec,
    lay_out_cluster,
)
from leadline_cli.credentials import UnusableAuthority, client_security, credentials_in
from leadline_cli.disk_space import full_disk_advice
from leadline_cli.embedded_zookeeper import server_mode
from leadline_cli.first_admin import make_administrator
from leadline_cli.forked_child import ForkedChild, ForkServerFailed, import_ahead
from leadline_cli.node_restriction import restrict_nodes
from leadline_cli.process_watch import ProcessWatch
from leadline_cli.processes import Child
from leadline_cli.readiness import active_metadata, what_is_missing
from leadline_cli.restart_requests import SUPERVISOR_LOCK, RestartRequests
from leadline_client.errors import LeadlineError, UnusableClientCredentials
from leadline_client.file_lock import FileLock, FileLockHeld
from leadline_common.identity import UnusableCredentials
from leadline_common.tcp_ports import ReservedPorts
from leadline_common.zk.errors import ZkError

START_DEADLINE_S: Final = 120.0
_POLL_S: Final = 0.1
_HTTP_TIMEOUT_S: Final = 5.0


class ClusterProblem(RuntimeError):
    """The cluster cannot be run as asked; the message says why."""


class Supervisor:
    """The processes of one cluster in one data directory.

    `children` has the child processes by name, in the order of their start.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._lock: FileLock | None = None
        self._ports = ReservedPorts()
        self.children: dict[str, Child] = {}
        self._layout: ClusterLayout | None = None
        self._http: httpx.AsyncClient | None = None
        self._is_new_token = False
        self.cluster_id = ""

    @property
    def layout(self) -> ClusterLayout:
        """The processes of the cluster.

        Raises:
            ClusterProblem: the cluster was not started.

        """
        if self._layout is None:
            raise ClusterProblem("the cluster was not started")
        return self._layout

    async def start(
        self,
        deadline_s: float = START_DEADLINE_S,
        *,
        report: Callable[[str], None] = lambda _: None,
    ) -> list[str]:
        """Start all processes, wait until the cluster is ready, and write cluster.json.

        `report` gets a line for each thing that is started or waited for.
        At the deadline, a cluster that only lacks leaders of some partitions counts as started:
        the return value lists these partitions.

        Raises:
            ClusterProblem: a process ended, was not ready at the deadline, or cannot be started,
                as when the disk is full.

        """
        try:
            return await self._start(deadline_s, report)
        except (OSError, ForkServerFailed) as problem:
            where = self._options.data_dir
            raise ClusterProblem(f"cannot start a cluster in {where}: {problem}") from problem
        except ClusterProblem as problem:
            # The log that would say so is on the same disk.
            advice = full_disk_advice(self._options.data_dir, *self._directories())
            raise ClusterProblem(f"{problem}\n{advice}" if advice else str(problem)) from problem

    def _directories(self) -> list[Path]:
        """Return where the processes have their data, as far as it is known."""
        return [] if self._layout is None else self._layout.directories

    async def _start(self, deadline_s: float, report: Callable[[str], None]) -> list[str]:
        self._layout = self._lock_and_lay_out(self._options.data_dir)
        give_up = time.monotonic() + deadline_s
        RestartRequests(self.layout.data_dir).clear()
        self._create_credentials()
        if self.layout.zookeeper_servers:
            report(f"starting ZooKeeper at {self.layout.zookeeper}")
        self._launch(self.layout.zookeeper_servers)
        imports = dict.fromkeys(name for spec in self.layout.services for name in spec.imports)
        await asyncio.gather(
            self._until(self._zookeeper_serves, give_up, "ZooKeeper does not serve"),
            asyncio.to_thread(import_ahead, list(imports)),
        )
        await self._replace_shared_user()
        await self._make_administrator()
        report(f"starting {', '.join(service.name for service in self.layout.services)}")
        self._launch(self.layout.services)
        missing = await self._until_ready(give_up, report)
        metadata = await active_metadata(self.layout.controllers, self._http_client())
        self.cluster_id = metadata.cluster_id if metadata else ""
        self.document().write(self.layout.data_dir)
        return missing

    def document(self) -> ClusterFile:
        """Return the running cluster as the content of cluster.json."""
        layout = self.layout

        def rows(specs: tuple[ServiceSpec, ...]) -> tuple[Service, ...]:
            return tuple(spec.running_as(self.children[spec.name].pid or 0) for spec in specs)

        return ClusterFile(
            self.cluster_id,
            layout.zookeeper,
            rows(layout.controllers),
            rows(layout.brokers),
            rows(layout.coordinators),
            zookeeper_servers=rows(layout.zookeeper_servers),
        )

    async def watch(
        self, stop: asyncio.Event, *, restart: bool, report: Callable[[str], None]
    ) -> None:
        """Watch the child processes until `stop` is set.

        `report` gets a sentence for each one that ends. With `restart`, it is started again, as
        often as that takes.
        """
        watch = ProcessWatch(
            self.children,
            {spec.name: spec for group in self.layout.groups for spec in group},
            RestartRequests(self.layout.data_dir),
            restart=restart,
            report=report,
            restarted=partial(self._write_again, report),
            stop=stop,
        )
        await watch.run()

    @asynccontextmanager
    async def watched(self, report: Callable[[str], None]) -> AsyncIterator[None]:
        """Watch the child processes during a block; see `watch`."""
        stop = asyncio.Event()
        watching = asyncio.create_task(self.watch(stop, restart=False, report=report))
        try:
            yield
        finally:
            stop.set()
            await watching

    async def stop(self) -> None:
        """Stop everything: coordinators, brokers, controllers, then ZooKeeper."""
        for group in self._layout.groups[::-1] if self._layout is not None else ():
            children = [self.children[spec.name] for spec in group if spec.name in self.children]
            await asyncio.gather(*(child.stop() for child in children))
        if self._http is not None:
            await self._http.aclose()
        self._ports.release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def kill(self) -> None:
        """Kill every process. Acknowledged records are safe: they are on disk."""
        for child in self.children.values():
            child.signal(signal.SIGKILL)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _lock_and_lay_out(self, data_dir: Path) -> ClusterLayout:
        """Lock the data directory against other supervisors, and return its cluster's layout.

        Raises:
            ClusterProblem: another cluster runs there, or the directory or its cluster.json
                cannot be used.

        """
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = data_dir / SUPERVISOR_LOCK
            self._lock = FileLock.acquire(lock, blocking=False, write_pid=True)
            before = read_cluster_file(data_dir)
        except FileLockHeld as held:
            message = f"process {held.owner} runs a cluster in {data_dir} already"
            raise ClusterProblem(message) from None
        except OSError as problem:
            raise ClusterProblem(
                f"cannot use {data_dir} ({problem.strerror}): give a directory that can be "
                "written to with --data-dir"
            ) from problem
        except DamagedClusterFile as problem:
            raise ClusterProblem(str(problem)) from problem
        try:
            return lay_out_cluster(self._options, before, self._ports)
        except PortTaken as problem:
            raise ClusterProblem(str(problem)) from problem

    def _create_credentials(self) -> None:
        """Make what the services need to prove their identity, unless it is there.

        Raises:
            ClusterProblem: the directory, its authority or its token cannot be used.

        """
        credentials = credentials_in(self.layout.data_dir)
        try:
            credentials.create(self.layout.identities)
            self._is_new_token = not credentials.admin_token.exists()
            if self.layout.secure:
                secure_cluster.create_files(credentials, self.layout.identities)
            self._http_client()  # What it cannot use is an error before any process starts.
        except (UnusableAuthority, UnusableClientCredentials, UnusableCredentials) as problem:
            raise ClusterProblem(str(problem)) from None
        except OSError as problem:
            raise ClusterProblem(
                f"cannot write to {credentials.directory} ({problem.strerror})"
            ) from problem

    async def _replace_shared_user(self) -> None:
        """Give ZooKeeper's nodes to the users of this release, if an earlier one ran here.

        Raises:
            ClusterProblem: the users' files or ZooKeeper cannot be used.

        """
        credentials = credentials_in(self.layout.data_dir)
        if not credentials.zookeeper_services.exists():
            return
        try:
            administrator = credentials.zookeeper_administrator()
            done = await restrict_nodes(self.layout.zookeeper, administrator)
        except (ZkError, UnusableCredentials) as problem:
            raise ClusterProblem(f"cannot restrict ZooKeeper's nodes: {problem}") from None
        if not done.refused:
            credentials.zookeeper_services.unlink()

    async def _make_administrator(self) -> None:
        """Give a secure cluster the user as whom `leadline` connects.

        Raises:
            ClusterProblem: a file or ZooKeeper cannot be used.

        """
        if not self.layout.secure:
            return
        credentials = credentials_in(self.layout.data_dir)
        try:
            await make_administrator(
                credentials, self.layout.zookeeper, is_new_token=self._is_new_token
            )
        except (ZkError, LeadlineError, UnusableCredentials, OSError) as problem:
            raise ClusterProblem(f"cannot make the cluster's administrator: {problem}") from None

    def _http_client(self) -> httpx.AsyncClient:
        """Return the client for readiness checks, which trusts what `_create_credentials` made."""
        if self._http is None:
            directory = self.layout.data_dir
            self._http = secure_cluster.http_client(
                client_security(directory), timeout_s=_HTTP_TIMEOUT_S
            )
        return self._http

    def _launch(self, services: tuple[ServiceSpec, ...]) -> None:
        for service in services:
            log_path = self.layout.logs / f"{service.name}.log"
            child = (
                ForkedChild(service.name, service.argv, log_path, service.imports)
                if service.imports
                else Child(service.name, service.argv, log_path)
            )
            self.children[service.name] = child
            child.start()

    def _write_again(self, report: Callable[[str], None]) -> None:
        try:
            self.document().write(self.layout.data_dir)
        except OSError as problem:
            # For example, the disk is full. The cluster runs without this file.
            report(f"cluster.json is out of date: {problem.strerror}")

    def _zookeeper_serves(self) -> bool:
        ports = [int(server.url.rpartition(":")[2]) for server in self.layout.zookeeper_servers]
        return all(server_mode(port) is not None for port in ports)

    async def _until(self, holds: Callable[[], bool], give_up: float, problem: str) -> None:
        while not await asyncio.to_thread(holds):
            self._check_children()
            if time.monotonic() > give_up:
                raise ClusterProblem(f"{problem}\n{self._tails()}")
            await asyncio.sleep(_POLL_S)

    async def _until_ready(self, give_up: float, report: Callable[[str], None]) -> list[str]:
        reported: set[str] = set()
        while missing := await what_is_missing(self.layout, self._http_client()):
            self._check_children()
            for problem in missing:
                if problem not in reported:
                    report(f"waiting: {problem}")
            reported.update(missing)
            if time.monotonic() > give_up:
                if all(problem.endswith("has no leader") for problem in missing):
                    return missing
                listed = "\n  ".join(missing)
                raise ClusterProblem(f"not ready in time:\n  {listed}\n{self._tails()}")
            await asyncio.sleep(_POLL_S)
        # Another cluster may have taken the ports just now, and its services may have answered.
        self._check_children()
        return []

    def _check_children(self) -> None:
        for child in self.children.values():
            if not child.running:
                said = child.tail() or f"it has written nothing to {child.log_path}"
                raise ClusterProblem(
                    f"{child.name} ended with {child.exit_code} before the cluster was ready:\n"
                    f"{said}"
                )

    def _tails(self) -> str:
        return "\n".join(
            f"--- {child.log_path}\n{child.tail(8)}" for child in self.children.values()
        )

"""Runs a cluster on this machine: each service its own process, watched, stopped in order.

`leadline up`, `leadline demo` and the tests stand on this. No child outlives a
supervisor, however that ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, Self

import httpx

from leadline_cli.cluster_file import (
    ClusterFile,
    DamagedClusterFile,
    Service,
    read_cluster_file,
)
from leadline_cli.embedded_zookeeper import server_mode
from leadline_cli.plan import ClusterOptions, ClusterPlan, PlannedService, plan_cluster
from leadline_cli.processes import Child
from leadline_cli.readiness import active_metadata, what_is_missing
from leadline_common.tcp_ports import LOOPBACK

START_DEADLINE_S: Final = 120.0
_POLL_S: Final = 0.1
_RESTART_PAUSE_S: Final = 1.0


class ClusterProblem(RuntimeError):
    """The cluster cannot be run as asked; the message says why."""


class Supervisor:
    """The processes of one cluster in one data directory."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._lock: IO[str] | None = None
        self._children: dict[str, Child] = {}
        self._plan: ClusterPlan | None = None
        self._http = httpx.AsyncClient(trust_env=False)
        self.cluster_id = ""

    @property
    def plan(self) -> ClusterPlan:
        """What runs; known once the cluster was started."""
        if self._plan is None:
            raise ClusterProblem("the cluster was not started")
        return self._plan

    @property
    def children(self) -> dict[str, Child]:
        """The processes by name, in the order of their start."""
        return self._children

    async def start(self, deadline_s: float = START_DEADLINE_S) -> list[str]:
        """Start everything and wait until it is ready; write cluster.json.

        Returns what is still missing when only partitions are without a leader at
        the deadline: a cluster that may be used, and that somebody should look at.

        Raises:
            ClusterProblem: a process ended, or did not get ready before the deadline.

        """
        self._plan = self._taken(self._options.data_dir)
        give_up = time.monotonic() + deadline_s
        self._launch(self.plan.zookeeper_servers)
        await self._until(self._zookeeper_serves, give_up, "ZooKeeper does not serve")
        self._launch(self.plan.services)
        missing = await self._until_ready(give_up)
        metadata = await active_metadata(self.plan.controllers, self._http)
        self.cluster_id = metadata.cluster_id if metadata else ""
        self.document().write(self.plan.data_dir)
        return missing

    def document(self) -> ClusterFile:
        """Return what runs, as cluster.json says it."""
        plan = self.plan

        def rows(services: tuple[PlannedService, ...]) -> tuple[Service, ...]:
            return tuple(one.running_as(self._children[one.name].pid or 0) for one in services)

        return ClusterFile(
            self.cluster_id,
            plan.zookeeper,
            rows(plan.controllers),
            rows(plan.brokers),
            rows(plan.coordinators),
            zookeeper_servers=rows(plan.zookeeper_servers),
        )

    async def watch(
        self, stop: asyncio.Event, *, restart: bool, report: Callable[[str], None]
    ) -> None:
        """Look after the children until `stop` is set.

        A child that ends is reported, and stays ended unless `restart`.
        """
        known_dead: set[str] = set()
        while not stop.is_set():
            for child in self._children.values():
                if child.running:
                    known_dead.discard(child.name)
                elif child.name not in known_dead:
                    known_dead.add(child.name)
                    report(f"{child.name} ended with {child.exit_code}: {child.log_path}")
                    if restart:
                        await self._restart(child, report)
                        known_dead.discard(child.name)
            await _wait_for(stop, _POLL_S)

    async def stop(self) -> None:
        """Stop everything: coordinators, brokers, controllers, then ZooKeeper."""
        for group in self._plan.groups[::-1] if self._plan is not None else ():
            children = [self._children[one.name] for one in group if one.name in self._children]
            await asyncio.gather(*(child.stop() for child in children))
        await self._http.aclose()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def kill(self) -> None:
        """End every process at once: what was acknowledged is on the disk."""
        for child in self._children.values():
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

    def _taken(self, data_dir: Path) -> ClusterPlan:
        """Take the directory, and return what is to run in it.

        Raises:
            ClusterProblem: it is taken, of no use, or says something unintelligible.

        """
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(data_dir)
            before = read_cluster_file(data_dir)
        except OSError as problem:
            raise ClusterProblem(
                f"cannot use {data_dir} ({problem.strerror}): give a directory that can be "
                "written to with --data-dir"
            ) from problem
        except DamagedClusterFile as problem:
            raise ClusterProblem(str(problem)) from problem
        return plan_cluster(self._options, before, is_free=_can_listen)

    def _launch(self, services: tuple[PlannedService, ...]) -> None:
        for service in services:
            log_path = self.plan.logs / f"{service.name}.log"
            child = Child(service.name, service.argv, log_path)
            self._children[service.name] = child
            child.start()

    async def _restart(self, child: Child, report: Callable[[str], None]) -> None:
        await asyncio.sleep(_RESTART_PAUSE_S)
        child.start()
        report(f"{child.name} runs again as process {child.pid}")
        try:
            self.document().write(self.plan.data_dir)
        except OSError as problem:
            # As with a full disk: the cluster is not to end for the sake of this file.
            report(f"cluster.json still has what ran before: {problem.strerror}")

    def _zookeeper_serves(self) -> bool:
        ports = [int(server.url.rpartition(":")[2]) for server in self.plan.zookeeper_servers]
        return all(server_mode(port) is not None for port in ports)

    async def _until(self, holds: Callable[[], bool], give_up: float, problem: str) -> None:
        while not await asyncio.to_thread(holds):
            self._check_children()
            if time.monotonic() > give_up:
                raise ClusterProblem(f"{problem}\n{self._tails()}")
            await asyncio.sleep(_POLL_S)

    async def _until_ready(self, give_up: float) -> list[str]:
        while missing := await what_is_missing(self.plan, self._http):
            self._check_children()
            if time.monotonic() > give_up:
                if all(problem.endswith("has no leader") for problem in missing):
                    return missing
                listed = "\n  ".join(missing)
                raise ClusterProblem(f"not ready in time:\n  {listed}\n{self._tails()}")
            await asyncio.sleep(_POLL_S)
        return []

    def _check_children(self) -> None:
        for child in self._children.values():
            if not child.running:
                raise ClusterProblem(
                    f"{child.name} ended with {child.exit_code} before the cluster was ready:\n"
                    f"{child.tail()}"
                )

    def _tails(self) -> str:
        return "\n".join(f"--- {one.log_path}\n{one.tail(8)}" for one in self._children.values())


def _locked(data_dir: Path) -> IO[str]:
    """Hold the directory: two supervisors in it would start everything twice."""
    lock = (data_dir / ".lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip()
        lock.close()
        raise ClusterProblem(f"process {holder} runs a cluster in {data_dir} already") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _can_listen(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return

"""Watches the processes of one cluster: reports each end, closes left sessions, starts again.

A process that is being stopped, or starts again after a pause, has a task of its own. So the end of
another one is known at once, also while a broker hands over its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Final

from leadline_cli.cluster_layout import ServiceSpec
from leadline_cli.disk_space import full_disk_advice
from leadline_cli.forked_child import ForkServerFailed
from leadline_cli.left_sessions import LeftSessions
from leadline_cli.processes import Child, wait_for_end
from leadline_cli.restart_requests import RestartRequests

_POLL_S: Final = 0.1
_RESTART_PAUSE_S: Final = 1.0


class ProcessWatch:
    """Watches `children`, which run what `specs` describe, by name.

    `report` gets a sentence for each process that ends or starts. `restarted` is called after each
    start. With `restart`, what has ended is started again, as often as that takes.

    Invariant: at most one task at a time stops or starts a process.
    """

    def __init__(
        self,
        children: Mapping[str, Child],
        specs: Mapping[str, ServiceSpec],
        requests: RestartRequests,
        *,
        restart: bool,
        report: Callable[[str], None],
        restarted: Callable[[], None],
        stop: asyncio.Event,
    ) -> None:
        self._children = children
        self._specs = specs
        self._requests = requests
        self._restart = restart
        self._report = report
        self._restarted = restarted
        self._left = LeftSessions(report)
        self._stop = stop
        self._known_dead: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._kept_requests: set[str] = set()
        """Processes that were restarted as asked, whose requests cannot be removed."""

    async def run(self) -> None:
        """Watch until `stop` is set, and until no process is being stopped or started."""
        while not self._stop.is_set():
            self._forget_ended_tasks()
            for child in self._children.values():
                self._look_at(child)
            self._take_requests()
            await wait_for_end(self._children.values(), self._stop, _POLL_S)
        await asyncio.gather(*self._tasks.values())
        await self._left.finish()

    def _forget_ended_tasks(self) -> None:
        for name, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
                task.result()

    def _look_at(self, child: Child) -> None:
        if child.name in self._tasks:
            return
        if child.running:
            self._known_dead.discard(child.name)
            return
        if child.name not in self._known_dead:
            self._known_dead.add(child.name)
            spec = self._specs[child.name]
            self._left.close(child.name, spec.session_file)
            self._report(f"{child.name} ended with {child.exit_code}: {child.log_path}")
            # Its log cannot say so, or does not: ZooKeeper writes its own beside its data.
            if advice := full_disk_advice(child.log_path.parent, spec.directory):
                self._report(advice)
        if self._restart:
            self._begin(child.name, self._start_later(child))

    def _take_requests(self) -> None:
        """Restart what `leadline brokers restart` asks for; a running process is stopped first."""
        pending = self._requests.pending()
        self._kept_requests.intersection_update(pending)
        for name in pending:
            if name not in self._kept_requests and name not in self._tasks:
                self._begin(name, self._restart_as_asked(name))

    def _begin(self, name: str, work: Coroutine[None, None, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=f"restart {name}")

    async def _start_later(self, child: Child) -> None:
        await self._pause()
        self._start_again(child)

    async def _restart_as_asked(self, name: str) -> None:
        child = self._children.get(name)
        if child is not None:
            await child.stop()
            if not self._start_again(child):
                await self._pause()
                return
        try:
            self._requests.done(name)
        except OSError as problem:
            # For example, the request is of another user. It was carried out, once.
            self._kept_requests.add(name)
            self._report(f"the request to restart {name} cannot be removed: {problem}")

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_RESTART_PAUSE_S):
                await self._stop.wait()

    def _start_again(self, child: Child) -> bool:
        """Start a process that has ended, unless all are to stop; return whether it was started.

        If the system has no memory or process for it, the other processes go on.
        """
        if self._stop.is_set():
            return False
        try:
            child.start()
        except (OSError, ForkServerFailed) as problem:
            self._report(f"{child.name} was not started: {problem}")
            return False
        self._known_dead.discard(child.name)
        self._report(f"{child.name} was restarted as process {child.pid}")
        self._restarted()
        return True

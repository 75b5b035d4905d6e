"""Runs the services of one host from the directory that `leadline cluster init` made for it.

Each service is a process; one that ends is started again, as a service manager would: after a
second, and then after longer and longer pauses, if it ends soon each time. No child outlives this
process.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leadline_cli.cluster_layout import SERVICE_MODULE, SESSIONS
from leadline_cli.embedded_zookeeper import ServerConfig
from leadline_cli.forked_child import ForkedChild, ForkServerFailed, import_ahead
from leadline_cli.host_files import ZOOKEEPER_FILE
from leadline_cli.host_settings import SETTINGS_FILE
from leadline_cli.inventory import ZOOKEEPER
from leadline_cli.left_sessions import LeftSessions
from leadline_cli.processes import Child, module_command, wait_for_end
from leadline_client.backoff import backoff_pause
from leadline_client.file_lock import FileLock, FileLockHeld
from leadline_common.identity import KINDS, Kind
from leadline_common.private_files import keep_files_private

LOGS: Final = Path("logs")
_LOCK: Final = "host.lock"
_POLL_S: Final = 0.1
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_STABLE_S: Final = 60.0
"""A process that ran for as long may end once without being taken for one that cannot run."""
_ALL: Final = 1.0  # Nobody else waits for the same: the pause is not varied.
_STOP_ORDER: Final = ("coordinator", "broker", "controller", ZOOKEEPER)


class HostProblem(RuntimeError):
    """The directory cannot be used; the message says why."""


@dataclass(slots=True)
class Restarts:
    """When one process starts again: later each time, if it ends soon after each start.

    Times are seconds of a clock that does not go back.
    """

    started_at: float = 0.0
    due_at: float | None = None
    _failures: int = 0

    def started(self, now: float) -> None:
        """Note that the process starts."""
        self.started_at, self.due_at = now, None

    def ended(self, now: float) -> float:
        """Note that it has ended, or could not be started; return in how many seconds it may."""
        ran_s = now - self.started_at
        self._failures = 1 if ran_s >= _STABLE_S else self._failures + 1
        pause_s = backoff_pause(
            self._failures, first=_FIRST_PAUSE_S, longest=_LONGEST_PAUSE_S, random=_ALL
        )
        self.due_at = now + pause_s
        return pause_s


@dataclass(eq=False, slots=True)
class HostRunner:
    """The processes of one host, whose directory is the working directory.

    `report` gets a sentence for each process that starts or ends.
    """

    kinds: tuple[Kind, ...]
    has_zookeeper: bool
    report: Callable[[str], None]
    children: dict[str, Child] = field(default_factory=dict, init=False)
    _restarts: dict[str, Restarts] = field(default_factory=dict, init=False)
    _left_sessions: LeftSessions = field(init=False)
    _lock: FileLock | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._left_sessions = LeftSessions(self.report)

    @classmethod
    def enter(cls, directory: Path, report: Callable[[str], None]) -> HostRunner:
        """Make a host's directory the working directory, and return what runs there.

        Raises:
            HostProblem: it was not made by `leadline cluster init`, or another process uses it.
            PackageMissing: ZooKeeper is to run here, and is not installed.

        """
        kinds = tuple(kind for kind in KINDS if any(directory.glob(f"{kind}-*-public.pem")))
        has_zookeeper = (directory / ZOOKEEPER_FILE).exists()
        if not (directory / SETTINGS_FILE).exists() or not (kinds or has_zookeeper):
            raise HostProblem(
                f"{directory} has no {SETTINGS_FILE} and certificates: give the directory that "
                "`leadline cluster init` made for this host"
            )
        if has_zookeeper:
            ServerConfig.check_installed()
        keep_files_private()
        runner = cls(kinds, has_zookeeper, report)
        try:
            os.chdir(directory)
            runner._lock = FileLock.acquire(Path(_LOCK), blocking=False, write_pid=True)
        except FileLockHeld as held:
            raise HostProblem(f"process {held.owner} runs the host of {directory}") from None
        except OSError as problem:
            raise HostProblem(f"cannot use {directory} ({problem.strerror})") from problem
        return runner

    async def run(self, stop: asyncio.Event) -> None:
        """Run all services until `stop` is set, then stop them: ZooKeeper last."""
        try:
            modules = [SERVICE_MODULE, *(f"leadline_{kind}.main" for kind in self.kinds)]
            if self.has_zookeeper:
                self._start(self._zookeeper())
            if self.kinds:
                await asyncio.to_thread(import_ahead, modules)
            for kind in self.kinds:
                self._start(self._service(kind))
            await self._watch(stop)
        finally:
            await self._left_sessions.finish()
            for name in _STOP_ORDER:
                if name in self.children:
                    await self.children[name].stop()
            if self._lock is not None:
                self._lock.release()

    def _zookeeper(self) -> Child:
        argv = module_command("leadline_cli.host_zookeeper", ZOOKEEPER_FILE)
        return Child(ZOOKEEPER, argv, LOGS / f"{ZOOKEEPER}.log")

    @staticmethod
    def _service(kind: Kind) -> Child:
        session = f"zookeeper.session.file={session_file_of(kind)}"
        argv = module_command(SERVICE_MODULE, kind, "--config", SETTINGS_FILE, "--set", session)
        imports = (SERVICE_MODULE, f"leadline_{kind}.main")
        return ForkedChild(kind, argv, LOGS / f"{kind}.log", imports)

    def _start(self, child: Child) -> None:
        """Start a process; if that fails, it is tried again later, and the others go on."""
        self.children[child.name] = child
        restarts = self._restarts.setdefault(child.name, Restarts())
        restarts.started(time.monotonic())
        try:
            child.start()
        except (OSError, ForkServerFailed) as problem:
            pause_s = restarts.ended(time.monotonic())
            self.report(f"{child.name} does not start ({problem}); again in {pause_s:.0f} s")
        else:
            self.report(f"{child.name} runs as process {child.pid}: {child.log_path}")

    async def _watch(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            for child in self.children.values():
                self._restart_if_ended(child)
            await wait_for_end(self.children.values(), stop, _POLL_S)

    def _restart_if_ended(self, child: Child) -> None:
        restarts = self._restarts[child.name]
        if child.running:
            return
        now = time.monotonic()
        if restarts.due_at is None:
            pause_s = restarts.ended(now)
            self.report(
                f"{child.name} ended with {child.exit_code}; it starts again in {pause_s:.0f} s"
            )
            self._left_sessions.close(child.name, session_file_of(child.name))
        elif now >= restarts.due_at:
            self._start(child)


def session_file_of(kind: str) -> Path:
    """Return where a service of this host keeps its ZooKeeper session, in the host's directory."""
    return Path(SESSIONS) / kind

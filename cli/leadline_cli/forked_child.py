"""Child processes that a fork server starts (`leadline_cli.fork_server`), and the server's handle.

All supervisors of one process share one server. It is started when it is first needed, and again
after it ended. One that does not answer is asked nothing more, and another one is started; it stays
for as long as its children run, because they would end with it.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from leadline_cli.json_lines import JsonLines
from leadline_cli.processes import Child, PidFd, Process, module_command

ANSWER_DEADLINE_S: Final = 120.0
_EXIT_DEADLINE_S: Final = 5.0
_EVENT_DEADLINE_S: Final = 1.0
_READ_AT_START: Final = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_")
"""Prefixes of variables that the loader, the C library or Python reads when a program starts."""


class ForkServerFailed(RuntimeError):
    """The fork server does not do what is asked; the message says why."""


class ForkedChild(Child):
    """A Python module as a child process, forked from a process that has imported it already.

    `argv` is that of `module_command`, and the module has `main(arguments)`. `imports` are the
    modules to import before the fork. The child is as if `argv` had been executed, but
    resource limits and umask are those that this process had when the fork server was started.
    Where there is no fork server, or the environment asks for another interpreter, `argv` is
    executed.
    """

    def __init__(
        self, name: str, argv: Sequence[str], log_path: Path, imports: Sequence[str]
    ) -> None:
        super().__init__(name, argv, log_path)
        self._imports = imports

    def _spawn(self, log: BinaryIO) -> Process:
        if not is_available():
            return super()._spawn(log)
        directory = os.open(".", os.O_PATH | os.O_DIRECTORY)
        try:
            request = {
                "argv": self.argv,
                "imports": self._imports,
                "environment": dict(os.environ),
            }
            started: ForkedProcess = _ask(request, (log.fileno(), directory))
            return started
        finally:
            os.close(directory)

    def _pidfd_of(self, process: Process) -> PidFd | None:
        # The fork server reaps its children, and a process id may be used again.
        return process.pidfd if isinstance(process, ForkedProcess) else super()._pidfd_of(process)


class ForkedProcess:
    """A process that the fork server has started; what `Child` uses of `subprocess.Popen`."""

    def __init__(self, server: _Server, pid: int, pidfd: PidFd) -> None:
        self._server = server
        self.pid = pid
        self.pidfd = pidfd
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        if self.returncode is None:
            self._server.read_events()
        silent = self._server.is_silent
        if self.returncode is None and silent and _is_readable(self.pidfd.fileno(), 0):
            self._server.await_end(self)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; a process that has ended gets none."""
        try:
            signal.pidfd_send_signal(self.pidfd.fileno(), number)
        except ProcessLookupError:
            return


class _Server:
    """A fork server of this process. A lost one has ended, and starts nothing any more.

    A retired one has not answered, and is asked nothing more. It ends with its last child.
    """

    def __init__(self) -> None:
        here, there = socket.socketpair()
        with there:
            # It ends with the stream, not with the thread that starts it.
            self._process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                module_command("leadline_cli.fork_server", str(there.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        self.started_with = _read_at_start()
        self.lost = False
        self._retired = False
        self._lines = JsonLines(here)
        self._lock = threading.Lock()
        self._children: dict[int, ForkedProcess] = {}
        self._answer: ForkedProcess | Mapping[str, Any] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_silent(self) -> bool:
        """Whether it may tell nothing any more of its children."""
        return self.lost or self._retired

    def ask(self, request: Any, fds: Sequence[int]) -> ForkedProcess | Mapping[str, Any] | None:
        """Return the answer to a request; None if the server ended or was retired instead.

        Raises:
            ForkServerFailed: the server refuses, or does not answer in time.

        """
        with self._lock:
            self._read()
            if self._retired:  # while this waited for the lock
                return None
            self._answer = None
            try:
                self._lines.send(request, fds)
                self._await_answer()
            except OSError:
                self._lose()
            except BaseException:
                # It does not answer, or Ctrl-C. The answer may still come, and is not that of the
                # next request.
                self._retire()
                raise
            answer = self._answer
        if isinstance(answer, Mapping) and "refused" in answer:
            raise ForkServerFailed(answer["refused"])
        return answer

    def read_events(self) -> None:
        """Note which children have ended, without waiting."""
        # Another thread that waits for an answer reads the events meanwhile.
        if self._lock.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._lock.release()

    def await_end(self, child: ForkedProcess) -> None:
        """Set the exit code of a child that has ended, of which the server may tell nothing.

        If the server was killed, so was the child. If it hangs, the code is that of a kill, too:
        only the server can know another one.
        """
        with self._lock:
            give_up = time.monotonic() + _EVENT_DEADLINE_S
            while child.returncode is None and not self.lost:
                if not _is_readable(self._lines.fileno(), give_up - time.monotonic()):
                    break
                self._read()
            if child.returncode is None:
                child.returncode = -signal.SIGKILL
            self._children.pop(child.pid, None)
            self._end_if_retired()

    def close(self) -> None:
        """End the server, and with it its children."""
        self._lines.close()
        try:
            self._process.wait(_EXIT_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.lost = True

    def disown(self) -> None:
        """Let go of the server in a forked process: it belongs to the parent."""
        self._lines.close()
        self._lock = threading.Lock()
        self._process.returncode = 0
        self.lost = True

    def _await_answer(self) -> None:
        give_up = time.monotonic() + ANSWER_DEADLINE_S
        while self._answer is None and not self.lost:
            if not _is_readable(self._lines.fileno(), give_up - time.monotonic()):
                raise ForkServerFailed(f"no answer within {ANSWER_DEADLINE_S:.0f} s")
            self._read()

    def _read(self) -> None:
        if self.lost:
            return
        lines, at_end = self._lines.receive()
        for line in lines:
            if "ended" in line:
                ended = self._children.pop(line["ended"], None)
                if ended is not None:
                    ended.returncode = os.waitstatus_to_exitcode(line["status"])
            elif "started" in line:
                child = ForkedProcess(self, line["started"], PidFd(*self._lines.take_fds(1)))
                self._note_started(child)
            else:
                self._answer = line
        if at_end:
            self._lose()
        self._end_if_retired()

    def _note_started(self, child: ForkedProcess) -> None:
        if self._retired:  # Nobody waits for it any more.
            child.send_signal(signal.SIGKILL)
            return
        self._children[child.pid] = child
        self._answer = child

    def _retire(self) -> None:
        self._retired = True
        self._end_if_retired()

    def _end_if_retired(self) -> None:
        if self._retired and not self._children and not self.lost:
            self._lose()

    def _lose(self) -> None:
        self.lost = True
        self._children.clear()
        self._lines.close()
        self._process.kill()
        self._process.wait()


def is_available() -> bool:
    """Tell whether children are forked here: Linux with pidfds, and an environment that allows it.

    What an interpreter reads when it starts cannot be changed for a child that is forked.
    """
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    server = _usable()
    return server is None or server.started_with == _read_at_start()


def import_ahead(modules: Sequence[str]) -> None:
    """Let the fork server import `modules`, so that later starts do not wait for that.

    This waits for the imports, which may take seconds.

    Raises:
        ForkServerFailed: the server did not answer.

    """
    if modules and is_available():
        _ask({"imports": modules}, ())


def server_pid() -> int | None:
    """Return the process id of this process's fork server; None if there is none."""
    server = _usable()
    return None if server is None else server.pid


def _usable() -> _Server | None:
    """Return the server that is asked next, if there is one already."""
    return None if not _servers or _servers[-1].is_silent else _servers[-1]


_servers: list[_Server] = []
"""Those that are not lost, the newest last."""
_starting = threading.Lock()


def _ask(request: Any, fds: Sequence[int]) -> Any:
    # A server that was killed has taken with it whatever it did, so the next one is asked again.
    for _ in range(2):
        answer = _running_server().ask(request, fds)
        if answer is not None:
            return answer
    raise ForkServerFailed("it ended at once, twice; standard error says why")


def _running_server() -> _Server:
    with _starting:
        server = _usable()
        if server is None:
            _servers[:] = [one for one in _servers if not one.lost]
            server = _Server()
            _servers.append(server)
        return server


def _read_at_start() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_START)}


def _is_readable(fd: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0, within_s * 1000)))


def _end_at_exit() -> None:
    for server in _servers:
        if not server.lost:
            server.close()


def _disown_in_child() -> None:
    global _starting  # noqa: PLW0603 - the parent may hold the lock at the time of the fork
    _starting = threading.Lock()
    for server in _servers:
        server.disown()


atexit.register(_end_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_in_child)

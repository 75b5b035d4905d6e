"""A process that imports Python modules once and forks one process per request, on Linux.

Imports are most of what a service costs before it serves. A forked process has them already, and
shares their memory. `leadline_cli.forked_child` starts this as `python -P -m
leadline_cli.fork_server FD`; FD is a stream socket with one JSON document per line:

- `{"imports": [...]}`: import these modules. Answer: `{"imported": [...]}`.
- `{"argv": [...], "imports": [...], "environment": {...}}`, with the file descriptors of the log
  and of the working directory: import, fork, and call `main` of the module that `argv` runs
  (`module_command`) in the child, with its arguments. Answer: `{"started": pid}`, with a pidfd.
- Event: `{"ended": pid, "status": n}`, with the status as `os.waitpid` returns it.

A request that cannot be met is answered with `{"refused": reason}`. At the end of the stream the
server exits, and the kernel then kills its children.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from setproctitle import getproctitle, setproctitle, setthreadtitle

from leadline_cli.json_lines import JsonLines
from leadline_cli.processes import dies_with_parent, module_of

_THREADS: Final = Path("/proc/self/task")


class ForkServer:
    """Serves one socket. It has one thread and no event loop: a fork copies neither safely."""

    def __init__(self, connection: socket.socket) -> None:
        self._lines = JsonLines(connection)
        self._children: dict[int, int] = {}
        """The process id of each child by its pidfd."""

    def serve(self) -> Sequence[str] | None:
        """Serve until the stream ends, then return None; in a new child, return its argv."""
        while True:
            self._wait()
            self._reap()
            try:
                lines, at_end = self._lines.receive()
            except ConnectionError:
                return None
            for line in lines:
                argv = self._handle(line)
                if argv is not None:
                    return argv
            if at_end:
                return None

    def _wait(self) -> None:
        """Wait for a request or for the end of a child: its pidfd is readable then."""
        poll = select.poll()
        for fd in (self._lines.fileno(), *self._children):
            poll.register(fd, select.POLLIN)
        poll.poll()

    def _reap(self) -> None:
        for pidfd, pid in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[pidfd]
                os.close(pidfd)
                self._lines.send({"ended": pid, "status": status})

    def _handle(self, request: Mapping[str, Any]) -> Sequence[str] | None:
        """Answer a request; in a child that this has started, return its argv."""
        _import(request["imports"])
        threads = len(list(_THREADS.iterdir()))
        if "argv" not in request:
            self._lines.send({"imported": request["imports"]})
        elif threads > 1:
            for fd in self._lines.take_fds(2):
                os.close(fd)
            reason = f"the fork server has {threads} threads after importing {request['imports']}"
            self._lines.send({"refused": f"{reason}: importing these must not start a thread"})
        else:
            return self._fork(request)
        return None

    def _fork(self, request: Mapping[str, Any]) -> Sequence[str] | None:
        log, directory = self._lines.take_fds(2)
        die_with_server = dies_with_parent()
        # Objects that exist now are never collected in a child: looking at them would copy them.
        gc.freeze()
        try:
            pid = os.fork()
        except OSError as problem:
            # For a moment there are no memory or processes: the children that run must not end.
            os.close(log)
            os.close(directory)
            self._lines.send({"refused": f"it cannot fork: {problem.strerror}"})
            return None
        if pid == 0:
            self._become_child(request, log, directory, die_with_server)
            argv: Sequence[str] = request["argv"]
            return argv
        os.close(log)
        os.close(directory)
        # Until it is reaped, which only this thread does, the process id cannot be another's.
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = pid
        self._lines.send({"started": pid}, [pidfd])
        return None

    def _become_child(
        self,
        request: Mapping[str, Any],
        log: int,
        directory: int,
        die_with_server: Callable[[], None] | None,
    ) -> None:
        """Make this process what `subprocess.Popen` would have made of it."""
        if die_with_server is not None:
            die_with_server()
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.fchdir(directory)
        self._lines.close()
        for fd in (log, directory, *self._children):
            os.close(fd)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.environ.clear()
        os.environ.update(request["environment"])
        _show_as(request["argv"])
        gc.enable()


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        # A module that cannot be imported fails again in the child, whose log then says why.
        with suppress(Exception):
            import_module(name)


def _show_as(argv: Sequence[str]) -> None:
    """Show this command in `ps`, and keep the short name of the process."""
    sys.argv[1:] = module_of(argv)[1]
    setproctitle(" ".join(argv))
    setthreadtitle(Path(argv[0]).name)


def main() -> None:
    """Serve the socket of the argument; in a child, run its module."""
    # A collection between imports frees nothing, and what it leaves behind is copied in each child.
    gc.disable()
    # It notes where this process's arguments are, which is unknown once the environment changed.
    getproctitle()
    argv = ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
    if argv is None:
        # At once, so that the children do not outlive the supervisor by the time of a clean-up.
        os._exit(0)
    name, arguments = module_of(argv)
    module = import_module(name)
    sys.argv[0] = module.__file__ or name
    module.main(arguments)


if __name__ == "__main__":
    main()

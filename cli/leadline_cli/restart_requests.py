"""Requests to the `leadline up` of a data directory to restart one of its processes.

A request is an empty file. The supervisor polls the directory, and removes the file once the
process runs again: so only it starts processes, and none outlives it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from leadline_cli.cluster_file import Service, read_cluster_file
from leadline_cli.credentials import client_security
from leadline_client.errors import LeadlineError
from leadline_client.file_lock import FileLock, FileLockHeld
from leadline_client.security import Authenticator
from leadline_client.stdlib_transport import StdlibTransport
from leadline_client.transport import Request

SUPERVISOR_LOCK: Final = ".lock"
"""The file in the data directory that a running `leadline up` has locked."""

_FOLDER: Final = "restart-requests"
_DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.1


class RestartRequests:
    """The requests in one data directory; processes go by name, such as `broker-1`."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / _FOLDER

    def add(self, name: str) -> None:
        """Request a restart; nothing changes if it is requested already."""
        self._folder.mkdir(exist_ok=True)
        (self._folder / name).touch()

    def pending(self) -> list[str]:
        """Return the requested names."""
        with suppress(OSError):
            return sorted(path.name for path in self._folder.iterdir())
        return []

    def done(self, name: str) -> None:
        """Remove a request that was carried out, or is given up; raises OSError if it cannot."""
        (self._folder / name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all requests: those of an earlier run mean nothing to this one."""
        for name in self.pending():
            self.done(name)


class RestartProblem(RuntimeError):
    """The process was not restarted, or did not come up; the message says why."""


def restart_broker(data_dir: Path, broker: int) -> int:
    """Have `leadline up` restart a broker; see `restart_service`."""
    return restart_service(data_dir, f"broker-{broker}")


def restart_service(data_dir: Path, name: str) -> int:
    """Have `leadline up` restart a process, wait until that is ready, and return its process id.

    Raises:
        RestartProblem: no `leadline up` runs in the directory or it cannot be asked, or the process
            ended again.
        TimeoutError: it is unknown whether the process runs.
        UnusableClientCredentials: nobody could ask the process whether it is ready.

    """
    _require_supervisor(data_dir)
    authenticator = Authenticator(client_security(data_dir))
    before = _row(data_dir, name).pid
    requests = RestartRequests(data_dir)
    try:
        requests.add(name)
    except OSError as problem:
        raise RestartProblem(f"cannot ask `leadline up` for a restart: {problem}") from problem
    give_up = time.monotonic() + _DEADLINE_S
    while name in requests.pending() or _row(data_dir, name).pid == before:
        _require_supervisor(data_dir)
        _check_deadline(give_up, f"`leadline up` has not restarted {name} yet")
        time.sleep(_POLL_S)
    row = _row(data_dir, name)
    while not answers_ready(row.url, authenticator):
        if not _runs(row.pid):
            log = data_dir / "logs" / f"{name}.log"
            raise RestartProblem(f"{name} has ended again; its log: {log}")
        _check_deadline(give_up, f"{name} runs as process {row.pid}, but is not ready yet")
        time.sleep(_POLL_S)
    return row.pid


def _require_supervisor(data_dir: Path) -> None:
    try:
        lock = FileLock.acquire(data_dir / SUPERVISOR_LOCK, blocking=False)
    except FileLockHeld:
        return
    lock.release()
    raise RestartProblem(
        f"no `leadline up` runs in {data_dir}: `leadline up --data-dir {data_dir}` starts the "
        "whole cluster again"
    )


def _check_deadline(give_up: float, problem: str) -> None:
    if time.monotonic() > give_up:
        raise TimeoutError(problem)


def _row(data_dir: Path, name: str) -> Service:
    kind, _, number = name.rpartition("-")
    cluster = read_cluster_file(data_dir)
    rows: tuple[Service, ...] = getattr(cluster, f"{kind}s") if cluster else ()
    return next(row for row in rows if row.id == int(number))


def answers_ready(url: str, authenticator: Authenticator) -> bool:
    """Return whether the service at an address answers that it is ready."""
    transport = StdlibTransport(authenticator)
    try:
        return transport.send(Request("GET", f"{url}/readyz", timeout_s=2.0)).status == 200
    except LeadlineError:
        return False
    finally:
        transport.close()


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() if Path("/proc/self").exists() else True

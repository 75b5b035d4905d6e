"""What is loaded from files, and loaded again when they change, without a restart.

Certificates are renewed while a service runs. What new files replace serves connections that
exist; every new handshake asks for what is in use now. New files that cannot be used change
nothing but what `/readyz`, the log and the metrics say.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import structlog

from leadline_common.identity import UnusableCredentials
from leadline_common.problems import Problem

CHECK_INTERVAL_S: Final = 1.0
"""How often a service checks whether its files have changed."""

_Stamp = tuple[int, int, int, int] | None
Loaded = TypeVar("Loaded")

logger = structlog.get_logger(__name__)


class ClientTls(Protocol):
    """Has the TLS context for a new connection to somebody else."""

    @property
    def client(self) -> ssl.SSLContext:
        """The context that is in use now."""


class ServerTls(Protocol):
    """Has the TLS context for a connection that was accepted."""

    @property
    def server(self) -> ssl.SSLContext:
        """The context that is in use now."""


class Reloaded(Generic[Loaded]):
    """What `load` returns for `files`, as of the last time that they could be used.

    `name` is that of the files in the log and in the metrics. `loads` counts how often they were
    loaded again, and `problem` says why the newest ones are not in use, "" if they are.

    Raises:
        UnusableCredentials: by `load`, when this is made.

    """

    def __init__(self, name: str, files: Sequence[Path], load: Callable[[], Loaded]) -> None:
        self.name = name
        self.loads = 0
        self.problem = ""
        self._files = files
        self._load = load
        # Before the files are read: what changes meanwhile is loaded again.
        self._seen = self._stamps()
        self._current = load()

    @property
    def current(self) -> Loaded:
        """What is in use."""
        return self._current

    def reload_if_changed(self, accept: Callable[[Loaded], None] = lambda _: None) -> None:
        """Load the files again if they have changed; this reads files, so call it in a thread.

        `accept` raises UnusableCredentials for what is not to be used. Files that cannot be used
        are tried again each time: they may be complete by then.
        """
        stamps = self._stamps()
        if stamps == self._seen and not self.problem:
            return
        try:
            loaded = self._load()
            accept(loaded)
        except UnusableCredentials as problem:
            self._refuse(str(problem))
        else:
            self._current = loaded
            self.loads += 1
            self.problem = ""
            logger.info("files loaded again", files=self.name, paths=self._paths())
        self._seen = stamps

    def is_refused(self) -> bool:
        """Tell whether the newest files are not in use."""
        return bool(self.problem)

    def problems(self) -> Iterator[Problem]:
        """Yield what `/readyz` shows: the service works on with what it has."""
        if self.problem:
            yield Problem(f"the former files stay in use, because {self.problem}", serving=True)

    def _refuse(self, problem: str) -> None:
        if problem != self.problem:
            logger.warning("files cannot be used", files=self.name, problem=problem)
        self.problem = problem

    def _stamps(self) -> list[_Stamp]:
        return [_stamp(path) for path in self._files]

    def _paths(self) -> list[str]:
        return [str(path) for path in self._files]


def _stamp(path: Path) -> _Stamp:
    """Return what changes with a file's content; links are followed, so a new target counts."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

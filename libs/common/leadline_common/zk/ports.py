"""What a ZooKeeper session needs of the connection below it.

`zk.transport` implements it over kazoo. Tests run whole services over a simulated ZooKeeper by
giving them another one.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.requests import Reply, Request

_T = TypeVar("_T")


class SessionState(enum.Enum):
    """The state of the session: connected, disconnected for now, or over for good."""

    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"
    LOST = "LOST"


class Transport(Protocol):
    """The connection of one session; all methods are called on the event loop that made it."""

    @property
    def root(self) -> str:
        """The chroot, which is prepended to every path; empty without one."""

    @property
    def session_id(self) -> int:
        """The id of the session; 0 before the first connection."""

    @property
    def granted_timeout_ms(self) -> int:
        """The session timeout that the server granted."""

    def start(self) -> None:
        """Start to connect; the outcome is reported as a state."""

    def watch_loop(self) -> None:
        """From now on, close the session if the event loop is blocked for the session timeout."""

    async def finish(self) -> None:
        """Close the session and free its resources; states and replies still arrive meanwhile."""

    def submit(
        self,
        request: Request,
        decode: Callable[[Reply | None], _T],
        path: str,
        *,
        urgent: bool = False,
    ) -> asyncio.Future[_T]:
        """Send a request, or queue it until there is room; `urgent` skips the queue."""

    def watcher(self, callback: Callable[[], None]) -> Callable[..., None]:
        """Return a one-shot watcher for a request that runs `callback` on the loop."""


OpenTransport: TypeAlias = Callable[
    [str, int, Callable[[SessionState], None], ZkCredentials | None], Transport
]
"""Makes a transport of hosts, session timeout in ms, what to call on states, and credentials."""

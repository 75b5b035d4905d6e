"""What the sessions of one process, one after another, have seen of their ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

NO_SESSION: Final = "no session with ZooKeeper"
"""The reason of a service that is not ready for want of a session, up to a colon."""


def too_large(size: int) -> str:
    """Return what is probably the cause if requests of this size close the connection."""
    return (
        f"the server closes the connection on a request of {size:,} bytes: set jute.maxbuffer of "
        "every ZooKeeper server to 1048575, its default, or more"
    )


@dataclass(eq=False, slots=True)
class ConnectionRecord:
    """Outlives the sessions that it is given to; kazoo's thread writes it, the loop reads it.

    `newest_zxid` is the newest transaction that any of them has seen: a server with older data is
    not used, whichever session meets it. `problems` says why each server is not used, by address;
    it is empty while there is a connection, and before the first attempt. `large_request` is the
    size in bytes of a request that has cost the connection twice, until one as large is answered.
    """

    newest_zxid: int = 0
    large_request: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)

    def saw(self, zxid: int) -> None:
        """Note a transaction that a server has answered with."""
        self.newest_zxid = max(self.newest_zxid, zxid)

    def failed(self, server: str, reason: str) -> None:
        """Note why a server is not used."""
        self.problems = {**self.problems, server: reason}  # replaced whole, for the other thread

    def connected(self) -> None:
        """Forget the problems."""
        self.problems = {}

    def reason(self) -> str:
        """Return why there is no connection, empty if nothing is known."""
        problems = self.problems
        if not problems and self.large_request:
            return too_large(self.large_request)
        return "; ".join(f"{server}: {problems[server]}" for server in sorted(problems))

    def no_session(self, otherwise: str = "") -> str:
        """Return that there is no session, and why; `otherwise` if no server was at fault."""
        reason = self.reason() or otherwise
        return f"{NO_SESSION}: {reason}" if reason else NO_SESSION

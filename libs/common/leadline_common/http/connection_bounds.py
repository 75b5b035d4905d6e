"""What all connections of one process share: their number, what they hold, and their refusals.

The protocol of each connection (`connections`) asks here before it holds more. Once a second all
connections are examined in one pass, because a timer for each would cost more than the request.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from starlette.responses import Response

from leadline_client.errors import LeadlineError
from leadline_common.http.errors import error_response
from leadline_common.log_rate import LogRate
from leadline_common.metrics import Metrics
from leadline_common.open_files import open_files_limit
from leadline_common.settings.fields import KIB, ServiceSettings

FREE_BODY_BYTES: Final = 16 * KIB
"""The part of each body that needs no budget, so that heartbeats pass while others hold it."""

BACKLOG: Final = 2048
"""How many connections wait to be accepted."""
_LEAST_HANDSHAKES: Final = 256
_EXAMINE_EVERY_S: Final = 1.0

logger = structlog.get_logger(__name__)


class Examined(Protocol):
    """A connection, as the periodic examination sees it."""

    def examine(self, now: float) -> None:
        """End the connection if it exceeds a limit of time or rate."""

    def slow_body(self, now: float) -> tuple[float, int] | None:
        """Return since when a body has been arriving and what it holds, unless it is new."""

    def refuse_body(self) -> None:
        """Refuse the request whose body is arriving."""

    def unsent_bytes(self) -> int:
        """Return how much of a response waits for a slow reader."""

    def abort_response(self, reason: str) -> None:
        """End the connection at once."""


def native_response(error: LeadlineError, path: str) -> Response:
    """Return the response of Leadline's own API."""
    del path
    return error_response(error)


class ConnectionBounds:
    """The counters and limits that the connections of one listener share."""

    def __init__(
        self,
        settings: ServiceSettings,
        metrics: Metrics,
        response_to: Callable[[LeadlineError, str], Response] = native_response,
    ) -> None:
        """Limit connections.

        `response_to` makes the response to a request that is refused, of its error and its path.
        """
        self.settings = settings
        self.response_to = response_to
        # The other half is for logs, for the database, and for connections between services.
        self._most = min(settings.max_connections_total, open_files_limit() // 2)
        self._examined: set[Examined] = set()
        self._peers: Counts[str] = Counts()
        self._open = 0
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._log_rate = LogRate()
        self._refused = metrics.counter(
            "http_refused_connections",
            "Connections and requests ended by a limit of the listener, by the limit.",
            ("reason",),
        )
        metrics.gauge_from("http_connections", "Open connections.", lambda: self._open)
        metrics.gauge_from(
            "http_request_body_bytes",
            "Bytes of request bodies held now, without the first 16 KiB of each.",
            lambda: self._held_bytes,
        )

    @property
    def most_handshakes(self) -> int:
        """How many clients may be in their TLS handshake: as many as may connect all at once."""
        return max(_LEAST_HANDSHAKES, min(BACKLOG, self._most // 4))

    def admit(self, peer: str) -> bool:
        """Count a new connection, or refuse it: too many are open, or too many of this peer."""
        limits = self.settings
        if self._open >= self._most:
            return False
        if self._peers[peer] >= limits.max_connections_per_ip:
            return False
        self._open += 1
        self._peers[peer] += 1
        return True

    def release(self, peer: str) -> None:
        """Forget a connection that was admitted."""
        self._open -= 1
        self._peers[peer] -= 1
        if self._peers[peer] <= 0:
            del self._peers[peer]

    def hold(self, size: int) -> bool:
        """Take bytes of the budget for request bodies; False, and nothing taken, beyond it."""
        if self._held_bytes + size > self.settings.queued_max_request_bytes:
            return False
        self._held_bytes += size
        return True

    def free(self, size: int) -> None:
        """Return bytes to the budget."""
        self._held_bytes -= size

    def refused(self, reason: str, peer: str) -> None:
        """Count a refusal, and log it unless one of its kind was logged in the last seconds."""
        self._refused.labels(reason).inc()
        now_ms = asyncio.get_running_loop().time() * 1000
        more_before = self._log_rate.admit(reason, now_ms)
        if more_before is not None:
            logger.warning("connection refused", reason=reason, peer=peer, more_before=more_before)

    def watch(self, connection: Examined) -> None:
        """Examine a connection from now on."""
        self._examined.add(connection)
        if self._timer is None:
            self._schedule()

    def unwatch(self, connection: Examined) -> None:
        """Examine a connection no longer."""
        self._examined.discard(connection)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_EXAMINE_EVERY_S, self._examine)

    def _examine(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in list(self._examined):
            connection.examine(now)
        self._bound_slow_bodies(now)
        self._bound_responses()
        if self._examined:
            self._schedule()

    def _bound_slow_bodies(self, now: float) -> None:
        """Refuse the oldest bodies that still arrive, until they leave half of the budget.

        Bodies that arrive at the least rate would otherwise keep others out for as long as
        they like.
        """
        slow = [(*body, one) for one in self._examined if (body := one.slow_body(now))]
        total = sum(size for _, size, _ in slow)
        for _, size, connection in sorted(slow, key=lambda one: one[0]):
            if total <= self.settings.queued_max_request_bytes // 2:
                return
            connection.refuse_body()
            total -= size

    def _bound_responses(self) -> None:
        """Abort the largest responses that wait, until the others are within the budget."""
        waiting = [(size, one) for one in self._examined if (size := one.unsent_bytes())]
        total = sum(size for size, _ in waiting)
        for size, connection in sorted(waiting, key=lambda one: one[0], reverse=True):
            if total <= self.settings.queued_max_response_bytes:
                return
            connection.abort_response("response budget")
            total -= size

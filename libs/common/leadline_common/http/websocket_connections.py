"""The protocol of one WebSocket, within the bounds of its listener."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.public_tls import CLIENT_CERTIFICATE_KEY, client_name
from leadline_common.http.tls_transport import TlsFlowControl, is_unconfirmed
from leadline_common.settings.fields import ServiceSettings


class WriteProgress:
    """Finds a caller that reads what was written too slowly, from looks at what still waits."""

    def __init__(self) -> None:
        self._mark: tuple[float, int] | None = None

    def is_too_slow(self, now: float, waiting_bytes: int, limits: ServiceSettings) -> bool:
        """Take a look; `waiting_bytes` is 0 while the caller reads fast enough."""
        if not waiting_bytes or self._mark is None:
            self._mark = (now, waiting_bytes) if waiting_bytes else None
            return False
        since, before = self._mark
        if (now - since) * 1000 < limits.transfer_grace_ms:
            return False
        self._mark = (now, waiting_bytes)
        return before - waiting_bytes < (now - since) * limits.transfer_min_bytes_per_s


class BoundedWebSocket(TlsFlowControl, WebSocketsSansIOProtocol):
    """A WebSocket that still counts as a connection of its peer; it may stay idle."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bounds: ConnectionBounds | None = None
        self._release: Callable[[], None] | None = None
        self._peer = ""
        self._written = WriteProgress()

    def take_over(self, bounds: ConnectionBounds, peer: str, release: Callable[[], None]) -> None:
        """Go on in the place of a connection of HTTP; `release` gives the place back."""
        self._bounds, self._peer, self._release = bounds, peer, release
        bounds.watch(self)

    def handle_connect(self, event: Request) -> None:
        """Begin the application's part, with the name in the client's certificate."""
        super().handle_connect(event)
        name = client_name(self.transport)
        if name is not None and self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self.scope[CLIENT_CERTIFICATE_KEY] = name  # type: ignore[typeddict-unknown-key]  # an extension of ours

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the connection's place back."""
        super().connection_lost(exc)
        if self._bounds is not None and self._release is not None:
            self._bounds.unwatch(self)
            self._release()
            self._release = None

    def examine(self, now: float) -> None:
        """End the connection if its reader is too slow."""
        bounds = self._bounds
        grace_s = bounds.settings.transfer_grace_ms / 1000 if bounds else 0
        if is_unconfirmed(self.transport, now, grace_s):
            self.transport.abort()
        elif bounds and self._written.is_too_slow(now, self.unsent_bytes(), bounds.settings):
            self.abort_response("slow reader")

    def slow_body(self, now: float) -> tuple[float, int] | None:
        """Return None: the frames of a channel have limits of their own."""

    def unsent_bytes(self) -> int:
        """Return how much waits for a slow reader."""
        return 0 if self.writable.is_set() else self.transport.get_write_buffer_size()

    def abort_response(self, reason: str) -> None:
        """End the connection at once."""
        if self._bounds is not None:
            self._bounds.refused(reason, self._peer)
        self.transport.abort()

    def refuse_body(self) -> None:
        """Do nothing: there is no body."""

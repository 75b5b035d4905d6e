"""The transport of a TLS connection, with the buffer that the bounds of connections count on.

uvloop hands all that is encrypted to the TCP transport whenever that takes more, however much it
is. What then waits for a slow reader is in no buffer that a protocol can see. So this transport
keeps what is written until the one below asks for more, and gives it small pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

PIECE_BYTES: Final = 64 * 1024
"""The TCP transport waits beyond this, too."""


class TlsTransport(asyncio.Transport):
    """Keeps what waits, and knows whether the other end confirms the end of the connection.

    The protocol passes on `pause_writing` and `resume_writing` (`TlsFlowControl`).
    """

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        inner.set_write_buffer_limits(high=PIECE_BYTES)
        self._inner = inner
        self._waiting: deque[memoryview[int]] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self._ending = False
        self._unconfirmed_since: float | None = None

    def pause(self) -> None:
        """Keep what is written from now on."""
        self._paused = True

    def resume(self) -> bool:
        """Send what waits; return whether nothing does any more."""
        self._paused = False
        while self._waiting and not self._paused:
            piece = self._waiting.popleft()
            self._waiting_bytes -= len(piece)
            self._send(piece)
        if self._ending and not self._waiting:
            self._inner.close()
        return not self._waiting

    def is_unconfirmed(self, now: float, longest_s: float) -> bool:
        """Tell whether the other end has left the end of the connection unconfirmed for too long.

        A closed connection stays until the other end has confirmed that. `now` is the loop's time;
        the period begins once everything is written.
        """
        if not self.is_closing() or self.get_write_buffer_size():
            self._unconfirmed_since = None
            return False
        if self._unconfirmed_since is None:
            self._unconfirmed_since = now
        return now - self._unconfirmed_since > longest_s

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send data, now or when the other end has read more."""
        if self.is_closing():
            return
        if self._paused:
            self._keep(memoryview(data))
        elif len(data) <= PIECE_BYTES:
            self._inner.write(data)
        else:
            self._send(memoryview(data))

    def _send(self, data: memoryview[int]) -> None:
        """Give data to the transport below until it asks to wait, and keep the rest."""
        for first in range(0, len(data), PIECE_BYTES):
            if self._paused:
                self._keep(data[first:], at_once=True)
                return
            self._inner.write(data[first : first + PIECE_BYTES])

    def _keep(self, data: memoryview[int], *, at_once: bool = False) -> None:
        (self._waiting.appendleft if at_once else self._waiting.append)(data)
        self._waiting_bytes += len(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Send several pieces of data."""
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        """Return False: TLS ends both directions, which `close` does."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._inner.get_write_buffer_size() + self._waiting_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._inner.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Tell whether the connection was closed."""
        return self._ending or self._inner.is_closing()

    def close(self) -> None:
        """Send what waits, then end the connection once the other end confirms."""
        self._ending = True
        if not self._waiting:
            self._inner.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._inner.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass what arrives to another protocol from now on."""
        self._inner.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        return self._inner.get_protocol()

    def is_reading(self) -> bool:
        """Tell whether data is being received."""
        return self._inner.is_reading()

    def pause_reading(self) -> None:
        """Receive nothing for now."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._inner.resume_reading()


class TlsFlowControl(asyncio.BaseProtocol):
    """What a protocol has in addition whose transport may be a `TlsTransport`."""

    transport: asyncio.Transport

    def pause_writing(self) -> None:
        """Wait with responses until the other end has read more."""
        if isinstance(self.transport, TlsTransport):
            self.transport.pause()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Write on, unless what waits already is enough."""
        if not isinstance(self.transport, TlsTransport) or self.transport.resume():
            super().resume_writing()


def is_unconfirmed(transport: asyncio.BaseTransport, now: float, longest_s: float) -> bool:
    """Tell whether a transport of TLS `is_unconfirmed`; that of plain TCP never is."""
    return isinstance(transport, TlsTransport) and transport.is_unconfirmed(now, longest_s)

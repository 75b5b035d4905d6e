"""Responses of `http.client` whose reading has a limit, however slowly they come."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Final, cast

from leadline_client.transport import TOO_SLOW

_Responses = Callable[..., HTTPResponse]
_BUFFER_BYTES: Final = 1 << 16


class Limit:
    """Waits of at most `timeout_s`, none of them beyond `give_up_s` of the monotonic clock."""

    __slots__ = ("_give_up_s", "_timeout_s")

    def __init__(self, timeout_s: float, give_up_s: float) -> None:
        self._timeout_s = timeout_s
        self._give_up_s = give_up_s

    def apply(self, sock: socket.socket) -> None:
        """Let the next wait of a socket keep the limit; raises TimeoutError if it is over."""
        left_s = self._give_up_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(TOO_SLOW)
        sock.settimeout(min(self._timeout_s, left_s))


def limit_responses(connection: HTTPConnection, limit: Limit) -> None:
    """Let the responses that a connection reads from now on keep a limit."""
    made: _Responses = partial(_TimedResponse, limit)
    connection.response_class = cast("type[HTTPResponse]", made)  # It is only ever called.


class _TimedResponse(HTTPResponse):
    """A response; its head, which the library reads line by line, counts too."""

    def __init__(self, limit: Limit, sock: socket.socket, method: str | None = None) -> None:
        super().__init__(sock, method=method)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_TimedReads(raw, sock, limit), _BUFFER_BYTES)


class _TimedReads(io.RawIOBase):
    """The bytes of a socket: each read is one wait."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, limit: Limit) -> None:
        self._raw = raw
        self._sock = sock
        self._limit = limit

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there, or wait for it."""
        self._limit.apply(self._sock)
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            self._limit.apply(self._sock)  # It says so if the wait was cut short.
            raise

    def close(self) -> None:
        """Give the socket back."""
        self._raw.close()
        super().close()

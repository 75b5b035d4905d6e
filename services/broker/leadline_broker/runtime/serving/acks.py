"""Produces that wait until their records are committed: token to future."""

from __future__ import annotations

import asyncio
from itertools import count

from leadline_client.errors import LeadlineError


class PendingAcks:
    """Whoever waits for a token's acknowledgement. Owned by the event loop."""

    def __init__(self) -> None:
        self._tokens = count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self) -> tuple[int, asyncio.Future[None]]:
        """Return a new token, and the future that its acknowledgement resolves."""
        token = next(self._tokens)
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        return token, future

    def acknowledge(self, token: int) -> None:
        """Resolve the token; one that was closed is ignored."""
        future = self._waiting.pop(token, None)
        if future is not None and not future.done():
            future.set_result(None)

    def fail(self, token: int, error: LeadlineError) -> None:
        """Let the waiting produce fail."""
        future = self._waiting.pop(token, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def close(self, token: int) -> None:
        """Forget a token: nobody waits any more."""
        self._waiting.pop(token, None)

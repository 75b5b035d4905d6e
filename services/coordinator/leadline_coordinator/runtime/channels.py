"""The sending end of consumers' channels: what a group says is queued here, and sent elsewhere.

A consumer that reads too slowly never holds up the others: its queue grows, and past
its bound the channel is ended, as if it had been lost.
"""

from __future__ import annotations

import asyncio
from typing import Final

from leadline_client.channel import FromCoordinator, encode

_MOST_QUEUED: Final = 256


class Channel:
    """One connection. `outgoing` yields messages to send, then None: the end."""

    __slots__ = ("_ended", "group", "number", "outgoing")

    def __init__(self, group: str, number: int) -> None:
        self.group = group
        self.number = number
        self.outgoing: asyncio.Queue[str | None] = asyncio.Queue()
        self._ended = False

    def send(self, frame: FromCoordinator) -> None:
        """Queue a frame."""
        if self._ended:
            return
        if self.outgoing.qsize() >= _MOST_QUEUED:
            self.end()
        else:
            self.outgoing.put_nowait(encode(frame))

    def end(self) -> None:
        """Have the connection closed once everything queued is sent."""
        if not self._ended:
            self._ended = True
            self.outgoing.put_nowait(None)

"""What one peer may ask of a coordinator before and after it is a member: channels and frames."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from leadline_client.errors import InvalidRequest, TooManyChannels


@dataclass(slots=True)
class ChannelCount:
    """The open channels of a process, with those that have not sent a Hello yet."""

    most: int
    most_per_address: int
    total: int = 0
    _by_address: Counter[str] = field(default_factory=Counter)

    def open(self, address: str) -> None:
        """Count a channel from an address; `close` it later.

        Raises:
            TooManyChannels: there are as many as allowed, in total or from this address.

        """
        if self.total >= self.most:
            raise TooManyChannels(f"this coordinator has {self.total} channels already")
        if self._by_address[address] >= self.most_per_address:
            count = self._by_address[address]
            raise TooManyChannels(f"there are {count} channels from {address} already")
        self.total += 1
        self._by_address[address] += 1

    def open_polled(self) -> None:
        """Count the session of a consumer that polls through a broker; `close_polled` it later.

        Raises:
            TooManyChannels: there are as many as allowed in total.

        """
        if self.total >= self.most:
            raise TooManyChannels(f"this coordinator has {self.total} channels already")
        self.total += 1

    def close_polled(self) -> None:
        """Count a session no longer."""
        self.total -= 1

    def close(self, address: str) -> None:
        """Count a channel no longer."""
        self.total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


@dataclass(slots=True)
class FrameRate:
    """The frames of one channel: `most` at once, and as many in each second."""

    most: int
    refilled_at_ms: int
    _left: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin with all that may come at once."""
        self._left = self.most

    def on_frame(self, now_ms: int) -> None:
        """Count a frame that has arrived at `now_ms`.

        Raises:
            InvalidRequest: it is one too many.

        """
        gained = self.most * (now_ms - self.refilled_at_ms) / 1000
        self._left = min(self.most, self._left + gained) - 1
        self.refilled_at_ms = now_ms
        if self._left < 0:
            raise InvalidRequest(f"frames: a channel carries at most {self.most} in a second")

"""Axes: the position of a time or a number in a chart, and the ticks with labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS = (
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 30, 90, 365)),
)
_MOST_TICKS = 9


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Maps Unix ms from `since` to `until` onto x from `left` to `right`."""

    since: int
    until: int
    left: float
    right: float

    def __call__(self, at: float) -> float:
        """Return the x of a time, within the chart."""
        part = (at - self.since) / max(1, self.until - self.since)
        return self.left + min(1.0, max(0.0, part)) * (self.right - self.left)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield x and label of round times in UTC; the first of each day has the date."""
        length = max(1, self.until - self.since)
        step = next((s for s in _STEPS_MS if length / s <= _MOST_TICKS), _STEPS_MS[-1])
        at = -(-self.since // step) * step
        day = ""
        while at <= self.until:
            time = datetime.fromtimestamp(at / 1_000, UTC)
            date = time.strftime("%d %b").lstrip("0")
            if step >= _DAY:
                label = date
            else:
                label = time.strftime("%H:%M:%S" if step < _MINUTE else "%H:%M")
                label = label if date == day else f"{label} {date}"
            day = date
            yield self(at), label
            at += step


def nice_step(most: float) -> float:
    """Return the distance between ticks for counts up to `most`: 1, 2 or 5 times a power of 10."""
    rough = max(most, 1) / 4
    power: float = 10 ** math.floor(math.log10(rough))
    return max(1.0, next(power * n for n in (1, 2, 5, 10) if power * n >= rough))


@dataclass(frozen=True, slots=True)
class LinearScale:
    """Maps counts from 0 to `most`, rounded up to a multiple of `step`, onto `bottom` to `top`."""

    most: float
    step: float
    bottom: float
    top: float

    def __call__(self, value: float) -> float:
        """Return the position of a number."""
        return self.bottom + (self.top - self.bottom) * value / self.end

    @property
    def end(self) -> float:
        """The number at the far end, a multiple of the step."""
        return max(1, math.ceil(self.most / self.step)) * self.step

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield position and label of round numbers."""
        for number in range(round(self.end / self.step) + 1):
            value = number * self.step
            yield self(value), f"{value:,.0f}".replace(",", "\u2009")

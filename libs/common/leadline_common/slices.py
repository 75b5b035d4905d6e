"""Long work on an event loop in slices, between which the loop serves everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, TypeVar

T = TypeVar("T")

SLICE: Final = 500
"""How many items of about 20 µs each take 10 ms, which nobody who waits meanwhile notices."""
TURN_MS: Final = 10
"""How long one turn of work may take whose items differ, as those that may wait for a disk."""


async def in_turns(items: Iterable[T], pause_s: float = 0) -> AsyncIterator[T]:
    """Yield the items, and let the loop run for `pause_s` before each but the first.

    Whatever the caller knows about the rest of the world may have changed with each item.
    """
    for number, item in enumerate(items):
        if number:
            await asyncio.sleep(pause_s)
        yield item


def slices(items: Iterable[T], size: int = SLICE) -> AsyncIterator[list[T]]:
    """Yield the items in parts of at most `size`, one part in each turn.

    They are taken from `items` when it is their turn.
    """
    return in_turns(batched(items, size))


async def timed_turns(
    items: Iterable[T], now_ms: Callable[[], int], size: int = SLICE
) -> AsyncIterator[Iterator[T]]:
    """Yield the items in parts that take about `TURN_MS`, of at most `size`, one in each turn.

    A part ends when the time is over by the clock `now_ms`. What is left of it comes in the next.
    """
    left = iter(items)
    async for first in in_turns(left):
        yield _until(now_ms() + TURN_MS, now_ms, chain((first,), islice(left, size - 1)))


def _until(end_ms: int, now_ms: Callable[[], int], items: Iterator[T]) -> Iterator[T]:
    for item in items:
        yield item
        if now_ms() >= end_ms:
            return


def in_order(items: Iterable[T], place: Callable[[T], tuple[str, int]]) -> Iterator[T]:
    """Yield the items that there are at the first step, by `place`: a topic and a partition.

    They are grouped at once, but each topic is sorted when it is reached, so that no step is long.
    """
    by_topic: dict[str, list[T]] = {}
    for item in items:
        by_topic.setdefault(place(item)[0], []).append(item)
    for topic in sorted(by_topic):
        yield from sorted(by_topic[topic], key=place)


def batched(items: Iterable[T], size: int = SLICE) -> Iterator[list[T]]:
    """Yield the items in parts of at most `size`."""
    left = iter(items)
    return iter(lambda: list(islice(left, size)), [])


def parts(items: Iterable[T], weight: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield the items in parts that weigh at most `most`, or consist of one item."""
    part: list[T] = []
    weighs = 0
    for item in items:
        added = weight(item)
        if part and weighs + added > most:
            yield part
            part, weighs = [], 0
        part.append(item)
        weighs += added
    if part:
        yield part

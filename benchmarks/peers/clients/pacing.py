"""Parts that asynchronous drivers share: a pace, and several clients at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Protocol

from peers.clients.work import Stopwatch, Work


class Acknowledgement(Awaitable[Any], Protocol):
    """The future of a record that was sent, whichever client has made it."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Have a function called once the record is acknowledged."""
        ...


Send = Callable[[int], Awaitable[Acknowledgement]]
"""Sends the record of a number, and returns the future of its acknowledgement."""
SendOne = Callable[[], Awaitable[None]]
"""Sends one record, and returns once it is acknowledged."""


async def paced(work: Work, watch: Stopwatch, send: Send) -> None:
    """Send records when they are due, acknowledged or not, so that a slow answer delays no other.

    A latency counts from the due time on: if a record is sent late, the wait is in it.
    """
    watch.start()
    begun = time.perf_counter()
    sent = []

    def acknowledged(due: float, _: object) -> None:
        watch.latencies_s.append(time.perf_counter() - due)

    for number in range(work.records):
        due = begun + number / work.per_second
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        future = await send(number)
        future.add_done_callback(partial(acknowledged, due))
        sent.append(future)
    await asyncio.gather(*sent)
    watch.stop(work.records, work.records * work.value_bytes)


async def each_in_turn(work: Work, watch: Stopwatch, sends: Iterable[Send]) -> None:
    """Have all clients send their share, each waiting for one record before it sends the next."""
    clients = list(sends)
    for number, send in enumerate(clients):  # Connections, metadata and producer ids.
        await (await send(number))

    async def run(first: int, send: Send) -> None:
        for number in range(first, work.records, len(clients)):
            await (await send(number))

    watch.start()
    await asyncio.gather(*(run(number, send) for number, send in enumerate(clients)))
    watch.stop(work.records, work.records * work.value_bytes)

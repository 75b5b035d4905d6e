"""A group whose members are tasks of this process: when it has settled after each change."""

from __future__ import annotations

import asyncio
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from peers.clients.work import Stopwatch, Work

SETTLED_WITHIN_S = 300.0
CALM_POLLS = 3


class Member(ABC):
    """One member, and the partitions that it may read at the moment."""

    def __init__(self, group: Group) -> None:
        self.owned: frozenset[tuple[str, int]] = frozenset()
        self.polls = 0
        self._group = group
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def consume(self) -> None:
        """Join and poll until cancelled."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group."""

    def owns(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Take note of the partitions that the member may read from now on."""
        self.owned = frozenset(partitions)
        self._group.changed.set()

    def polled(self) -> None:
        """Take note that a poll has returned."""
        self.polls += 1
        self._group.changed.set()

    def start(self) -> None:
        """Join and poll in the background."""
        self._task = asyncio.create_task(self.consume())
        self._task.add_done_callback(lambda _: self._group.changed.set())

    async def stop(self) -> None:
        """Stop polling, and leave."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.leave()
        self.owned = frozenset()

    def check(self) -> None:
        """Raise what ended the polling, if anything did."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()


class Group:
    """All members of one group of a topic."""

    def __init__(self, work: Work, new_member: Callable[[], Member]) -> None:
        self.name = f"{work.topic}-group"
        self.changed = asyncio.Event()
        self._work = work
        self._new_member = new_member
        self._members: list[Member] = []

    async def live(self, watch: Stopwatch) -> None:
        """Have all join, one more join, and one leave; note the seconds until each has settled."""
        watch.start()
        try:
            watch.times_s["all join"] = await self._after(self._work.clients, self._join_all)
            watch.times_s["one joins"] = await self._after(self._work.clients + 1, self._join)
            watch.times_s["one leaves"] = await self._after(self._work.clients, self._leave)
        finally:
            watch.stop(0, 0)
            await asyncio.gather(*(one.stop() for one in self._members), return_exceptions=True)

    async def _join_all(self) -> None:
        for _ in range(self._work.clients):
            await self._join()

    async def _join(self) -> None:
        member = self._new_member()
        self._members.append(member)
        member.start()

    async def _leave(self) -> None:
        await self._members.pop(0).stop()

    async def _after(self, count: int, change: Callable[[], Awaitable[None]]) -> float:
        begun = time.perf_counter()
        await change()
        await self._until(
            lambda: is_settled([one.owned for one in self._members], count, self._work.partitions)
        )
        took_s = time.perf_counter() - begun
        # Before the next change, everybody has looked up where to read, and waits for records.
        polls = {one: one.polls + CALM_POLLS for one in self._members}
        await self._until(lambda: all(one.polls >= least for one, least in polls.items()))
        return took_s

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SETTLED_WITHIN_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()
                for member in self._members:
                    member.check()


def is_settled(owned: list[frozenset[tuple[str, int]]], members: int, partitions: int) -> bool:
    """Tell whether each member has its share, and each partition one owner."""
    held = list(itertools.chain.from_iterable(owned))
    sizes = {len(one) for one in owned}
    return (
        len(owned) == members
        and len(held) == len(set(held)) == partitions
        and max(sizes) - min(sizes) <= 1
    )

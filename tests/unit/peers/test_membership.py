"""A group of members that share partitions by themselves: what of its life is timed."""

from __future__ import annotations

import asyncio

import pytest

from peers.clients.membership import Group, Member
from peers.clients.work import Stopwatch, Work


class Sharing(Member):
    """A member that has its share as soon as anything changes, and polls without end."""

    everyone: list[Sharing]

    def __init__(self, group: Group, everyone: list[Sharing]) -> None:
        super().__init__(group)
        self.everyone = everyone

    async def consume(self) -> None:
        self.everyone.append(self)
        self._share()
        while True:
            await asyncio.sleep(0)
            self.polled()

    async def leave(self) -> None:
        self.everyone.remove(self)
        self._share()

    def _share(self) -> None:
        for number, member in enumerate(self.everyone):
            member.owns(("t", one) for one in range(number, 6, len(self.everyone)))


class Failing(Sharing):
    """A member whose poll fails."""

    async def consume(self) -> None:
        raise ConnectionError("no coordinator")


async def test_the_group_settles_grows_and_shrinks() -> None:
    everyone: list[Sharing] = []
    group = Group(Work("t", 6, 0, 0, clients=2), lambda: Sharing(group, everyone))
    watch = Stopwatch()

    await group.live(watch)

    assert list(watch.times_s) == ["all join", "one joins", "one leaves"]
    assert all(seconds >= 0 for seconds in watch.times_s.values())
    assert everyone == []


async def test_what_ends_a_member_s_polling_ends_the_measurement() -> None:
    group = Group(Work("t", 6, 0, 0, clients=2), lambda: Failing(group, []))

    with pytest.raises(ConnectionError, match="no coordinator"):
        await group.live(Stopwatch())

"""Ctrl-C, or a signal's handler that raises, in a poll: what nobody has got comes again."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from leadline_client import sync_consumer
from leadline_client.channel import Stopped
from leadline_client.clock import monotonic_s
from leadline_client.consumer_settings import Notice
from leadline_client.event_loop_thread import EventLoopThread
from leadline_client.sync_consumer import Consumer
from tests.unit.client.standin import StandInCluster
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_group_consumer import NO_WAIT, A, B, started

T = TypeVar("T")


class Interrupted(Exception):
    """What a signal's handler raises."""


class AfterTheResult(EventLoopThread):
    """Interrupts its caller, when told to, once there is a result and before it is returned."""

    interrupts = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        result = super().run(work)
        self._interrupt()
        return result

    def _interrupt(self) -> None:
        if self.interrupts:
            self.interrupts = False
            raise Interrupted


class WhileItWaits(AfterTheResult):
    """Interrupts its caller while it waits for a result that has just come."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return EventLoopThread.run(self, work)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        started = super().start(work)
        if self.interrupts:
            started.result(10)
            self._interrupt()
        return started


@pytest.mark.parametrize("kind", [AfterTheResult, WhileItWaits])
def test_records_that_an_interrupted_poll_has_taken_come_again(
    cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch, kind: type[AfterTheResult]
) -> None:
    """They counted as delivered: the next poll, or the close, committed them."""
    monkeypatch.setattr(sync_consumer, "EventLoopThread", kind)
    for partition in (0, 1):
        fill(cluster, partition, range(5))
    with Consumer(cluster.bootstrap, limits=NO_WAIT) as consumer:
        assert isinstance(consumer._thread, kind)
        consumer.assign([A, B])
        seen = [(one.partition, one.offset) for one in consumer.poll(10, max_records=2)]
        consumer._thread.interrupts = True
        with pytest.raises(Interrupted):
            consumer.poll(10)
        before = [consumer.position(one) for one in (A, B)]
        assert sum(before) == len(seen)
        while len(seen) < 10:
            seen += [(one.partition, one.offset) for one in consumer.poll(10)]
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(5)]


async def test_a_notice_that_an_interrupted_poll_has_taken_is_told_by_the_next(
    cluster: StandInCluster,
) -> None:
    async with started(cluster, {A: 0, B: 0}) as (member, channel, _):
        for kind, partitions in (("assigned", (A, B)), ("revoked", (A,))):
            notice = await member.consumer.poll_step(monotonic_s() + 10)
            assert notice == Notice(kind, partitions)  # type: ignore[arg-type]  # one of its kinds
            member.consumer.give_back(notice)
            await member.consumer.poll(0)
            assert member.heard[-1] == (kind, partitions)
            if kind == "assigned":
                await channel.stop(A)
        assert (await channel.expect(Stopped)).partitions == (("t", (0,)),)
        assert member.consumer.assignment == (B,)


async def test_records_of_a_partition_that_was_lost_meanwhile_do_not_come_again(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(3))
    async with started(cluster, {A: 0}) as (member, channel, _):
        taken = await member.records(3)
        await channel.stop(A)
        await channel.ping(acknowledged=1)
        await member.consumer.poll(0)
        await channel.start({})
        member.consumer.give_back(taken)
        assert await member.consumer.poll(0) == []

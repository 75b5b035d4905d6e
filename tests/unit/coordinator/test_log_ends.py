"""Commits beyond the end of a log: decided by what leaders report, asked only when needed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import pytest

from leadline_client.errors import LeaderNotAvailable, OffsetOutOfRange
from leadline_client.wire import TopicPartition
from leadline_common.clock import SystemClock
from leadline_common.cluster_time import ClusterTime
from leadline_common.identity import ServiceAddress, ServiceIdentity
from leadline_common.leader_election import LeadershipTerm
from leadline_common.settings import CoordinatorSettings
from leadline_coordinator.domain.log_ends import LogPoint, is_within, later
from leadline_coordinator.runtime.context import CoordinatorContext, CoordinatorMetrics
from leadline_coordinator.runtime.log_ends import LogEnds
from leadline_coordinator.runtime.ports import BrokerClient, CoordinatorStore

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


LEADER = ServiceAddress(ServiceIdentity("broker", 1), "http://leader")


class Leaders:
    """Leaders that report ends, and the store that names them."""

    def __init__(self) -> None:
        self.ends = {P: (10, 3), Q: (20, 3)}
        self.asked: list[set[TopicPartition]] = []
        self.reached = asyncio.Event()
        self.answering = asyncio.Event()
        self.answering.set()

    async def brokers(self) -> list[ServiceAddress]:
        return [LEADER]

    async def log_ends(
        self, brokers: Sequence[ServiceAddress], partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        assert brokers == [LEADER]
        self.asked.append(set(partitions))
        self.reached.set()
        await self.answering.wait()
        return {one: self.ends[one] for one in partitions if one in self.ends}


def log_ends_of(leaders: Leaders, timeout_ms: int = 10_000) -> LogEnds:
    context = CoordinatorContext(
        store=cast("CoordinatorStore", leaders),
        brokers=cast("BrokerClient", leaders),
        term=LeadershipTerm(1, 1),
        settings=CoordinatorSettings(coordinator_id=1, offsets_commit_timeout_ms=timeout_ms),
        clock=SystemClock(),
        time=ClusterTime(SystemClock()),
        metrics=CoordinatorMetrics(),
        new_id=str,
    )
    return LogEnds(context)


def at(offset: int, epoch: int = -1, topic_id: str = "id") -> LogPoint:
    return LogPoint(topic_id, offset, epoch)


def test_a_point_is_within_what_a_leader_has_reported_of_this_topic() -> None:
    end = at(10, 3)
    assert is_within(at(10, 3), end)
    assert is_within(at(0), None)
    for beyond in (at(11), at(10, 4), at(5, topic_id="recreated"), at(1 << 63)):
        assert not is_within(beyond, end)
    assert not is_within(at(1), None)
    assert not is_within(at(0, 0), None)


def test_an_end_never_falls_for_a_topic_and_counts_for_no_other() -> None:
    assert later(at(10, 3), at(4, 5)) == at(10, 5)
    assert later(at(10, 3), at(4, 1, "next")) == at(4, 1, "next")


async def test_a_commit_to_the_known_end_asks_nobody() -> None:
    leaders = Leaders()
    ends = log_ends_of(leaders)
    assert await ends.refusals({P: at(10, 3)}) == {}
    leaders.ends = {}

    assert await ends.refusals({P: at(10, 3)}) == {}
    assert await ends.refusals({P: at(4, 1)}) == {}

    assert leaders.asked == [{P}]


async def test_beyond_the_end_the_leader_is_asked_again_and_its_answer_counts() -> None:
    leaders = Leaders()
    ends = log_ends_of(leaders)

    refusals = await ends.refusals({P: at(2**63 - 1), Q: at(20)})
    assert list(refusals) == [P]
    assert type(refusals[P]) is OffsetOutOfRange
    assert "ends at 10" in refusals[P].message
    assert "epoch 3" in (await ends.refusals({P: at(5, 2**31 - 1)}))[P].message

    leaders.ends[P] = (12, 3)
    assert await ends.refusals({P: at(12)}) == {}


async def test_nobody_waits_for_leaders_after_the_end_of_the_term() -> None:
    """Nor those whose question had to wait for others."""
    leaders = Leaders()
    leaders.answering.clear()
    ends = log_ends_of(leaders, timeout_ms=60_000)
    partitions = [TopicPartition("t", number) for number in range(6)]
    waiting = [asyncio.create_task(ends.refusals({one: at(5)})) for one in partitions]
    await leaders.reached.wait()

    await ends.close()

    async with asyncio.timeout(5):
        answers = await asyncio.gather(*waiting, ends.refusals({P: at(5)}))
    refusals = [refusal for answer in answers for refusal in answer.values()]
    assert [type(one) for one in refusals] == [LeaderNotAvailable] * 7


async def test_after_a_truncation_what_was_read_before_is_still_committed() -> None:
    leaders = Leaders()
    ends = log_ends_of(leaders)
    assert await ends.refusals({P: at(10)}) == {}
    leaders.ends[P] = (4, 4)

    assert await ends.refusals({P: at(9)}) == {}
    assert list(await ends.refusals({P: at(11)})) == [P]


async def test_while_the_leader_is_gone_a_commit_waits_and_is_refused_as_retriable() -> None:
    leaders = Leaders()
    ends = log_ends_of(leaders, timeout_ms=1)
    del leaders.ends[P]

    refusals = await ends.refusals({P: at(1), Q: at(20)})

    assert list(refusals) == [P]
    assert isinstance(refusals[P], LeaderNotAvailable)
    assert refusals[P].retriable


async def test_commits_that_arrive_together_are_asked_about_together() -> None:
    leaders = Leaders()
    ends = log_ends_of(leaders)
    leaders.answering.clear()
    waiting: list[asyncio.Task[Any]] = []
    for number in range(50):
        commit = ends.refusals({P: at(number % 10 + 1), Q: at(number % 20 + 1)})
        waiting.append(asyncio.create_task(commit))
    await asyncio.sleep(0)
    leaders.answering.set()

    async with asyncio.timeout(10):
        assert await asyncio.gather(*waiting) == [{}] * 50
    assert len(leaders.asked) <= 5


async def test_a_forgotten_topic_is_asked_about_again() -> None:
    leaders = Leaders()
    ends = log_ends_of(leaders)
    await ends.refusals({P: at(10)})
    ends.forget("t")
    leaders.ends[P] = (1, 0)

    assert list(await ends.refusals({P: at(10)})) == [P]


async def test_who_waits_when_the_term_ends_is_told_within_the_timeout() -> None:
    leaders = Leaders()
    ends = log_ends_of(leaders, timeout_ms=500)
    leaders.answering.clear()
    waiting = asyncio.create_task(ends.refusals({P: at(10)}))
    await leaders.reached.wait()

    await ends.close()

    async with asyncio.timeout(10):
        assert isinstance((await waiting)[P], LeaderNotAvailable)


@pytest.mark.parametrize("epoch", [-1, 0, 3])
async def test_offset_zero_is_in_every_log(epoch: int) -> None:
    assert await log_ends_of(Leaders()).refusals({P: at(0, epoch)}) == {}

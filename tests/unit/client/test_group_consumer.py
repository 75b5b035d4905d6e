"""A consumer in a group, with a coordinator that the test controls: its notices and commits."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from leadline_client import websocket
from leadline_client.channel import Error, Pong, Started, Stopped, group_partitions
from leadline_client.client import AsyncClient
from leadline_client.clock import monotonic_s
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import (
    ConsumerSettings,
    Notice,
    OffsetReset,
    RebalanceListener,
)
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    FencedInstance,
    LogTruncated,
    OffsetOutOfRange,
    PartitionNotOwned,
    StaleGeneration,
    TopicIdMismatch,
    Unauthorized,
    UnknownMember,
    Unreachable,
)
from leadline_client.fetching import ConsumedRecord
from leadline_client.group_session import _open_channel
from leadline_client.reading import ReadLimits
from leadline_client.retry import RetryPolicy
from leadline_client.security import Authenticator, Security
from leadline_client.wire import TopicPartition
from tests.unit.broker.log_support import no_descriptors
from tests.unit.client.standin import Partition, StandInCluster
from tests.unit.client.standin_coordinator import Conversation, StandInCoordinator
from tests.unit.client.test_consumer import fill, numbers

NO_WAIT = ReadLimits(wait_ms=0)
A, B, C = (TopicPartition("t", number) for number in range(3))
SETTINGS = ConsumerSettings(auto_commit_ms=3_600_000)


def at(offset: int) -> dict[str, Any]:
    """Return the row of a commit for the first partition, whose records are all of epoch 0."""
    return {"topic": "t", "partition": 0, "offset": offset, "leader_epoch": 0}


class Member:
    """A consumer under test: the calls of its listener, and a clock that can jump."""

    def __init__(
        self,
        cluster: StandInCluster,
        coordinator: StandInCoordinator,
        settings: ConsumerSettings,
        options: Mapping[str, Any] = {},
    ) -> None:
        self.heard = coordinator.events
        self.fails: set[str] = set()
        self.skew_s = 0.0
        self.client = AsyncClient(cluster.bootstrap, transport=coordinator)
        self.consumer = AsyncConsumer(
            self.client,
            "g",
            settings=settings,
            limits=NO_WAIT,
            clock=lambda: monotonic_s() + self.skew_s,
            listener=RebalanceListener(
                lambda gone: self._hear("assigned", gone),
                lambda gone: self._hear("revoked", gone),
                lambda gone: self._hear("lost", gone),
            ),
            **options,
        )

    def _hear(self, kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        self.heard.append((kind, partitions))
        if kind in self.fails:
            raise ZeroDivisionError

    async def records(self, count: int = 1) -> list[ConsumedRecord]:
        """Poll until so many came."""
        found: list[ConsumedRecord] = []
        give_up = time.monotonic() + 10
        while len(found) < count:
            # Not a timeout, whose cancellation may be lost in Python 3.11's `wait_for`.
            assert time.monotonic() < give_up, f"{len(found)} of {count} records came"
            found += await self.consumer.poll()
        return found


@asynccontextmanager
async def joining(
    cluster: StandInCluster,
    settings: ConsumerSettings = SETTINGS,
    options: Mapping[str, Any] = {},
) -> AsyncIterator[tuple[Member, Conversation, StandInCoordinator]]:
    """Run a consumer that has subscribed to `t`, as far as its first channel."""
    async with StandInCoordinator().running() as coordinator:
        member = Member(cluster, coordinator, settings, options)
        await member.consumer.subscribe(["t"])
        try:
            yield member, await coordinator.channel(), coordinator
        finally:
            await member.consumer.aclose()
            await member.client.aclose()


@asynccontextmanager
async def started(
    cluster: StandInCluster,
    assignment: dict[TopicPartition, int | None],
    settings: ConsumerSettings = SETTINGS,
    *,
    topic_id: str | None = None,
    stop_limit_ms: int = 60_000,
    options: Mapping[str, Any] = {},
) -> AsyncIterator[tuple[Member, Conversation, StandInCoordinator]]:
    """Run a consumer that was started with `assignment`; `options` are those of AsyncConsumer."""
    async with joining(cluster, settings, options) as (member, channel, coordinator):
        await channel.welcome(stop_limit_ms=stop_limit_ms)
        await channel.start(assignment, topic_id=topic_id)
        await channel.expect(Started)
        yield member, channel, coordinator


async def evicted_and_back(
    channel: Conversation, coordinator: StandInCoordinator, assignment: dict[TopicPartition, int]
) -> None:
    """Evict a member, and start it as a new one."""
    await channel.send(Error.of(UnknownMember("evicted")))
    again = await coordinator.channel()
    await again.welcome("n")
    await again.start(dict(assignment))
    await again.expect(Started)


async def test_a_token_that_was_replaced_ends_the_channel_and_loses_nothing(
    cluster: StandInCluster,
) -> None:
    async with started(cluster, {A: 3}) as (member, channel, coordinator):
        await channel.send(Error.of(Unauthorized("revoked")))
        again = await coordinator.channel()
        hello = await again.welcome()
        assert (hello.member, hello.owned) == ("m", group_partitions([A]))
        assert ("lost", (A,)) not in member.heard


async def test_a_token_without_a_successor_ends_the_consumer(cluster: StandInCluster) -> None:
    async with started(cluster, {A: 3}) as (member, channel, coordinator):
        coordinator.handshakes.append((401, ""))
        await channel.send(Error.of(Unauthorized("revoked")))
        with pytest.raises(Unauthorized):
            await member.records()


@pytest.mark.parametrize(("stated", "waited"), [("7", 7.0), ("900", 30.0), ("soon", 0.0)])
async def test_a_member_over_its_quota_waits_before_it_connects_again(
    cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch, stated: str, waited: float
) -> None:
    pauses: list[float] = []

    def hear(_: RetryPolicy, failures: int, random: float, asked_s: float = 0.0) -> float:
        assert failures >= 0 <= random
        pauses.append(asked_s)
        return 0.0

    monkeypatch.setattr(RetryPolicy, "pause_s", hear)
    async with StandInCoordinator().running() as coordinator:
        coordinator.handshakes.append((429, stated))
        member = Member(cluster, coordinator, SETTINGS)
        await member.consumer.subscribe(["t"])
        await (await coordinator.channel()).welcome()
        assert pauses == [waited]
        await member.consumer.aclose()
        await member.client.aclose()


async def test_it_begins_at_the_offsets_of_the_start_after_a_notice(
    cluster: StandInCluster,
) -> None:
    for partition in (0, 1):
        fill(cluster, partition, range(10))
    async with started(cluster, {A: 7, B: None}) as (member, _, _):
        found = await member.records(13)
        assert member.heard == [("assigned", (A, B))]
        assert member.consumer.assignment == (A, B)
    assert numbers([one.record for one in found if one.partition == 0]) == [7, 8, 9]
    assert numbers([one.record for one in found if one.partition == 1]) == list(range(10))


async def test_a_stop_waits_for_the_application_commits_what_it_had_and_tells_it(
    cluster: StandInCluster,
) -> None:
    for partition in (0, 1):
        fill(cluster, partition, range(10))
    async with started(cluster, {A: 0, B: 0}) as (member, channel, coordinator):
        await member.records(20)
        await channel.stop(A)
        await channel.ping(acknowledged=1)
        await channel.expect(Pong)
        assert coordinator.commits == [], "the application has not come back yet"
        assert await member.consumer.poll(0) == []
        stopped = await channel.expect(Stopped)
        assert stopped.partitions == (("t", (0,)),)
        assert member.heard[1:] == [{A: 10, B: 10}, ("revoked", (A,))]
        assert coordinator.commits[0]["member"] == "m"
        assert coordinator.commits[0]["generation"] == 2
        assert member.consumer.assignment == (B,)


async def test_an_application_that_stays_away_loses_what_is_asked_for_and_nothing_is_committed(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0, C: 0}) as (member, channel, coordinator):
        await member.records(10)
        await channel.stop(A)
        await channel.ping(acknowledged=1)
        await channel.expect(Pong)
        member.skew_s = 55.0  # later than an answer can wait, and within the lease
        await channel.ping(acknowledged=1)
        assert (await channel.expect(Stopped)).partitions == (("t", (0,)),)
        assert coordinator.commits == []
        await member.consumer.poll(0)
        assert member.heard[1:] == [("lost", (A,))]
        assert member.consumer.assignment == (C,)


async def test_a_repeated_stop_causes_one_notice_and_is_answered_each_time(
    cluster: StandInCluster,
) -> None:
    async with started(cluster, {A: 0}) as (member, channel, _):
        await member.consumer.poll(0)
        stops = [await channel.stop(A), await channel.stop(A)]
        await channel.ping(acknowledged=1)
        await channel.expect(Pong)
        await member.consumer.poll(0)
        assert [(await channel.expect(Stopped)).id for _ in stops] == stops
        assert member.heard == [("assigned", (A,)), ("revoked", (A,))]


async def test_a_partition_lost_and_assigned_again_during_its_revocation_stays(
    cluster: StandInCluster,
) -> None:
    """The listener takes its time; the coordinator has not waited."""
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, _):
        assert await member.consumer.poll(0) == []
        await channel.stop(A)
        notice = await member.consumer.poll_step(monotonic_s() + 10)
        assert isinstance(notice, Notice)
        member.skew_s = 55.0
        await channel.ping(acknowledged=1)
        await channel.expect(Stopped)
        await channel.expect(Pong)
        begun = await channel.start({A: 4})
        await channel.expect(Started)
        await channel.ping(acknowledged=begun)
        member.consumer.notice_handled(notice)
        assert numbers([one.record for one in await member.records(6)]) == list(range(4, 10))
        assert member.consumer.assignment == (A,)


async def test_what_a_stop_asked_for_stays_when_a_successor_starts_it_again(
    cluster: StandInCluster,
) -> None:
    """The application has not polled yet: it gets no notice, and continues."""
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, coordinator):
        await member.records(10)
        await channel.stop(A)
        await channel.ping(acknowledged=1)
        await channel.expect(Pong)
        await succeed(channel, coordinator, {A: 0})
        fill(cluster, 0, range(10, 20))
        found = await member.records(10)
        assert numbers([one.record for one in found]) == list(range(10, 20))
        assert member.heard == [("assigned", (A,))]
        assert member.consumer.assignment == (A,)


async def test_a_partition_that_a_new_coordinator_starts_during_its_revocation_is_assigned_again(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, coordinator):
        await member.records(10)
        await channel.stop(A)
        notice = await member.consumer.poll_step(monotonic_s() + 10)
        assert isinstance(notice, Notice)
        await succeed(channel, coordinator, {A: 0})
        member.consumer.notice_handled(notice)
        fill(cluster, 0, range(10, 20))
        found = await member.records(10)
        assert numbers([one.record for one in found]) == list(range(10, 20))
        assert member.heard == [("assigned", (A,)), {A: 10}, ("assigned", (A,))]
        assert member.consumer.assignment == (A,)


async def succeed(
    channel: Conversation,
    coordinator: StandInCoordinator,
    assignment: dict[TopicPartition, int | None],
) -> None:
    """End a channel; the next coordinator sends the member a new Start."""
    await channel.close()
    again = await coordinator.channel()
    again.epoch = 2
    await again.welcome()
    await again.start(assignment)
    await again.expect(Started)


async def test_a_listener_that_fails_does_not_delay_the_group(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, _):
        await member.records(10)
        member.fails.add("revoked")
        await channel.stop(A)
        await channel.ping(acknowledged=1)
        await channel.expect(Pong)
        with pytest.raises(ZeroDivisionError):
            await member.consumer.poll(0)
        await channel.expect(Stopped)
        assert member.consumer.assignment == ()


async def test_a_listener_that_fails_at_the_close_does_not_keep_the_consumer_a_member(
    cluster: StandInCluster,
) -> None:
    async with started(cluster, {A: 0}) as (member, _, coordinator):
        await member.consumer.poll(0)
        member.fails.add("revoked")
        with pytest.raises(ZeroDivisionError):
            await member.consumer.aclose()
        assert coordinator.events[-1] == "leave"


async def test_a_partition_the_application_does_not_know_is_revoked_without_a_notice(
    cluster: StandInCluster,
) -> None:
    async with started(cluster, {A: 0}) as (member, channel, _):
        await channel.stop(A)
        await channel.expect(Stopped)
        await member.consumer.poll(0)
        assert member.heard == []


async def test_a_lease_that_ran_out_stops_at_once_and_its_claims_go_on_with_the_next_start(
    cluster: StandInCluster,
) -> None:
    """The process was frozen: its clock has jumped, and its buffers are full."""
    fill(cluster, 0, range(20))
    settings = ConsumerSettings(auto_commit_ms=3_600_000, max_poll_records=5)
    async with started(cluster, {A: 0}, settings) as (member, channel, coordinator):
        await member.records(5)
        member.skew_s = 61.0
        assert await member.consumer.poll(0) == []
        await channel.ping(acknowledged=1)
        again = await coordinator.channel()
        hello = await again.welcome()
        assert hello.owned == (("t", (0,)),)
        assert await member.consumer.poll(0) == []
        await again.start({A: 3})
        await again.expect(Started)
        found = await member.records(5)
        assert numbers([one.record for one in found]) == [5, 6, 7, 8, 9], "a claim keeps its place"
        assert [kind for kind in member.heard if isinstance(kind, tuple)] == [("assigned", (A,))]


async def test_a_lease_that_was_not_acknowledged_goes_on_when_it_is(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, _):
        await channel.ping(acknowledged=1)
        await channel.expect(Pong)
        member.skew_s = 59.0
        await channel.ping(acknowledged=1)
        await channel.expect(Pong)
        member.skew_s = 61.0
        assert await member.consumer.poll(0) == []
        await channel.ping(acknowledged=3)
        assert len(await member.records(10)) == 10


async def test_a_refused_claim_is_lost_and_begins_again_at_the_offset_of_the_start(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, coordinator):
        await member.records(10)
        await channel.close()
        again = await coordinator.channel()
        again.epoch, again.generation = 2, 9
        await again.welcome("other")
        await again.start({A: 4})
        await again.expect(Started)
        found = await member.records(6)
        assert member.heard == [("assigned", (A,)), ("lost", (A,)), ("assigned", (A,))]
        assert numbers([one.record for one in found]) == list(range(4, 10))


async def test_the_first_position_is_committed_without_any_record(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    settings = ConsumerSettings(offset_reset="latest", auto_commit_ms=3_600_000)
    async with started(cluster, {A: None}, settings) as (member, channel, coordinator):
        await member.consumer.poll(0)
        assert await member.consumer.position(A) == 10
        await channel.stop(A)
        await channel.ping(acknowledged=1)
        await channel.expect(Pong)
        await member.consumer.poll(0)
        assert coordinator.commits[0]["offsets"] == [at(10)]


async def test_iteration_counts_records_one_by_one(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, _, coordinator):
        async for one in member.consumer:
            if one.record.offset == 3:
                break
        await member.consumer.aclose()
        assert member.heard == [("assigned", (A,)), {A: 4}, ("revoked", (A,)), "leave"]
        assert len(coordinator.commits) == 1


async def test_what_was_given_last_does_not_count_when_an_exception_ends_it(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, _, coordinator):
        await member.consumer.poll(5, max_records=3)
        await member.consumer.poll(5, max_records=3)
        with pytest.raises(ZeroDivisionError):
            async with member.consumer:
                raise ZeroDivisionError
        assert coordinator.commits[-1]["offsets"] == [at(3)]
        assert member.heard[-1] == "leave"


async def test_auto_commit_continues_while_the_application_works(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}, ConsumerSettings(auto_commit_ms=20)) as (member, _, coord):
        await member.consumer.poll(5, max_records=4)
        await member.consumer.poll(5, max_records=4)
        await coord.committed.wait()
        assert coord.commits[0]["offsets"] == [at(4)]
        await asyncio.sleep(0.1)
        assert len(coord.commits) == 1, "nothing new is consumed, so nothing is written"


async def test_a_commit_waits_for_the_end_of_a_rebalance(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, coordinator):
        await member.records(10)
        coordinator.refusals.append(StaleGeneration("another one"))
        channel.generation = 5
        committing = asyncio.create_task(member.consumer.commit())
        await channel.start({A: 0})
        await committing
        assert coordinator.commits[0]["generation"] == 5
        assert coordinator.commits[0]["offsets"][0]["offset"] == 10


async def test_without_a_committed_offset_error_means_error_until_a_seek(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    settings = ConsumerSettings(offset_reset="error", auto_commit_ms=None)
    async with started(cluster, {A: None}, settings) as (member, _, _):
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange, match="no committed offset"):
                await member.consumer.poll(5)
        await member.consumer.seek(A, 6)
        assert numbers([one.record for one in await member.records(4)]) == [6, 7, 8, 9]


async def test_an_offset_that_is_out_of_range_is_reset_as_the_settings_say(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 77}) as (member, _, _):
        assert numbers([one.record for one in await member.records(10)]) == list(range(10))


async def test_what_was_consumed_of_another_log_is_not_committed_for_the_present_one(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    settings = ConsumerSettings(offset_reset="latest", auto_commit_ms=3_600_000)
    async with started(cluster, {A: 0}, settings) as (member, _, coordinator):
        await member.records(10)
        cluster.partitions[0] = Partition(leader=1, epoch=1)
        fill(cluster, 0, range(3))
        assert numbers([one.record for one in await member.records(3)]) == [0, 1, 2]
        await member.consumer.aclose(consumed=False)
        assert coordinator.commits == []


@pytest.mark.parametrize("reset", ["earliest", "latest"])
async def test_defect_02_with_a_reset_policy_a_truncated_log_is_read_from_its_divergence(
    cluster: StandInCluster, reset: OffsetReset
) -> None:
    fill(cluster, 0, range(20))
    settings = ConsumerSettings(offset_reset=reset, auto_commit_ms=3_600_000)
    async with started(cluster, {A: 0}, settings) as (member, channel, coordinator):
        await member.records(20)
        cluster.truncate(0, 10)
        fill(cluster, 0, range(100, 130))
        found = await member.records(30)
        assert numbers(one.record for one in found) == list(range(100, 130))
        await member.consumer.commit({A: 15})
        await channel.stop(A)
        await channel.ping(acknowledged=1)
        await channel.expect(Pong)
        await member.consumer.poll(0)
        await channel.expect(Stopped)
        assert [one["offsets"] for one in coordinator.commits] == [
            [{**at(15), "leader_epoch": 1}],
            [{**at(40), "leader_epoch": 1}],
        ]


@pytest.mark.parametrize("reset", [None, "error"])
async def test_defect_02_without_a_reset_policy_a_truncation_is_raised_until_a_seek(
    cluster: StandInCluster, reset: OffsetReset | None
) -> None:
    fill(cluster, 0, range(20))
    settings = ConsumerSettings(offset_reset=reset, auto_commit_ms=3_600_000)
    async with started(cluster, {A: 0}, settings) as (member, _, _):
        await member.records(20)
        cluster.truncate(0, 10)
        fill(cluster, 0, range(100, 130))
        for _ in range(2):
            with pytest.raises(LogTruncated, match="t-0 was truncated below 20"):
                await member.records()
        await member.consumer.seek(A, 12)
        assert numbers(one.record for one in await member.records(28)) == list(range(102, 130))


async def test_defect_02_a_committed_position_is_validated_by_its_leader_epoch(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    cluster.truncate(0, 10)
    fill(cluster, 0, range(10, 20))
    async with joining(cluster) as (member, channel, _):
        await channel.welcome()
        await channel.start({A: 20}, leader_epoch=0)
        with pytest.raises(LogTruncated) as raised:
            await member.records()
    error = raised.value
    assert (error.position, error.divergence_offset, error.divergence_epoch) == (20, 10, None)


async def test_defect_04_an_offset_of_an_earlier_topic_of_the_same_name_is_not_used(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 7}, topic_id="of the topic before") as (member, _, coordinator):
        assert numbers([one.record for one in await member.records(10)]) == list(range(10))
        await member.consumer.commit()
        assert coordinator.commits[-1]["topic_ids"] == {"t": cluster.topic_id}


async def test_defect_04_offsets_of_a_deleted_topic_are_not_committed_with_the_id_of_the_new_one(
    cluster: StandInCluster,
) -> None:
    """One partition has records of the deleted topic to deliver; another has the new topic's."""
    fill(cluster, 0, range(20))
    async with started(cluster, {A: 0, B: None}, topic_id="id-1") as (member, _, coordinator):
        await member.records(10)
        cluster.topic_id = "id-2"
        fill(cluster, 1, range(30, 40))
        member.consumer.pause([A])
        await member.records(10)
        await member.consumer.commit()
    by_id = {
        (one["topic_ids"]["t"], row["partition"]): row["offset"]
        for one in coordinator.commits
        for row in one["offsets"]
    }
    assert by_id == {("id-1", 0): 10, ("id-2", 1): 10}


async def test_a_commit_that_waits_is_not_for_a_topic_that_is_created_meanwhile(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}, topic_id="id-1") as (member, _, coordinator):
        await member.records(10)
        coordinator.refusals.extend(StaleGeneration("another one") for _ in range(1000))
        committing = asyncio.create_task(member.consumer.commit({A: 10}, timeout_s=60.0))
        async with asyncio.timeout(10):
            await coordinator.refused.wait()
        cluster.topic_id = "id-2"
        fill(cluster, 0, range(10, 20))
        await member.records(10)
        coordinator.refusals.clear()
        with pytest.raises(PartitionNotOwned):
            await committing
        assert coordinator.commits == []


async def test_a_commit_that_waits_stays_with_its_topic_when_the_application_seeks_in_the_next_one(
    cluster: StandInCluster,
) -> None:
    """Without a reset policy it is the application that begins to read the new topic."""
    fill(cluster, 0, range(10))
    settings = replace(SETTINGS, offset_reset="error")
    async with started(cluster, {A: 0}, settings, topic_id="id-1") as (member, _, coordinator):
        await member.records(10)
        coordinator.refusals.extend(StaleGeneration("another one") for _ in range(1000))
        committing = asyncio.create_task(member.consumer.commit({A: 10}, timeout_s=60.0))
        async with asyncio.timeout(10):
            await coordinator.refused.wait()
        cluster.topic_id = "id-2"
        with pytest.raises(TopicIdMismatch):
            await member.records(1)
        await member.consumer.seek(A, 0)
        await member.records(1)
        coordinator.refusals.clear()
        await committing
        assert [body["topic_ids"] for body in coordinator.commits] == [{"t": "id-1"}]


async def test_defect_05_each_commit_of_a_member_has_a_higher_number(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, _, coordinator):
        await member.records(10)
        await member.consumer.commit()
        await member.consumer.seek(A, 3)
        await member.consumer.commit()
        await member.consumer.commit({A: 5})
        rows = [(body["sequence"], body["offsets"][0]["offset"]) for body in coordinator.commits]
        assert [offset for _, offset in rows] == [10, 3, 5]
        assert sorted({number for number, _ in rows}) == [number for number, _ in rows]


async def test_what_was_consumed_before_a_loss_is_not_committed_after_the_next_assignment(
    cluster: StandInCluster,
) -> None:
    """In between another member may have committed more; the coordinator would accept this."""
    fill(cluster, 0, range(20))
    async with started(cluster, {A: 0}) as (member, channel, coordinator):
        await member.records(10)
        await evicted_and_back(channel, coordinator, {A: 15})
        with pytest.raises(PartitionNotOwned):
            await member.consumer.commit({A: 10})
        assert coordinator.commits == []
        await member.records(5)
        await member.consumer.commit()
        assert [body["offsets"][0]["offset"] for body in coordinator.commits] == [20]


async def test_a_loss_of_one_partition_does_not_keep_others_from_being_committed(
    cluster: StandInCluster,
) -> None:
    for partition in (0, 1):
        fill(cluster, partition, range(20))
    async with started(cluster, {A: 0, B: 0}) as (member, channel, coordinator):
        await member.records(40)
        await channel.start({B: 0})
        await channel.start({A: 5, B: 0})
        for _ in range(2):
            await channel.expect(Started)
        with pytest.raises(PartitionNotOwned, match="t-0"):
            await member.consumer.commit()
        (rows,) = [body["offsets"] for body in coordinator.commits]
        assert [(row["partition"], row["offset"]) for row in rows] == [(1, 20)]


async def test_a_commit_that_waits_does_not_go_on_under_another_ownership(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(20))
    async with started(cluster, {A: 0}) as (member, channel, coordinator):
        await member.records(10)
        coordinator.refusals.append(StaleGeneration("another one"))
        committing = asyncio.create_task(member.consumer.commit())
        async with asyncio.timeout(10):
            await coordinator.refused.wait()
        await evicted_and_back(channel, coordinator, {A: 15})
        with pytest.raises((PartitionNotOwned, StaleGeneration)):
            await committing
        assert coordinator.commits == []


async def test_a_consumer_that_closes_after_its_lease_has_lost_its_partitions(
    cluster: StandInCluster,
) -> None:
    """The coordinator may have assigned them to others, so it is too late to revoke them."""
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, _, coordinator):
        await member.records(10)
        member.skew_s = 61.0
        await member.consumer.aclose()
        heard = [kind for kind in coordinator.events if isinstance(kind, tuple)]
        assert heard == [("assigned", (A,)), ("lost", (A,))]


async def test_a_commit_that_waits_for_the_next_start_does_not_keep_a_stop_waiting(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}, stop_limit_ms=30_000) as (member, channel, coordinator):
        await member.records(10)
        coordinator.refusals.extend(StaleGeneration("another one") for _ in range(1_000))
        committing = asyncio.create_task(member.consumer.commit())
        async with asyncio.timeout(10):
            await coordinator.refused.wait()
        await channel.stop(A)
        polling = asyncio.create_task(member.consumer.poll(20))
        async with asyncio.timeout(10):
            await channel.expect(Stopped)
        coordinator.refusals.clear()
        for task in (committing, polling):
            task.cancel()
        await asyncio.gather(committing, polling, return_exceptions=True)


async def test_paused_partitions_keep_their_positions(cluster: StandInCluster) -> None:
    for partition in (0, 1):
        fill(cluster, partition, range(10))
    async with started(cluster, {A: 0, B: 0}) as (member, _, _):
        await member.consumer.poll(0)
        member.consumer.pause([A])
        found = await member.records(10)
        assert {one.partition for one in found} == {1}
        member.consumer.resume([A])
        assert numbers([one.record for one in await member.records(10)]) == list(range(10))


async def test_a_fenced_member_gets_the_error_and_commits_nothing_more(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, coordinator):
        await member.records(10)
        await channel.send(Error.of(FencedInstance("another one has joined")))
        with pytest.raises(FencedInstance):
            await member.consumer.poll(10)
        assert member.heard[-1] == ("lost", (A,))
        with pytest.raises(UnknownMember):
            await member.consumer.commit({A: 10})
        assert coordinator.commits == []


async def test_an_evicted_member_rejoins_as_a_new_member(cluster: StandInCluster) -> None:
    async with started(cluster, {A: 0}) as (_, channel, coordinator):
        await channel.send(Error.of(UnknownMember("evicted")))
        again = await coordinator.channel()
        hello = await again.welcome("n")
        assert (hello.member, hello.owned) == (None, ())


async def test_when_the_channel_ends_the_consumer_finds_the_coordinator_again(
    cluster: StandInCluster,
) -> None:
    async with (
        StandInCoordinator().running() as successor,
        started(cluster, {A: 0}) as (_, channel, coordinator),
    ):
        coordinator.url, coordinator.epoch = successor.url, 2
        await channel.close()
        again = await successor.channel()
        assert (await again.welcome()).member == "m"


async def test_a_coordinator_that_does_not_answer_is_left_for_the_active_one(
    cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is frozen takes connections still: the kernel does it."""
    monkeypatch.setattr(websocket, "_OPEN_TIMEOUT_S", 3_600)
    async with StandInCoordinator().running() as coordinator:
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            frozen.setblocking(False)
            successor = coordinator.url
            coordinator.url = f"http://127.0.0.1:{frozen.getsockname()[1]}"
            member = Member(cluster, coordinator, SETTINGS)
            await member.consumer.subscribe(["t"])
            async with asyncio.timeout(10):
                silent, _ = await asyncio.get_running_loop().sock_accept(frozen)
            with silent:
                coordinator.url, coordinator.epoch = successor, 2
                channel = await coordinator.channel()
                assert (await channel.welcome()).topics == ("t",)
        await member.consumer.aclose()
        await member.client.aclose()


async def test_a_cluster_without_reachable_brokers_is_an_error(cluster: StandInCluster) -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        consumer = AsyncConsumer(client, "g")
        await consumer.subscribe(["t"])
        with pytest.raises(AllKnownBrokersNotAvailable):
            await consumer.poll(20)
        await consumer.aclose()


async def test_a_channel_without_a_free_descriptor_is_opened_by_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer's first poll ended it: the WebSocket library is imported then, from files."""
    with monkeypatch.context() as not_imported:
        not_imported.delitem(sys.modules, websocket.__name__)
        with no_descriptors(), pytest.raises(Unreachable, match="Too many open files") as failed:
            await _open_channel("http://127.0.0.1:1", "g", Authenticator(Security()))
    assert failed.value.retriable, "it does not end the membership"

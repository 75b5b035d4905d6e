"""A stream's planner against a fake cluster: ends of micro-batches, and numbers of requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from leadline_client.wire import BrokerInfo, Metadata, PartitionInfo, TopicInfo, TopicPartition
from leadline_spark.cluster.cluster_client import (
    ClusterClient,
    Connection,
    LeaderAndEpoch,
    LeaderOffsets,
)
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.bounds import Bound
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot
from leadline_spark.read.offset_poller import OffsetPoller
from leadline_spark.read.offsets import EARLIEST, LATEST, OffsetAndEpoch, SourceOffset
from leadline_spark.read.stream_planning import StreamPlanner, StreamSettings
from leadline_spark.read.subscription import SourceSubscription


def topic_partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


@dataclass
class Time:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class World(ClusterClient):
    """A cluster of one topic; `ends` are high watermarks, `requests` counts what it was asked."""

    def __init__(self, ends: dict[int, int]) -> None:
        super().__init__(Connection(("http://b1",)))
        self.time = Time()
        self.ends = ends
        self.starts: dict[int, int] = {}
        self.leaderless: set[int] = set()
        self.epoch = 0
        self.topic_id = "id"
        self.requests = 0
        self.down = False
        self.up_at: float | None = None
        self.behind: dict[int, int] | None = None

    def metadata(self, topics: Iterable[str] | None = None) -> Metadata:
        assert topics == ("t",)
        self._ask()
        version, there = (2, self.ends) if self.behind is None else (1, self.behind)
        rows = tuple(PartitionInfo(number, 1, self.epoch, (1,), (1,)) for number in there)
        topics = {"t": TopicInfo("t", self.topic_id, rows)} if there else {}
        return Metadata("c", version, None, {1: BrokerInfo(1, "http://b1", None, 1)}, topics)

    def offsets(self, question: Mapping[str, Any], wait_s: float = 0.0) -> Any:
        self._ask()
        after = {int(n): o for n, o in question.get("after", {}).get("t", {}).items()}
        if after and all(self.ends[n] <= end for n, end in after.items()):
            self.time.sleep(wait_s)
        return {
            topic_partition(n): LeaderOffsets(
                self.starts.get(n, 0), end, LeaderAndEpoch("http://b1", self.epoch)
            )
            for n, end in self.ends.items()
            if {"topic": "t", "partition": n} in question["partitions"] and n not in self.leaderless
        }

    def _ask(self) -> None:
        self.requests += 1
        self.time.sleep(0.002)
        if self.up_at is not None and self.time.now >= self.up_at:
            self.down, self.up_at = False, None
        if self.down:
            raise LeadlineSparkError("LEADLINE_CLUSTER_UNREACHABLE", "down")


class FixedOffsets(OffsetFetcher):
    """An OffsetFetcher with fixed epoch ends and partition sizes."""

    def __init__(self, world: World) -> None:
        super().__init__(
            world, SourceSubscription(topics=("t",)), 10.0, world.time, world.time.sleep
        )
        self.epoch_ends: dict[int, int] = {}
        self.stored: dict[TopicPartition, int] = {}
        self.newest: int | None = None

    def end_of_epoch(self, topic_partition: TopicPartition, epoch: int, leader: str | None) -> int:
        assert (topic_partition.topic, leader) == ("t", "http://b1")
        return self.epoch_ends.get(epoch, 1_000)

    def by_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(times, self.newest)

    def sizes(self, snapshot: OffsetSnapshot) -> dict[TopicPartition, int]:
        return {
            topic_partition: self.stored[topic_partition] for topic_partition in snapshot.offsets
        }


def planner(world: World, everywhere: int = EARLIEST, **settings: Any) -> StreamPlanner:
    fetcher = FixedOffsets(world)
    made = StreamPlanner(
        fetcher, StreamSettings(Bound("startingOffsets", everywhere), **settings), world.time
    )
    made.poller = OffsetPoller(fetcher, world.time, world.time.sleep)
    return made


def world(**ends: int) -> World:
    return World({int(name[1:]): end for name, end in ends.items()})


def offsets(found: SourceOffset) -> dict[int, int]:
    return {one.partition: at.offset for one, at in found.positions.items()}


def test_planning_a_thousand_partitions_takes_two_requests() -> None:
    cluster = world(**{f"p{n}": n for n in range(1_000)})
    stream = planner(cluster)

    start = stream.initial()
    ranges = stream.ranges(start, stream.poller.snapshot().at(stream.poller.snapshot().latest()))

    assert cluster.requests == 2
    assert sum(one.size for one in ranges) == sum(range(1_000))


def test_planning_waits_for_brokers_that_are_away_for_a_moment() -> None:
    cluster = world(p0=5)
    fetcher = planner(cluster).fetcher
    cluster.down = True
    cluster.up_at = cluster.time.now + 3

    assert fetcher.offsets([topic_partition(0)])[topic_partition(0)].end == 5
    cluster.down = True
    with pytest.raises(LeadlineSparkError, match="LEADLINE_CLUSTER_UNREACHABLE"):
        fetcher.offsets([topic_partition(0)])


def test_latest_is_resolved_once_and_the_first_batch_is_empty() -> None:
    cluster = world(p0=20)
    stream = planner(cluster, LATEST)

    start = stream.initial()
    cluster.ends[0] = 30
    assert stream.initial() == start
    assert stream.latest(start) == start
    cluster.ends[0] = 40
    assert offsets(stream.latest(start)) == {0: 40}
    assert stream.initial() == start


def test_a_first_batch_that_crashed_is_empty_again_and_nothing_after_it_is_skipped() -> None:
    cluster = world(p0=20)
    before = planner(cluster, LATEST).initial()
    cluster.ends[0] = 30
    stream = planner(cluster, LATEST)

    again = stream.initial()
    assert offsets(again) == {0: 30}
    assert [one.size for one in stream.ranges(again, before)] == [0]
    assert offsets(stream.latest(before)) == {0: 30}
    [rest] = stream.ranges(before, stream.latest(before))
    assert (rest.start, rest.end) == (20, 30)


def test_a_range_that_goes_back_later_is_a_loss() -> None:
    cluster = world(p0=20)
    stream = planner(cluster)
    stream.initial()
    stood = SourceOffset({topic_partition(0): OffsetAndEpoch(15, 0)}, {"t": "id"})

    with pytest.raises(LeadlineSparkError, match="LEADLINE_DATA_LOSS"):
        stream.ranges(stood, SourceOffset({topic_partition(0): OffsetAndEpoch(9, 0)}, {"t": "id"}))


def test_an_idle_stream_asks_less_than_twice_a_second() -> None:
    cluster = world(p0=5, p1=5)
    stream = planner(cluster)
    start = stream.latest(stream.initial())
    before, began = cluster.requests, cluster.time.now

    asked = 0
    while cluster.time.now < began + 60:
        assert stream.latest(start) == start
        stream.report()
        cluster.time.sleep(0.01)
        asked += 1

    # One long poll of a second after the other, and the metadata every five.
    assert cluster.requests - before <= 1.3 * 60
    assert asked > 30


def test_an_idle_stream_hears_of_news_at_once() -> None:
    cluster = world(p0=5)
    stream = planner(cluster)
    start = stream.latest(stream.initial())
    stream.latest(start)

    cluster.ends[0] = 6
    began = cluster.time.now
    end = stream.latest(start)

    assert offsets(end) == {0: 6}
    assert cluster.time.now - began < 1.0


def test_few_offsets_are_held_back_until_there_are_enough_or_the_delay_is_over() -> None:
    cluster = world(p0=5)
    stream = planner(cluster, min_offsets=10, delay_ms=30_000)
    first = stream.latest(stream.initial())
    cluster.ends[0] = 9
    before, began = cluster.requests, cluster.time.now

    while (end := stream.latest(first)) == first:
        assert cluster.time.now < began + 60
    waited = cluster.time.now - began

    assert offsets(end) == {0: 9}
    assert 29.0 <= waited <= 31.0
    assert cluster.requests - before <= 2 * waited
    cluster.ends[0] = 19
    assert offsets(stream.latest(end)) == {0: 19}


def test_limits_are_shared_and_a_run_without_limits_takes_all() -> None:
    cluster = world(p0=90, p1=60)
    stream = planner(cluster, max_offsets=60)
    start = stream.initial()

    assert offsets(stream.latest(start)) == {0: 36, 1: 24}
    assert offsets(stream.latest(start, limited=False)) == {0: 90, 1: 60}


def test_bytes_limit_a_batch_by_the_mean_size_of_records() -> None:
    cluster = world(p0=100, p1=100)
    stream = planner(cluster, max_bytes=1_000)
    fetcher = stream.fetcher
    assert isinstance(fetcher, FixedOffsets)
    fetcher.stored = {topic_partition(0): 1_000, topic_partition(1): 9_000}

    assert offsets(stream.latest(stream.initial())) == {0: 10, 1: 10}


def test_a_run_that_ends_reads_what_was_there_when_it_began_with_its_limits() -> None:
    cluster = world(p0=25)
    stream = planner(cluster, max_offsets=10)
    stream.prepare()
    cluster.ends[0] = 99
    found, end = [], stream.initial()
    while (later := stream.latest(end)) != end:
        end = later
        found.append(offsets(end)[0])

    assert found == [10, 20, 25]


def test_a_run_that_ends_waits_for_what_a_new_leader_does_not_show_yet() -> None:
    cluster = world(p0=25)
    stream = planner(cluster)
    stream.prepare()
    start = stream.initial()
    cluster.ends[0], cluster.epoch = 10, 1
    end = stream.latest(start)
    assert offsets(end) == {0: 10}

    with pytest.raises(LeadlineSparkError, match="did not come back"):
        stream.latest(end)
    cluster.ends[0] = 26
    assert offsets(stream.latest(end)) == {0: 25}


def test_a_run_that_ends_does_not_wait_for_a_topic_that_was_recreated() -> None:
    cluster = world(p0=25)
    stream = planner(cluster, max_offsets=10, fail_on_data_loss=False)
    stream.prepare()
    end = stream.latest(stream.initial())
    cluster.topic_id, cluster.ends[0] = "another", 7
    cluster.time.sleep(6)

    end = stream.latest(end)
    assert (offsets(end), end.ids) == ({0: 7}, {"t": "another"})
    assert stream.latest(end) == end


@pytest.mark.parametrize("read", [15, 25])
@pytest.mark.parametrize("fail", [True, False])
def test_a_run_that_ends_does_not_wait_for_what_an_election_cut_off(read: int, fail: bool) -> None:
    cluster = world(p0=25)
    stream = planner(cluster, max_offsets=read, fail_on_data_loss=fail)
    stream.prepare()
    end = stream.latest(stream.initial())
    assert offsets(end) == {0: read}
    fetcher = stream.fetcher
    assert isinstance(fetcher, FixedOffsets)
    cluster.epoch, cluster.ends[0], fetcher.epoch_ends[0] = 1, 20, 20

    if fail:
        with pytest.raises(LeadlineSparkError, match="LEADLINE_DATA_LOSS"):
            stream.latest(stream.latest(end))
        return
    end = stream.latest(end)
    assert offsets(end) == {0: 20}
    assert stream.latest(end) == end


def test_partitions_that_are_added_start_at_their_beginning() -> None:
    cluster = world(p0=5)
    stream = planner(cluster, LATEST)
    start = stream.initial()
    stream.latest(start)
    cluster.ends[1] = 3
    cluster.time.sleep(6)

    end = stream.latest(start)

    assert offsets(end) == {0: 5, 1: 3}
    assert {(one.topic_partition, one.start, one.end) for one in stream.ranges(start, end)} == {
        (topic_partition(0), 5, 5),
        (topic_partition(1), 0, 3),
    }


def test_an_added_partition_without_a_leader_holds_up_no_other_one() -> None:
    cluster = world(p0=5)
    stream = planner(cluster)
    before = stream.latest(stream.initial())
    cluster.ends |= {0: 9, 1: 3, 2: 4}
    cluster.leaderless = {1}
    cluster.time.sleep(6)
    asked_at = cluster.time.now

    end = stream.latest(before)

    assert offsets(end) == {0: 9, 2: 4}
    assert cluster.time.now - asked_at < 2
    cluster.leaderless.clear()
    cluster.time.sleep(6)
    assert offsets(stream.latest(end)) == {0: 9, 1: 3, 2: 4}


def test_an_added_partition_without_a_leader_until_the_deadline_is_an_error() -> None:
    """As in Kafka's source: its records must not be left out for ever without a word."""
    cluster = world(p0=5)
    stream = planner(cluster)
    at = stream.latest(stream.initial())
    cluster.ends[1] = 3
    cluster.leaderless = {1}
    cluster.time.sleep(6)
    noticed_at = cluster.time.now
    while cluster.time.now < noticed_at + 10:
        assert stream.latest(at) == at
    cluster.time.sleep(6)
    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_LEADER_UNREACHABLE.* t-1:"):
        stream.latest(at)


@pytest.mark.parametrize("fail", [True, False])
def test_what_retention_took_is_a_loss(fail: bool) -> None:
    cluster = world(p0=50)
    cluster.starts[0] = 30
    stream = planner(cluster, fail_on_data_loss=fail)
    stood = SourceOffset({topic_partition(0): OffsetAndEpoch(10, 0)}, {"t": "id"})

    if fail:
        with pytest.raises(LeadlineSparkError, match="offsets 10 to 29 were deleted"):
            stream.latest(stood)
    else:
        [left] = stream.ranges(stood, stream.latest(stood))
        assert (left.start, left.end) == (30, 50)


@pytest.mark.parametrize("fail", [True, False])
def test_what_an_election_cut_off_is_a_loss_though_offsets_went_on(fail: bool) -> None:
    cluster = world(p0=50)
    cluster.epoch = 2
    stream = planner(cluster, fail_on_data_loss=fail)
    fetcher = stream.fetcher
    assert isinstance(fetcher, FixedOffsets)
    fetcher.epoch_ends[1] = 35
    stood = SourceOffset({topic_partition(0): OffsetAndEpoch(40, 1)}, {"t": "id"})

    if fail:
        with pytest.raises(LeadlineSparkError, match="an election in epoch 2 cut off"):
            stream.latest(stood)
    else:
        [left] = stream.ranges(stood, stream.latest(stood))
        assert (left.start, left.end) == (35, 50)
    fetcher.epoch_ends[1] = 40


def test_an_election_that_cut_nothing_off_is_none() -> None:
    cluster = world(p0=50)
    cluster.epoch = 2
    stream = planner(cluster)
    fetcher = stream.fetcher
    assert isinstance(fetcher, FixedOffsets)
    fetcher.epoch_ends[1] = 40

    assert offsets(
        stream.latest(SourceOffset({topic_partition(0): OffsetAndEpoch(40, 1)}, {"t": "id"}))
    ) == {0: 50}


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_recreated_is_a_loss(fail: bool) -> None:
    cluster = world(p0=50)
    stream = planner(cluster, fail_on_data_loss=fail)
    stood = SourceOffset({topic_partition(0): OffsetAndEpoch(40, 0)}, {"t": "an older one"})

    if fail:
        with pytest.raises(LeadlineSparkError, match="LEADLINE_TOPIC_RECREATED"):
            stream.latest(stood)
    else:
        end = stream.latest(stood)
        assert end.ids == {"t": "id"}
        [left] = stream.ranges(stood, end)
        assert (left.start, left.end) == (0, 50)


def test_a_partition_that_is_gone_is_a_loss() -> None:
    cluster = world(p0=50)
    stood = SourceOffset(
        {topic_partition(0): OffsetAndEpoch(40, 0), topic_partition(7): OffsetAndEpoch(1, 0)},
        {"t": "id"},
    )

    with pytest.raises(LeadlineSparkError, match="t-7 was to be read on, but is gone"):
        planner(cluster).latest(stood)
    assert offsets(planner(cluster, fail_on_data_loss=False).latest(stood)) == {0: 50}


def test_a_cluster_that_is_away_for_a_moment_ends_no_stream() -> None:
    cluster = world(p0=5)
    stream = planner(cluster)
    end = stream.latest(stream.initial())
    cluster.down = True

    for _ in range(5):
        assert stream.latest(end) == end
    cluster.down = False
    cluster.ends[0] = 6
    assert offsets(stream.latest(end)) == {0: 6}
    cluster.down = True
    end = stream.latest(end)
    cluster.time.sleep(11)
    with pytest.raises(LeadlineSparkError, match="LEADLINE_CLUSTER_UNREACHABLE"):
        stream.latest(end)


def test_a_long_micro_batch_uses_up_no_patience() -> None:
    cluster = world(p0=5)
    stream = planner(cluster)
    end = stream.latest(stream.initial())
    cluster.time.sleep(3_600)
    cluster.down = True

    assert stream.latest(end) == end
    cluster.time.sleep(11)
    with pytest.raises(LeadlineSparkError, match="CLUSTER_UNREACHABLE"):
        stream.latest(end)


def test_a_broker_that_is_behind_takes_no_partition_away() -> None:
    cluster = world(p0=5, p1=5)
    stream = planner(cluster)
    end = stream.latest(stream.initial())
    cluster.behind = {0: 5}
    cluster.time.sleep(6)

    assert stream.latest(end) == end
    # Nobody can be behind for as long as that: it is another cluster.
    cluster.time.sleep(11)
    with pytest.raises(LeadlineSparkError, match="t-1 was to be read on, but is gone"):
        stream.latest(end)


@pytest.mark.parametrize("fail", [True, False])
def test_an_added_partition_that_has_lost_its_beginning_is_a_loss(fail: bool) -> None:
    """As in Kafka's source: whoever sees a partition late has missed what was deleted from it."""
    cluster = world(p0=5, p1=30)
    cluster.starts[1] = 20
    stream = planner(cluster, fail_on_data_loss=fail)
    stood = SourceOffset({topic_partition(0): OffsetAndEpoch(5, 0)}, {"t": "id"})

    if fail:
        with pytest.raises(LeadlineSparkError, match="t-1 is new and begins at 20"):
            stream.latest(stood)
    else:
        assert [(one.start, one.end) for one in stream.ranges(stood, stream.latest(stood))] == [
            (5, 5),
            (20, 30),
        ]


@pytest.mark.parametrize("fail", [True, False])
def test_a_position_beyond_the_end_is_a_loss_and_no_reason_to_wait(fail: bool) -> None:
    cluster = world(p0=50)
    stream = planner(cluster, fail_on_data_loss=fail)
    stood = SourceOffset({topic_partition(0): OffsetAndEpoch(70)}, {"t": "id"})

    if fail:
        with pytest.raises(LeadlineSparkError, match="t-0 ends at 50"):
            stream.latest(stood)
    else:
        end = stream.latest(stood)
        assert offsets(end) == {0: 50}
        cluster.ends[0] = 60
        assert offsets(stream.latest(end)) == {0: 60}


def test_a_run_that_ends_reads_on_after_a_first_batch_that_crashed() -> None:
    # Its first batch was empty, as one partition began at latest; another has records all the same.
    cluster = world(p0=20, p1=7)
    start = Bound("startingOffsets", EARLIEST, {topic_partition(0): 5, topic_partition(1): LATEST})
    stream = planner(cluster)
    stream.settings = StreamSettings(start)
    stream.prepare()
    first = stream.initial()

    assert all(one.size == 0 for one in stream.ranges(first, first))
    assert offsets(stream.latest(first)) == {0: 20, 1: 7}


def test_a_start_found_by_time_may_be_newer_than_the_ends() -> None:
    cluster = world(p0=50)
    stream = planner(cluster)
    stream.settings = StreamSettings(Bound("startingTimestamp", EARLIEST, timestamp=9_000))
    fetcher = stream.fetcher
    assert isinstance(fetcher, FixedOffsets)
    fetcher.newest = 52
    stream.poller.snapshot()
    cluster.ends[0] = 53
    first = stream.initial()

    assert offsets(first) == {0: 52}
    assert [one.size for one in stream.ranges(first, first)] == [0]
    assert offsets(stream.latest(first)) == {0: 53}


def test_a_topic_that_is_recreated_while_a_stream_runs_is_noticed() -> None:
    """Also where the new one has the same partitions, epochs and offsets."""
    cluster = world(p0=5)
    stream = planner(cluster)
    end = stream.latest(stream.initial())
    cluster.topic_id = "another"
    cluster.time.sleep(6)

    with pytest.raises(LeadlineSparkError, match="LEADLINE_TOPIC_RECREATED"):
        stream.latest(end)


def test_nothing_of_the_old_topic_is_taken_for_the_new_one() -> None:
    cluster = world(p0=50)
    stream = planner(cluster, fail_on_data_loss=False)
    start = stream.latest(stream.initial())
    cluster.topic_id, cluster.ends[0] = "another", 3
    cluster.time.sleep(6)

    end = stream.latest(start)

    assert (offsets(end), end.ids) == ({0: 3}, {"t": "another"})
    assert [(one.start, one.end) for one in stream.ranges(start, end)] == [(0, 3)]


def test_a_backlog_is_read_on_at_once() -> None:
    cluster = world(p0=30)
    stream = planner(cluster, max_offsets=10)
    end, began = stream.initial(), cluster.time.now
    for _ in range(3):
        end = stream.latest(end)

    assert offsets(end) == {0: 30}
    assert cluster.time.now - began < 0.1


@pytest.mark.parametrize(
    ("epoch", "end", "taken"),
    [(3, 51, True), (3, 49, False), (2, 60, False), (4, 49, True)],
)
def test_answers_that_cross_on_the_way_take_no_end_back(epoch: int, end: int, taken: bool) -> None:
    cluster = world(p0=50)
    cluster.epoch = 3
    stream = planner(cluster)
    stream.poller.snapshot()
    cluster.epoch, cluster.ends[0] = epoch, end

    found = stream.poller.poll({topic_partition(0): 50}, 0.0).offsets[topic_partition(0)]

    assert (found.end, found.leader.epoch) == ((end, epoch) if taken else (50, 3))

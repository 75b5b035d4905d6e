"""The lag of a stream, and the offsets that it commits to a group for monitoring."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import Connection
from leadline_spark.read import progress
from leadline_spark.read.offsets import OffsetAndEpoch, SourceOffset
from leadline_spark.read.progress import GroupOffsetReporter, offsets_behind_latest
from tests.unit.spark.standin import Asked, Said, StandIn, metadata, refusal, stand_in

OFFSETS = "/v1/groups/g/offsets"


class Coordinator:
    """A broker that is the coordinator, too, and answers for the group what a test plans."""

    def __init__(self, broker: StandIn) -> None:
        self.broker = broker
        self.planned: list[Said] = []
        self.answers = 0
        self.hangs: Event | None = None
        broker.answer = self.answer

    def answer(self, asked: Asked) -> Said:
        if asked.path == "/v1/metadata":
            return metadata({1: self.broker.url}, {})
        if asked.path == "/v1/consult":
            return Said({"coordinator": {"url": self.broker.url}})
        if self.hangs is not None:
            self.hangs.wait(10.0)
        self.answers += 1
        return self.planned.pop(0) if self.planned else Said({"offsets": []})

    def commits(self) -> int:
        return sum(asked.path == OFFSETS for asked in self.broker.asked)


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with stand_in() as broker:
        yield Coordinator(broker)


def at(offset: int) -> SourceOffset:
    return SourceOffset({TopicPartition("t", 0): OffsetAndEpoch(offset)})


def test_offsets_are_committed_once_a_second(coordinator: Coordinator) -> None:
    reporter = GroupOffsetReporter.of(Connection((coordinator.broker.url,)), "g")
    now = [0.0]
    reporter.clock = lambda: now[0]
    for now[0], offset, commits in [(0.0, 1, 1), (0.9, 2, 1), (1.0, 2, 2), (5.0, 2, 2)]:
        reporter.report(at(offset))
        assert coordinator.commits() == commits


def test_a_commit_that_failed_is_repeated_ten_seconds_later(coordinator: Coordinator) -> None:
    reporter = GroupOffsetReporter.of(Connection((coordinator.broker.url,)), "g")
    now = [0.0]
    reporter.clock = lambda: now[0]
    coordinator.planned = [refusal(409, 40956)]
    # The stream may be idle since: the same offsets are still not committed.
    for now[0], commits in [(0.0, 1), (9.9, 1), (10.0, 2), (20.0, 2)]:
        reporter.report(at(7))
        assert coordinator.commits() == commits


def test_a_coordinator_that_hangs_does_not_hold_up_a_stream(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LONGEST_S", 0.2)
    coordinator.hangs = Event()
    reporter = GroupOffsetReporter.of(Connection((coordinator.broker.url,), timeout_s=600.0), "g")
    reporter.report(at(1))
    assert coordinator.answers == 0
    coordinator.hangs.set()


def test_the_lag_of_a_stream_of_the_audit_is_in_entries() -> None:
    source = {"endOffset": {"audit": 18}, "latestOffset": '{"audit": 21}'}

    assert offsets_behind_latest({"sources": [source]}) == {
        "minOffsetsBehindLatest": 3,
        "maxOffsetsBehindLatest": 3,
        "avgOffsetsBehindLatest": 3.0,
    }

"""The ranges of a batch read: in a cluster that changes meanwhile, and with pushed filters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from leadline_spark.errors import LeadlineSparkError
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options
from leadline_spark.read.readers import PushingBatchReader, pin
from leadline_spark.read.tasks import ReadTask
from tests.unit.spark.standin import Asked, Said, StandIn, metadata, stand_in

START, END = 10, 100
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class World:
    """One partition with offsets [10, 100); `by_time` answers each time that is asked about."""

    url: str
    by_time: dict[int, int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    topic_id: str | None = "id"
    start: int = START
    end: int = END
    epoch: int = 3

    def answer(self, asked: Asked) -> Said:
        if asked.path == "/v1/metadata":
            rows = [[0, 1, self.epoch, [1], [1]]]
            known = {"t": (self.topic_id, rows)} if self.topic_id is not None else {}
            return metadata({1: self.url}, known)
        [row] = json.loads(asked.body)["partitions"]
        ends: dict[str, int | None] = {
            "log_start_offset": self.start,
            "high_watermark": self.end,
            "leader_epoch": self.epoch,
        }
        if "timestamp" in row:
            self.times.append(row["timestamp"])
            # A negative time asks for an end of the log.
            found = {-1: END, -2: START, **self.by_time}
            ends["offset"] = found.get(row["timestamp"])
        leader = {"id": 1, "url": self.url, "epoch": self.epoch}
        row = {"topic": "t", "partition": 0, "error_code": 0, "leader": leader, "offsets": ends}
        return Said({"partitions": [row]})


@pytest.fixture
def broker() -> Iterator[StandIn]:
    with stand_in() as one:
        yield one


@pytest.fixture
def world(broker: StandIn) -> World:
    made = World(broker.url)
    broker.answer = made.answer
    return made


def options(world: World, **given: str) -> Options:
    return Options(OPTIONS, {"bootstrap": world.url, "subscribe": "t", **given})


def pinned(world: World, **given: str) -> tuple[int, int]:
    [found] = pin(options(world, **given)).ranges
    return found.start, found.end


def test_a_read_covers_what_is_there(world: World) -> None:
    assert pinned(world) == (START, END)


def test_records_that_come_while_a_read_is_planned_are_no_loss(world: World) -> None:
    # The ends were fetched first, when there was no record at 100 yet.
    world.by_time = {5_000: 40, 9_000: 103}

    assert pinned(world, startingTimestamp="5000", endingTimestamp="9000") == (40, END)
    assert pinned(world, startingTimestamp="9000") == (END, END)


def test_offsets_beyond_the_end_are_a_loss(world: World) -> None:
    with pytest.raises(LeadlineSparkError, match="ends at 100, but is to be read up to 103"):
        pin(options(world, endingOffsets='{"t":{"0":103}}'))


@pytest.mark.parametrize("ms", [-2, -1, 0, 1])
def test_a_filter_on_times_before_1970_asks_for_no_end_of_the_log(world: World, ms: int) -> None:
    world.by_time = {0: START, 1: START}
    reader = PushingBatchReader(options(world), pin(options(world)))
    time = EPOCH + timedelta(milliseconds=ms)

    left = list(reader.pushFilters([GreaterThanOrEqual(("timestamp",), time)]))
    tasks = reader.partitions()

    assert len(left) == 1
    assert [(one.asked.start, one.asked.end) for one in tasks if isinstance(one, ReadTask)] == [
        (START, END)
    ]


def test_a_filter_on_time_moves_the_start_alone(world: World) -> None:
    world.by_time = {7_000: 60}
    reader = PushingBatchReader(options(world), pin(options(world)))

    reader.pushFilters([GreaterThan(("timestamp",), EPOCH + timedelta(seconds=7))])
    tasks = reader.partitions()

    assert [(one.asked.start, one.asked.end) for one in tasks if isinstance(one, ReadTask)] == [
        (60, END)
    ]
    assert world.times == [7_000]


@pytest.mark.parametrize(
    "change",
    [
        {"start": 30, "by_time": {7_000: 60}},  # retention: of the deleted ones some may be as new
        {"end": 40},  # an election cut off what was as new
        {"epoch": 4},  # the same, and other records have these offsets now
        {"topic_id": "other", "end": 0},  # the topic was recreated
        {"topic_id": None},  # the topic was deleted
    ],
)
def test_a_filter_on_time_hides_no_loss(world: World, change: dict[str, Any]) -> None:
    """What changed since the ranges were pinned is for the tasks to notice, so they get it all."""
    reader = PushingBatchReader(options(world), pin(options(world)))
    for name, value in change.items():
        setattr(world, name, value)

    reader.pushFilters([GreaterThan(("timestamp",), EPOCH + timedelta(seconds=7))])
    tasks = reader.partitions()

    assert [(one.asked.start, one.asked.end) for one in tasks if isinstance(one, ReadTask)] == [
        (START, END)
    ]


@pytest.mark.parametrize(
    ("one", "left"),
    [
        (EqualTo(("offset",), 50), (50, 51)),
        (GreaterThan(("offset",), 50), (51, END)),
        (GreaterThanOrEqual(("offset",), 50), (50, END)),
        (LessThan(("offset",), 50), (START, 50)),
        (LessThanOrEqual(("offset",), 50), (START, 51)),
        (EqualTo(("topic",), "t"), (START, END)),
        (Not(EqualTo(("partition",), 0)), None),
        (Not(In(("partition",), (1, 2))), (START, END)),
    ],
)
def test_a_filter_that_is_taken_is_carried_out_exactly(
    world: World, one: Filter, left: tuple[int, int] | None
) -> None:
    reader = PushingBatchReader(options(world), pin(options(world)))

    assert list(reader.pushFilters([one])) == []
    found = [(t.asked.start, t.asked.end) for t in reader.partitions() if isinstance(t, ReadTask)]
    assert found == ([left] if left else [])


def test_a_filter_that_cannot_be_carried_out_is_left_to_spark(world: World) -> None:
    reader = PushingBatchReader(options(world), pin(options(world)))
    others: list[Filter] = [
        Not(EqualTo(("offset",), 50)),
        In(("partition",), (1, None)),
        EqualTo(("value",), b"x"),
    ]

    assert list(reader.pushFilters(others)) == others


def test_offsets_before_the_beginning_are_a_loss(world: World) -> None:
    early = {"startingOffsets": '{"t":{"0":4}}'}

    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_DATA_LOSS.*begins at 10"):
        pin(options(world, **early))
    assert pinned(world, **early, failOnDataLoss="false") == (START, END)

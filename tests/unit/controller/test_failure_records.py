"""How long a broker has been down, while clocks are set."""

from __future__ import annotations

from typing import cast

import pytest

from leadline_common.cluster_time import ClusterTime
from leadline_common.failed_brokers import FailedBroker
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.reassignment.failure_records import FailureRecords
from tests.support.manual_clock import ManualClock

NOW = ManualClock().wall_ms()
YEARS = 10 * 365 * 86_400_000
MINUTE = 60_000


def records_of(clock: ManualClock, failure_timestamp: int) -> FailureRecords:
    """Return the records of a controller that has read of one failed broker, 1."""
    records = FailureRecords(
        cast("ControllerStore", None),
        ClusterImage(),
        cast("StateWriter", None),
        cast("AuditLog", None),
        clock,
        ClusterTime(clock, NOW),
    )
    records.failed[1] = FailedBroker(failure_timestamp, 1, 1, 0)
    return records


@pytest.mark.parametrize("step", [YEARS, -YEARS])
def test_the_time_since_a_failure_is_the_same_when_the_wall_clock_is_set(step: int) -> None:
    """Set forward, every failed broker would count as dead; set back, none for years."""
    clock = ManualClock()
    records = records_of(clock, clock.wall_ms())
    assert records.down_ms(1) == 0
    clock.step_wall(step)
    clock.advance(MINUTE)
    assert records.down_ms(1) == MINUTE


def test_a_successor_counts_from_the_failure_that_was_recorded() -> None:
    clock = ManualClock()
    records = records_of(clock, clock.wall_ms() - MINUTE)
    clock.advance(MINUTE)
    assert records.down_ms(1) == 2 * MINUTE


def test_a_successor_whose_clock_is_ahead_makes_no_failure_older() -> None:
    clock = ManualClock(wall_ms=NOW + YEARS)
    records = records_of(clock, NOW - MINUTE)
    assert records.down_ms(1) == MINUTE


def test_a_failure_in_the_future_began_when_it_was_read() -> None:
    """The clock of the earlier controller was ahead, or this one's is behind."""
    clock = ManualClock()
    records = records_of(clock, clock.wall_ms() + YEARS)
    assert records.down_ms(1) == 0
    clock.advance(MINUTE)
    assert records.down_ms(1) == MINUTE


def test_another_failure_of_the_broker_begins_again() -> None:
    clock = ManualClock()
    records = records_of(clock, clock.wall_ms())
    assert records.down_ms(1) == 0
    clock.advance(MINUTE)
    records.failed[1] = FailedBroker(clock.wall_ms(), 2, 1, 0)
    assert records.down_ms(1) == 0

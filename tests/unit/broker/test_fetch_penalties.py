"""Partitions that refuse what their leader sends are delayed, and logged once in a while."""

from __future__ import annotations

from pathlib import Path
from random import Random

from structlog.testing import capture_logs

from leadline_broker.adapters.log.errors import DiskFull
from leadline_broker.runtime.replication.fetch_penalties import Penalties
from leadline_client.backoff import Backoff
from leadline_client.errors import StorageFailed
from leadline_common.log_rate import LOG_EVERY_MS
from tests.unit.broker.test_runtime_fetch_sessions import SettableClock, led


def test_refusals_for_one_reason_are_logged_once_in_a_while(tmp_path: Path) -> None:
    """A full disk refuses the records of all partitions, several times a second."""
    clock = SettableClock()
    penalties = Penalties(
        3, clock, lambda: Backoff(Random(1).random, first_ms=20, longest_ms=1_000)
    )
    partitions = [led(tmp_path, number) for number in range(4)]
    with capture_logs() as lines:
        for partition in partitions:
            penalties.refuse(partition, DiskFull("no space left"))
        penalties.refuse(partitions[0], StorageFailed("another reason"))
        clock.now += LOG_EVERY_MS
        penalties.refuse(partitions[1], DiskFull("no space left"))

    assert [(one["partition"], one["reason"], one["more_before"]) for one in lines] == [
        (0, "no space left", 0),
        (0, "another reason", 0),
        (1, "no space left", 3),
    ]
    assert not penalties.without_delayed({partition.key: partition for partition in partitions})

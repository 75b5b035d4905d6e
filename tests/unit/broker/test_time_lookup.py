"""Lookups by time: beside the event loop where many records are decoded, and in one epoch only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from leadline_broker.runtime.serving.batch_checks import BatchChecks
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.errors import InvalidRequest, LeadlineError, NotLeader, OffsetNotAvailable
from leadline_client.record_checks import MOST_RECORDS
from tests.support.bad_input.batches import NOW, compressed, forged, good, record
from tests.support.services.zookeeper import until
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, three

T = TypeVar("T")


class WatchedChecks(BatchChecks):
    """Counts what is decoded in the worker, which waits for `go_on`."""

    def __init__(self) -> None:
        super().__init__(lambda: 1 << 24, lambda: 0)
        self.in_worker = 0
        self.go_on = threading.Event()
        self.go_on.set()

    async def read_in_worker(self, work: Callable[[], T]) -> T:
        """Count it."""
        self.in_worker += 1

        def wait_and_work() -> T:
            assert self.go_on.wait(20)
            return work()

        return await super().read_in_worker(wait_and_work)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


@pytest.fixture
def serving(cluster: SmallCluster) -> Serving:
    return cluster.brokers[1].engine.serving


@pytest.mark.parametrize(("codec", "count"), [("zstd", 3_000), ("none", 1_001)])
async def test_many_records_are_searched_beside_the_loop(
    cluster: SmallCluster, serving: Serving, codec: str, count: int
) -> None:
    serving.checks = checks = WatchedChecks()
    await cluster.send(1, good(codec, count))
    for wanted in (0, 1, count - 1):
        assert (await serving.offsets(TOPIC, 0, NOW + wanted)).offset == wanted
    assert (await serving.offsets(TOPIC, 0, NOW + count)).offset is None
    assert checks.in_worker == 3, "no batch has the last one"


async def test_few_records_are_searched_at_once(cluster: SmallCluster, serving: Serving) -> None:
    serving.checks = checks = WatchedChecks()
    await cluster.send(1, good("none", 1_000))
    assert (await serving.offsets(TOPIC, 0, NOW + 999)).offset == 999
    assert checks.in_worker == 0


@pytest.mark.parametrize(
    ("leader", "refused"), [(1, OffsetNotAvailable), (2, NotLeader)], ids=["same", "other"]
)
async def test_the_answer_is_of_the_epoch_in_which_it_is_given(
    cluster: SmallCluster, serving: Serving, leader: int, refused: type[LeadlineError]
) -> None:
    """The log may have been truncated since the batch was read."""
    serving.checks = checks = WatchedChecks()
    await cluster.send(1, good("zstd", 10))
    checks.go_on.clear()
    lookup = asyncio.create_task(serving.offsets(TOPIC, 0, NOW))
    await until(lambda: checks.in_worker == 1, "the lookup is on its way")
    cluster.publish(leader, 1, (1, 2, 3))
    await cluster.grant(1, 2, 3)
    epoch = serving.led(TOPIC, 0).replica.state.leader_epoch if leader == 1 else None
    assert epoch in (None, 1)
    checks.go_on.set()
    with pytest.raises(refused):
        await lookup


async def test_the_answer_is_not_of_a_topic_that_was_recreated_meanwhile(
    cluster: SmallCluster, serving: Serving
) -> None:
    """Its leader epochs begin again, so that the epoch alone may be the same."""
    serving.checks = checks = WatchedChecks()
    await cluster.send(1, good("zstd", 10))
    checks.go_on.clear()
    lookup = asyncio.create_task(serving.offsets(TOPIC, 0, NOW + 9))
    await until(lambda: checks.in_worker == 1, "the lookup is on its way")
    cluster.publish(1, 0, (1, 2, 3))
    await cluster.grant(1, 2, 3, topic_id="2" * 32)
    assert serving.led(TOPIC, 0).log.log_end_offset == 0
    checks.go_on.set()
    with pytest.raises(OffsetNotAvailable):
        await lookup


async def test_a_batch_of_too_many_records_is_refused(
    cluster: SmallCluster, serving: Serving
) -> None:
    """A few kilobytes can have millions, and whoever wants the last one decodes them all."""
    most = b"".join(record(number) for number in range(MOST_RECORDS))
    await cluster.send(1, forged(compressed(most, "zstd"), MOST_RECORDS, attributes=4))
    more = compressed(most + record(MOST_RECORDS), "zstd")
    with pytest.raises(InvalidRequest, match="at most 200000 "):
        await cluster.send(1, forged(more, MOST_RECORDS + 1, attributes=4))
    assert (await serving.offsets(TOPIC, 0)).log_end_offset == MOST_RECORDS

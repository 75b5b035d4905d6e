"""An unclean election truncates what was read or planned: this is reported, never ignored.

Run it by: pytest -m soak tests/spark/test_unclean.py (half a minute). Without Spark itself,
tests/e2e/test_unclean_election.py checks the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.spark.live import Live
from tests.support.services.cluster import wait_until

pytestmark = pytest.mark.soak
LEADER, STALE = "broker-1", "broker-2"


def records(first: int, end: int) -> list[OutgoingRecord]:
    return [OutgoingRecord(b"%d" % n) for n in range(first, end)]


async def until_roles(live: Live, topic: str, leader: int, isr: tuple[int, ...]) -> None:
    async def hold() -> bool:
        [row] = (await live.client.describe(topic)).partitions
        return (row.leader, tuple(row.isr)) == (leader, isr)

    await wait_until(hold, f"{leader} leads and {isr} are in sync")


@contextmanager
def stale_follower(live: Live, topic: str) -> Iterator[None]:
    """Have ten records on both replicas, and ten more on the leader alone, within the block."""
    new = NewTopic(topic, replica_assignment={0: (1, 2)}, configs={"min.insync.replicas": "1"})

    async def make() -> None:
        await live.client.create_topic(new)
        await live.cluster.in_sync(topic, 2)

    live.run(make())
    live.send(topic, records(0, 10))
    live.kill(STALE)
    try:
        live.run(until_roles(live, topic, 1, (1,)))
        live.send(topic, records(10, 20))
        yield
    finally:
        for name in (LEADER, STALE):
            if not live.cluster.child(name).running:
                live.restart(name)


def elect_the_stale_one(live: Live, topic: str) -> None:
    """Let the follower lead that never had the ten, and offsets go on beyond where they ended."""
    live.kill(LEADER)
    live.run(until_roles(live, topic, -1, (1,)))
    live.restart(STALE)

    async def elect() -> None:
        await live.client.elect("unclean", [(topic, 0)])
        await until_roles(live, topic, 2, (2,))

    live.run(elect())
    live.send(topic, records(100, 140))


def load(spark: SparkSession, live: Live, topic: str, fail: str) -> DataFrame:
    reader = spark.read.format("leadline").option("bootstrap", live.bootstrap)
    return reader.option("subscribe", topic).option("failOnDataLoss", fail).load()


def follow(spark: SparkSession, live: Live, topic: str, folder: Path, fail: str) -> list[int]:
    """Read a topic as a stream, from its checkpoint to the end; return what was new."""
    found: list[int] = []
    stream = spark.readStream.format("leadline").option("bootstrap", live.bootstrap)
    stream = stream.options(subscribe=topic, startingOffsets="earliest", failOnDataLoss=fail)
    writer = stream.load().writeStream.foreachBatch(lambda rows, _: found.extend(numbers(rows)))
    writer = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True)
    assert writer.start().awaitTermination(60)
    return found


def numbers(rows: DataFrame) -> list[int]:
    return [int(row[0]) for row in rows.selectExpr("CAST(value AS STRING)").collect()]


def test_what_an_unclean_election_cut_off_is_a_loss(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    with stale_follower(live, topic):
        strict, lenient = (load(spark, live, topic, fail) for fail in ("true", "false"))
        assert numbers(strict) == follow(spark, live, topic, tmp_path, "true") == [*range(20)]

        elect_the_stale_one(live, topic)

        with pytest.raises(PySparkException, match=r"LEADLINE_DATA_LOSS.*offsets 10 to 19"):
            strict.collect()
        with pytest.raises(PySparkException, match=r"LEADLINE_DATA_LOSS.*beyond 10"):
            follow(spark, live, topic, tmp_path, "true")
        # Nothing in place of what is gone; and all that came after it.
        assert numbers(lenient) == [*range(10)]
        assert follow(spark, live, topic, tmp_path, "false") == [*range(100, 140)]

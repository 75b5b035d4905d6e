"""A disk that damages what a broker has stored: other replicas' copies replace it as it is read."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from leadline_client.consumer import AsyncConsumer
from leadline_client.producer import AsyncProducer
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until

TOPIC = "t"
VALUES = [f"{number:04}".encode() * 25 for number in range(300)]
BROKERS = ("broker-1", "broker-2", "broker-3")
SCRUBBING = {
    "log.segment.bytes": "4096",
    "log.scrub.interval.ms": "500",
    "log.scrub.bytes.per.s": "10000000",
}


def segments(cluster: Cluster, broker: str) -> list[Path]:
    """Return the segments of a replica; all but the last are closed."""
    directory = Path(cluster.service(broker).log_dir or "") / f"{TOPIC}-0"
    return sorted(directory.glob("*.log"))


def contents(cluster: Cluster, broker: str) -> list[bytes]:
    return [path.read_bytes() for path in segments(cluster, broker)]


def damage(segment: Path, random: Random) -> None:
    """Flip a bit in every kilobyte, and lose half a sector."""
    data = bytearray(segment.read_bytes())
    for start in range(0, len(data), 1_024):
        place = random.randrange(start, min(start + 1_024, len(data)))
        data[place] ^= 1 << random.randrange(8)
    lost = random.randrange(len(data))
    data[lost : lost + 256] = bytes(len(data[lost : lost + 256]))
    with segment.open("r+b") as file:
        file.write(data)


async def produce(cluster: Cluster) -> list[bytes]:
    """Produce `VALUES`; return the contents of the segments, which are the same everywhere."""
    await cluster.client.create_topic(NewTopic(TOPIC, 1, 3))
    async with AsyncProducer(cluster.client) as producer:
        for first in range(0, len(VALUES), 5):
            sent = [await producer.send(TOPIC, one) for one in VALUES[first : first + 5]]
            for one in sent:
                await one
    whole = contents(cluster, await cluster.leader_of(TOPIC, 0))
    assert len(whole) > 5
    return whole


async def until_whole(cluster: Cluster, whole: list[bytes]) -> None:
    """Wait until all replicas have these bytes, in whatever segments."""
    joined = b"".join(whole)

    async def is_whole() -> bool:
        return all(b"".join(contents(cluster, broker)) == joined for broker in BROKERS)

    await wait_until(is_whole, "all replicas are alike")


async def repaired(cluster: Cluster, broker: str) -> float:
    """Return how many batches a broker has repaired."""
    metrics = (await cluster.get(broker, "/metrics")).text
    (line,) = (
        line
        for line in metrics.splitlines()
        if line.startswith("leadline_damaged_batches_repaired_total")
    )
    return float(line.split()[1])


async def test_a_consumer_reads_on_while_its_leader_is_repaired(tmp_path: Path) -> None:
    async with Cluster(tmp_path, settings={"log.segment.bytes": "4096"}) as cluster:
        whole = await produce(cluster)
        leader = await cluster.leader_of(TOPIC, 0)
        for segment in segments(cluster, leader)[:-1]:
            damage(segment, Random(segment.name))

        async with AsyncConsumer(cluster.client) as consumer:
            await consumer.assign([(TOPIC, 0)])
            read = list[bytes | None]()
            while len(read) < len(VALUES):
                read += [one.record.value for one in await consumer.poll(timeout_s=10)]
        assert read == VALUES
        await until_whole(cluster, whole)
        assert await repaired(cluster, leader) > 5


async def test_damage_that_nobody_reads_is_found(tmp_path: Path) -> None:
    """Each replica has damage of its own, and every batch is sound in one of them."""
    async with Cluster(tmp_path, settings=SCRUBBING) as cluster:
        whole = await produce(cluster)
        for broker, first in zip(BROKERS, range(3), strict=True):
            for segment in segments(cluster, broker)[first:-1:3]:
                damage(segment, Random(segment.name))

        await until_whole(cluster, whole)
        assert [await repaired(cluster, broker) > 0 for broker in BROKERS] == [True] * 3


async def test_what_the_disk_of_a_broker_has_lost_comes_back(tmp_path: Path) -> None:
    """It starts with a segment cut short, one that is empty, and one that is gone."""
    async with Cluster(tmp_path, settings=SCRUBBING) as cluster:
        whole = await produce(cluster)
        leader = await cluster.leader_of(TOPIC, 0)
        await cluster.kill(leader)
        _, cut, empty, gone, *_ = segments(cluster, leader)
        os.truncate(cut, cut.stat().st_size * 2 // 3)
        os.truncate(empty, 0)
        gone.unlink()

        cluster.restart(leader)
        await until_whole(cluster, whole)
        assert await repaired(cluster, leader) > 5

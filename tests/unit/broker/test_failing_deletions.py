"""Rule R12: a stop succeeds once the log certainly does not return, whatever failed before."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_broker.adapters.log import deletions, inventory
from leadline_client.errors import StorageFailed
from leadline_common import rpc
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch

NEXT_ID = "recreated"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    """Broker 1 with a record in its only replica."""
    async with SmallCluster(tmp_path) as running:
        await running.start(1)
        await grant(running, 1, epoch=0)
        serving = running.brokers[1].engine.serving
        await serving.produce(TOPIC, 0, batch("v"), acks="all", timeout_ms=5_000)
        yield running


async def grant(
    cluster: SmallCluster, sequence: int, *, epoch: int, topic_id: str = TOPIC_ID
) -> int:
    """Grant broker 1 the lead of the partition, and return the code of the answer."""
    row = rpc.PartitionRow(0, 1, epoch, (1,), (1,), 0, adding=(1,))
    topics = [rpc.TopicRows(TOPIC, topic_id, {}, [row])]
    addresses = [rpc.BrokerRow(1, "http://b/1", None, 1, "https://b/1")]
    request = rpc.LeaderAndIsrRequest(
        0, 1, 1, 1, sequence == 1, 1_000, "test", addresses, topics, sequence=sequence
    )
    answer = await cluster.brokers[1].engine.commands.leader_and_isr(request)
    return answer.codes[0][0]


async def stop(cluster: SmallCluster, sequence: int) -> int:
    """Have broker 1 delete the replica, and return the code of the answer."""
    topics = [rpc.StopTopic(TOPIC, TOPIC_ID, [rpc.StopRow(0, 0)])]
    request = rpc.StopReplicaRequest(0, 1, 1, 1, 1_000, "test", True, topics, sequence)
    answer = await cluster.brokers[1].engine.commands.stop_replica(request)
    return answer.codes[0][0]


def break_disk(broken: pytest.MonkeyPatch, operation: str) -> None:
    """Let one operation of a deletion fail."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    match operation:
        case "remove the entry":
            broken.setattr(Path, "unlink", refuse)
        case "make that durable":
            broken.setattr(inventory, "fsync_path", refuse)
        case "rename":
            broken.setattr(Path, "rename", refuse)
        case "make the rename durable":
            broken.setattr(deletions, "fsync_path", refuse)


OPERATIONS = ["remove the entry", "make that durable", "rename", "make the rename durable"]


def left(cluster: SmallCluster) -> list[str]:
    """Return the directories and the entries of the topic."""
    root = cluster.root / "1"
    return [path.name for path in (*root.glob(f"{TOPIC}-*"), *root.glob("inventory/*"))]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_deletion_that_failed_is_a_failure_until_the_log_is_gone(
    cluster: SmallCluster, operation: str
) -> None:
    with pytest.MonkeyPatch.context() as broken:
        break_disk(broken, operation)
        for sequence in (2, 3):
            assert await stop(cluster, sequence) == StorageFailed.code
    assert left(cluster)

    assert await stop(cluster, 4) == rpc.NO_ERROR
    assert await stop(cluster, 5) == rpc.NO_ERROR
    await cluster.brokers[1].engine.removals.finish()
    assert left(cluster) == []


@pytest.mark.parametrize("topic_id", [TOPIC_ID, NEXT_ID])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_replica_does_not_begin_with_a_log_whose_deletion_failed(
    cluster: SmallCluster, operation: str, topic_id: str
) -> None:
    """Of the same partition that was reassigned to and fro, or of the next topic of its name."""
    with pytest.MonkeyPatch.context() as broken:
        break_disk(broken, operation)
        assert await stop(cluster, 2) == StorageFailed.code
        assert await grant(cluster, 3, epoch=1, topic_id=topic_id) == StorageFailed.code

    assert await grant(cluster, 4, epoch=1, topic_id=topic_id) == rpc.NO_ERROR
    engine = cluster.brokers[1].engine
    replica = engine.replicas.find((topic_id, 0))
    assert replica is not None
    assert replica.log.log_end_offset == 0
    await engine.serving.produce(TOPIC, 0, batch("w"), acks="all", timeout_ms=5_000)
    assert f"{topic_id}-0" in left(cluster)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_deletion_that_failed_ends_although_no_controller_repeats_it(
    cluster: SmallCluster, operation: str
) -> None:
    work = cluster.brokers[1].engine.maintenance
    with pytest.MonkeyPatch.context() as broken:
        break_disk(broken, operation)
        assert await stop(cluster, 2) == StorageFailed.code
        with pytest.raises(StorageFailed):
            await work.finish_deletions()

    await work.finish_deletions()

    assert left(cluster) == []

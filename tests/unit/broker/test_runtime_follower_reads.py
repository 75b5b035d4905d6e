"""Reading from an in-sync follower (Leader election in ZooKeeper)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_client.errors import (
    FencedLeaderEpoch,
    LeadlineError,
    NotLeader,
    OffsetNotAvailable,
)
from leadline_common import rpc
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, three, values


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        tell(running, 2, isr=(1, 2, 3))
        yield running


def tell(cluster: SmallCluster, broker: int, isr: Sequence[int], epoch: int = 0) -> None:
    """Give a broker metadata with this ISR."""
    cluster.brokers[broker].engine.commands.update_metadata(
        rpc.UpdateMetadataRequest(
            cluster_id="cluster",
            controller=rpc.ControllerRow(9, "http://c/9", cluster.controller_epoch),
            broker_id=broker,
            incarnation=cluster.brokers[broker].state.incarnation,
            version=cluster.brokers[broker].metadata.version + 1,
            base_version=-1,
            full=True,
            cause="test",
            brokers=[rpc.BrokerRow(1, "http://b/1", None, 1, "https://b/1")],
            topics=[
                rpc.TopicRows(
                    TOPIC,
                    TOPIC_ID,
                    {},
                    [rpc.PartitionRow(0, 1, epoch, tuple(isr), (1, 2, 3), 0)],
                )
            ],
        )
    )


async def read(
    cluster: SmallCluster, offset: int, epoch: int | None = None, last_epoch: int | None = None
) -> FetchedData:
    return await cluster.brokers[2].engine.serving.fetch(
        TOPIC,
        0,
        offset,
        max_bytes=1 << 20,
        min_bytes=1,
        wait_ms=5_000,
        leader_epoch=epoch,
        last_epoch=last_epoch,
        any_replica=True,
    )


async def test_an_in_sync_follower_answers_up_to_its_high_watermark(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a")

    fetched = await read(cluster, 0, epoch=0)

    assert values(fetched.records) == ["a"]
    assert (fetched.high_watermark, fetched.leader_epoch) == (1, 0)


async def test_a_follower_refuses_unless_asked_as_any_replica(cluster: SmallCluster) -> None:
    with pytest.raises(NotLeader) as refusal:
        await cluster.read(2)
    assert refusal.value.leader is not None
    assert refusal.value.leader.id == 1


@pytest.mark.parametrize(("isr", "epoch"), [((1, 3), 0), ((1, 2, 3), 1)], ids=["out", "epoch"])
async def test_a_follower_that_may_be_behind_refuses(
    cluster: SmallCluster, isr: Sequence[int], epoch: int
) -> None:
    tell(cluster, 2, isr, epoch)
    with pytest.raises(NotLeader):
        await read(cluster, 0)


async def test_an_offset_that_the_follower_lacks_is_worth_asking_again(
    cluster: SmallCluster,
) -> None:
    with pytest.raises(OffsetNotAvailable):
        await read(cluster, 7)


async def test_defect_02_only_the_leader_says_that_a_log_was_truncated(
    cluster: SmallCluster,
) -> None:
    await cluster.produce(1, "a")
    assert (await read(cluster, 0, last_epoch=0)).last_epoch == 0
    with pytest.raises(OffsetNotAvailable):
        await read(cluster, 7, last_epoch=0)


async def test_an_offset_that_only_the_follower_has_deleted_is_the_leader_s_to_answer(
    tmp_path: Path,
) -> None:
    """Each replica applies retention on its own, so the leader may still have the offset."""
    async with await three(tmp_path, log_retention_check_interval_ms=100) as cluster:
        await cluster.grant(2, init=False, **{"segment.bytes": "1024", "retention.bytes": "0"})
        for number in range(3):
            await cluster.produce(1, f"{number}" * 600)
        tell(cluster, 2, isr=(1, 2, 3))
        follower = cluster.brokers[2]
        await cluster.until(
            lambda: follower.engine.replicas.describe()[0].log_start_offset > 0, "it deletes"
        )

        with pytest.raises(OffsetNotAvailable):
            await read(cluster, 0)

        assert len(await cluster.read(1)) == 3


async def test_a_follower_checks_the_stated_epoch(cluster: SmallCluster) -> None:
    cluster.publish(1, 1, (1, 2, 3))
    await cluster.grant(1, 2, 3)
    tell(cluster, 2, (1, 2, 3), epoch=1)
    with pytest.raises(FencedLeaderEpoch):
        await read(cluster, 0, epoch=0)


@pytest.mark.parametrize("epoch", [None, 9])
async def test_who_leads_is_said_with_the_id_of_the_topic(
    cluster: SmallCluster, epoch: int | None
) -> None:
    """A client that knows another topic of this name has no use for its epochs."""
    for broker in (1, 2) if epoch else (2,):
        with pytest.raises(LeadlineError) as refused:
            cluster.brokers[broker].engine.serving.led(TOPIC, 0, epoch)
        assert refused.value.leader is not None
        assert (refused.value.leader.id, refused.value.leader.epoch) == (1, 0)
        assert refused.value.leader.topic_id == TOPIC_ID

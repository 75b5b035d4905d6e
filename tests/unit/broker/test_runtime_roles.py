"""The controller's commands, and which a broker refuses: grants, stops, incarnations, metadata."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from leadline_broker.runtime.cluster.registrar import SupersededError
from leadline_broker.runtime.replication.late_roles import LateRole, LateRoles
from leadline_client.batch_header import header_at
from leadline_client.batches import stamp
from leadline_client.errors import (
    BrokerFenced,
    FencedLeaderEpoch,
    InvalidRequest,
    LeadershipLost,
    StaleControllerEpoch,
    StaleIncarnation,
    StaleVersion,
    StorageFailed,
    UnknownLeaderEpoch,
)
from leadline_client.wire import TopicPartition
from leadline_common import rpc
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch, three

OTHER_ID = "2" * 32


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


def metadata(
    cluster: SmallCluster, version: int, *, base: int = -1, partitions: int = 1
) -> rpc.UpdateMetadataRequest:
    rows = [rpc.PartitionRow(n, 1, 0, (1, 2, 3), (1, 2, 3), 0) for n in range(partitions)]
    return rpc.UpdateMetadataRequest(
        cluster_id="cluster",
        controller=rpc.ControllerRow(9, "http://c/9", cluster.controller_epoch),
        broker_id=1,
        incarnation=cluster.brokers[1].state.incarnation,
        version=version,
        base_version=base,
        full=base < 0,
        cause="test",
        brokers=[rpc.BrokerRow(1, "http://b/1", "r", 1, "https://b/1")],
        topics=[rpc.TopicRows(TOPIC, TOPIC_ID, {}, rows)],
    )


async def test_roles_are_told_in_heartbeats(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]
    broker.engine.commands.update_metadata(metadata(cluster, 5))
    expected = rpc.digest_of([(TOPIC_ID, 0, 0)])

    await cluster.until(
        lambda: any(
            (beat.granted, beat.replicas, beat.digest, beat.metadata_version)
            == (True, 1, expected, 5)
            for beat in cluster.wires[1].heartbeats
        ),
        "a heartbeat tells the applied role",
    )


async def test_a_grant_for_another_incarnation_is_refused(cluster: SmallCluster) -> None:
    request = cluster.request(1)
    cluster.brokers[1].state.incarnation += 1

    with pytest.raises(StaleIncarnation):
        await cluster.brokers[1].engine.commands.leader_and_isr(request)


async def test_a_grant_for_another_broker_is_refused(cluster: SmallCluster) -> None:
    with pytest.raises(InvalidRequest):
        await cluster.brokers[1].engine.commands.leader_and_isr(cluster.request(2))


async def test_a_former_controller_is_refused_even_after_a_restart(
    cluster: SmallCluster,
) -> None:
    cluster.controller_epoch = 7
    await cluster.grant(1)
    await cluster.stop(1)
    await cluster.start(1)
    cluster.controller_epoch = 6

    with pytest.raises(StaleControllerEpoch):
        await cluster.grant(1, init=True)


async def test_roles_come_with_the_full_grant_only(tmp_path: Path) -> None:
    async with SmallCluster(tmp_path) as cluster:
        await cluster.start(1)
        cluster.publish(1, 0, (1,))

        with pytest.raises(BrokerFenced):
            await cluster.grant(1, replicas=(1,))

        assert await cluster.grant(1, init=True, replicas=(1,)) == [[[rpc.NO_ERROR]]]
        assert (await cluster.produce(1, "v")).base_offset == 0


async def test_a_partition_that_is_not_assigned_here_is_not_started(
    cluster: SmallCluster,
) -> None:
    cluster.publish(2, 0, (2,), partition=1)

    codes = await cluster.grant(1, partitions=(1,), replicas=(2, 3))

    assert codes == [[[InvalidRequest.code]]]
    assert len(cluster.brokers[1].engine.replicas.describe()) == 1


async def test_a_full_grant_that_was_overtaken_sets_nothing_aside(cluster: SmallCluster) -> None:
    """It was sent before the topic was created, timed out, and arrives after the retry."""
    await cluster.produce(1, "v")
    broker = cluster.brokers[1]
    newer = msgspec.structs.replace(cluster.request(1), sequence=8)
    late = msgspec.structs.replace(cluster.request(1, init=True, partitions=()), sequence=7)

    await broker.engine.commands.leader_and_isr(newer)
    await broker.engine.commands.leader_and_isr(late)

    assert len(broker.engine.replicas.describe()) == 1
    assert (await cluster.produce(1, "w")).base_offset == 1


async def test_what_the_full_grant_does_not_name_is_set_aside_and_comes_back(
    cluster: SmallCluster,
) -> None:
    await cluster.produce(1, "v", "w")
    before = cluster.stored(1)

    await cluster.grant(1, init=True, partitions=())

    assert cluster.brokers[1].engine.replicas.describe() == []
    assert cluster.stored(1) == b""
    assert cluster.stored(1, f"{TOPIC}-0.{TOPIC_ID}-stray") == before
    await cluster.grant(1)
    assert cluster.stored(1) == before
    assert cluster.end(1) == 2


async def test_a_recreated_topic_begins_empty_and_the_old_one_is_kept_aside(
    cluster: SmallCluster,
) -> None:
    await cluster.produce(1, "old")

    cluster.publish(1, 0, (1, 2, 3))
    codes = await cluster.grant(1, 2, 3, topic_id=OTHER_ID)

    assert codes == [[[rpc.NO_ERROR]]] * 3
    assert cluster.end(1) == 0
    assert cluster.stored(1, f"{TOPIC}-0.{TOPIC_ID}-stray")
    assert (await cluster.produce(1, "new")).base_offset == 0
    assert await cluster.read(1) == ["new"]


async def test_a_stopped_replica_is_deleted_and_a_late_grant_does_not_bring_it_back(
    cluster: SmallCluster,
) -> None:
    await cluster.produce(1, "v")

    assert await cluster.stop_replica(1, 0) == rpc.NO_ERROR

    assert cluster.brokers[1].engine.replicas.describe() == []
    assert cluster.stored(1) == b""
    assert await cluster.grant(1) == [[[FencedLeaderEpoch.code]]]
    assert await cluster.stop_replica(1, 0) == rpc.NO_ERROR


async def test_an_old_order_to_stop_is_refused(cluster: SmallCluster) -> None:
    cluster.publish(1, 4, (1, 2, 3))
    await cluster.grant(1)

    assert await cluster.stop_replica(1, 3) == FencedLeaderEpoch.code
    assert await cluster.stop_replica(1, 9, topic_id=OTHER_ID) == rpc.NO_ERROR
    assert len(cluster.brokers[1].engine.replicas.describe()) == 1


async def test_a_produce_that_waits_survives_a_move_of_the_leader(cluster: SmallCluster) -> None:
    """Also where the controller stops the former leader's replica at once."""
    cluster.cut = {3}
    produce = asyncio.create_task(cluster.produce(1, "v"))
    await cluster.until(lambda: cluster.end(2) == 1, "2 has the record")
    cluster.publish(2, 1, (1, 2, 3))

    await cluster.grant(1, 2, 3)
    assert await cluster.stop_replica(1, 1, delete=False) == rpc.NO_ERROR
    cluster.cut = set()

    assert (await produce).base_offset == 0
    await cluster.until(
        lambda: cluster.brokers[1].engine.replicas.describe()[0].role == "fenced",
        "the replica is stopped",
    )


async def test_a_produce_that_waits_fails_as_unknown_when_the_new_leader_cannot_be_asked(
    cluster: SmallCluster,
) -> None:
    cluster.cut = {2, 3}
    produce = asyncio.create_task(cluster.produce(1, "v"))
    await cluster.until(lambda: cluster.end(1) == 1, "the record is appended")
    cluster.publish(2, 1, (1, 2, 3))

    await cluster.grant(1)

    with pytest.raises(LeadershipLost):
        await produce


async def test_a_lost_session_fences_until_the_next_incarnation_is_granted(
    cluster: SmallCluster,
) -> None:
    await cluster.produce(1, "v")

    cluster.stores[1].lose_session()

    with pytest.raises(BrokerFenced):
        await cluster.produce(1, "w")
    assert cluster.brokers[1].engine.replicas.describe()[0].role == "fenced"
    await cluster.until(lambda: cluster.brokers[1].state.incarnation == 2, "it registers again")
    with pytest.raises(BrokerFenced):
        await cluster.produce(1, "w")
    cluster.publish(1, 1, (1, 2, 3))
    await cluster.grant(1, 2, 3, init=True)
    assert (await cluster.produce(1, "w")).leader_epoch == 1
    assert await cluster.read(1) == ["v", "w"]


async def test_a_broker_ends_when_another_registers_under_its_id(cluster: SmallCluster) -> None:
    cluster.stores[1].registered_as = "another's"

    cluster.stores[1].hint()

    with pytest.raises(SupersededError):
        await asyncio.wait_for(cluster.brokers[1].failed(), 5)


async def test_a_registration_that_is_gone_is_made_again(cluster: SmallCluster) -> None:
    cluster.stores[1].registered_as = "gone"

    cluster.stores[1].hint()

    await cluster.until(lambda: cluster.brokers[1].state.incarnation == 2, "it registers again")
    assert not cluster.brokers[1].state.granted


async def test_a_restart_keeps_records_and_high_watermark(cluster: SmallCluster) -> None:
    await cluster.produce(1, "v")
    await cluster.stop(1)

    await cluster.start(1)

    row = cluster.brokers[1].engine.replicas.describe()[0]
    assert (row.role, row.log_end_offset, row.high_watermark) == ("fenced", 1, 1)
    assert cluster.brokers[1].state.incarnation == 2


async def test_metadata_is_the_document_of_the_design(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]

    broker.engine.commands.update_metadata(metadata(cluster, 5))

    assert json.loads(broker.metadata.document()) == {
        "cluster_id": "cluster",
        "version": 5,
        "controller": {"id": 9, "url": "http://c/9", "epoch": 1},
        "brokers": [{"id": 1, "url": "http://b/1", "rack": "r", "incarnation": 1}],
        "topics": {TOPIC: {"topic_id": TOPIC_ID, "partitions": [[0, 1, 0, [1, 2, 3], [1, 2, 3]]]}},
    }
    assert json.loads(broker.metadata.document(["no"]))["topics"] == {}


async def test_metadata_takes_deltas_on_its_own_version_only(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]
    broker.engine.commands.update_metadata(metadata(cluster, 5))

    with pytest.raises(StaleVersion):
        broker.engine.commands.update_metadata(metadata(cluster, 8, base=4))
    with pytest.raises(StaleVersion):
        broker.engine.commands.update_metadata(metadata(cluster, 4))
    broker.engine.commands.update_metadata(metadata(cluster, 8, base=5, partitions=2))

    assert broker.metadata.version == 8
    assert broker.metadata.partition_numbers(TOPIC) == [0, 1]


async def test_whoever_waits_for_newer_metadata_gets_it(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]
    broker.engine.commands.update_metadata(metadata(cluster, 5))
    waiting = asyncio.create_task(broker.metadata.wait_newer(5, 60_000))
    await asyncio.sleep(0)

    broker.engine.commands.update_metadata(metadata(cluster, 6))

    assert await asyncio.wait_for(waiting, 5)
    assert not await broker.metadata.wait_newer(6, 1)


async def test_producer_ids_are_never_given_twice(cluster: SmallCluster) -> None:
    given = [
        await cluster.brokers[number].engine.producer_ids.allocate() for number in (1, 2, 1, 2, 3)
    ]

    assert len({identity for identity, _ in given}) == 5
    assert {epoch for _, epoch in given} == {0}


async def test_a_broker_says_why_it_is_not_ready(cluster: SmallCluster) -> None:
    assert cluster.brokers[1].readiness() == []

    cluster.stores[1].lease = False

    assert cluster.brokers[1].readiness()


async def test_a_broker_with_a_full_disk_stays_ready_and_says_so(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves what it has; without it, nobody could read the partitions that it leads."""
    broker = cluster.brokers[1]
    largest, free = broker.settings.message_max_bytes, 0
    monkeypatch.setattr(broker.engine.logs, "space", lambda: (1 << 40, free))
    for free in (0, largest - 1):
        (problem,) = broker.problems()
        assert f"is full: {free} bytes are free" in problem.reason
        assert problem.serving

    free = largest

    assert broker.problems() == []


async def test_a_broker_whose_disk_tells_no_space_reports_nothing_of_it(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def space() -> tuple[int, int]:
        raise FileNotFoundError

    monkeypatch.setattr(cluster.brokers[1].engine.logs, "space", space)
    assert cluster.brokers[1].problems() == []


def damage_an_epoch(cluster: SmallCluster, number: int) -> None:
    """Let a log have a record of a leader epoch that was never published."""
    (partition,) = cluster.brokers[number].engine.replicas.all()
    content = batch("damaged")
    stamp(content, header_at(content), partition.log.log_end_offset, 1029)
    partition.log.append(content)


async def test_defect_18_a_role_that_is_not_taken_makes_the_broker_not_ready(
    cluster: SmallCluster,
) -> None:
    broker, beats = cluster.brokers[1], cluster.wires[1].heartbeats
    await cluster.produce(1, "v")
    damage_an_epoch(cluster, 1)
    cluster.publish(1, 3, (1, 2, 3))

    assert await cluster.grant(1) == [[[UnknownLeaderEpoch.code]]]

    (reason,) = broker.readiness()
    assert reason == (
        f"granted roles not taken: 1, first {TOPIC}-0 at leader epoch 3: "
        "its log has records of a later leader epoch, so it is damaged"
    )
    assert broker.engine.replicas.describe()[0].role_epoch == 0
    late = rpc.LateRow(TOPIC, TOPIC_ID, 0, 0)
    await cluster.until(lambda: beats[-1].late == [late], "heartbeats report it")
    cluster.publish(2, 4, (2, 3))
    assert await cluster.grant(1) == [[[rpc.NO_ERROR]]]
    assert broker.readiness() == []
    assert broker.engine.replicas.describe()[0].role_epoch == 4
    await cluster.until(lambda: beats[-1].late == [], "heartbeats report that it is taken")


@pytest.mark.parametrize("end", ["stopped", "not granted any more"])
async def test_defect_18_a_role_that_is_given_up_is_not_late(
    cluster: SmallCluster, end: str
) -> None:
    damage_an_epoch(cluster, 1)
    cluster.publish(1, 3, (1, 2, 3))
    await cluster.grant(1)
    assert cluster.brokers[1].readiness()

    if end == "stopped":
        assert await cluster.stop_replica(1, 4) == rpc.NO_ERROR
    else:
        await cluster.grant(1, init=True, partitions=())

    assert cluster.brokers[1].readiness() == []


async def test_defect_01_a_role_of_another_log_directory_is_late(cluster: SmallCluster) -> None:
    cluster.publish(1, 3, (1, 2, 3))
    request = cluster.request(1)
    (topic,) = request.topics
    rows = [msgspec.structs.replace(row, directory_epochs={1: 2}) for row in topic.partitions]
    topics = [msgspec.structs.replace(topic, partitions=rows)]
    request = msgspec.structs.replace(request, topics=topics)

    codes = (await cluster.brokers[1].engine.commands.leader_and_isr(request)).codes

    assert codes == [[StorageFailed.code]]
    (reason,) = cluster.brokers[1].readiness()
    assert "log directory" in reason


async def test_defect_18_an_outdated_grant_leaves_no_late_role(cluster: SmallCluster) -> None:
    late = cluster.request(1)
    cluster.publish(1, 3, (1, 2, 3))
    await cluster.grant(1)

    codes = (await cluster.brokers[1].engine.commands.leader_and_isr(late)).codes

    assert codes == [[FencedLeaderEpoch.code]]
    assert cluster.brokers[1].readiness() == []


def test_defect_18_the_oldest_late_role_is_named() -> None:
    late = LateRoles()
    for number, since_ms in ((5, 70), (6, 30), (5, 90)):
        name = TopicPartition(TOPIC, number)
        late.refused(LateRole(name, TOPIC_ID, since_ms, f"reason {since_ms}", since_ms))

    assert late.problems() == [
        f"granted roles not taken: 2, first {TOPIC}-6 at leader epoch 30: reason 30"
    ]
    assert [(one.since_ms, one.reason) for one in late.oldest_first()] == [
        (30, "reason 30"),
        (70, "reason 90"),
    ]


async def test_a_topics_own_segment_size_is_obeyed(cluster: SmallCluster) -> None:
    await cluster.grant(1, 2, 3, init=True, **{"segment.bytes": "1024"})
    for number in range(4):
        await cluster.produce(1, f"{number}" * 600)
    assert len(segments(cluster.brokers[1].engine.replicas.describe()[0].log_dir)) == 4


def segments(log_dir: str) -> list[Path]:
    """Return the segment files of a replica."""
    return list(Path(log_dir).glob("*.log"))

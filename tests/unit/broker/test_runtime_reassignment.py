"""Replicas that a reassignment adds and removes, and the throttle of added ones (R13, KIP-73)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_client.errors import (
    BrokerFenced,
    FencedLeaderEpoch,
    LeadershipLost,
    StorageFailed,
)
from leadline_common import rpc
from leadline_common.rpc import NO_ERROR
from tests.unit.broker.small_cluster import TOPIC_ID, SmallCluster, three

EXPANDED = (4, 1, 2, 3)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    """Brokers 1 to 3 with a partition, and 4 with nothing."""
    async with await three(tmp_path) as running:
        await running.start(4)
        await running.grant(4, init=True, partitions=())
        yield running


async def expand(cluster: SmallCluster) -> None:
    """Add a replica on broker 4, within the leader epoch."""
    assert await cluster.grant(*EXPANDED, replicas=EXPANDED, adding=(4,)) == [[[NO_ERROR]]] * 4


async def shrink(cluster: SmallCluster) -> None:
    """Let 4 lead in the next epoch, without 1, as the last write of a reassignment."""
    cluster.publish(4, 1, (4, 2, 3))
    await cluster.grant(4, 2, 3, replicas=(4, 2, 3))
    assert await cluster.stop_replica(1, 1) == NO_ERROR


def isr(cluster: SmallCluster) -> tuple[int, ...]:
    return cluster.nodes.states["t", 0].isr


def moving(cluster: SmallCluster, leader: int = 1) -> list[rpc.MovingRow]:
    """Return the progress of moving replicas in the leader's latest heartbeat."""
    beats = cluster.wires[leader].heartbeats
    return beats[-1].moving if beats else []


def rates(bytes_per_s: int, task: str = "7") -> list[rpc.MovingRate]:
    """Return the rate of a task that moves the partition."""
    return [rpc.MovingRate(task, bytes_per_s, {TOPIC_ID: [0]})]


async def throttled(cluster: SmallCluster, moving: list[rpc.MovingRate] | None) -> None:
    """Set the rates, and wait until every broker has applied them."""
    cluster.moving = moving
    throttles = [broker.engine.throttle for broker in cluster.brokers.values()]
    await cluster.until(
        lambda: all(one._moving == moving and not one.sending.held for one in throttles),
        "the throttle has arrived",
    )


async def test_an_added_replica_starts_from_nothing_and_joins(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a", "b")
    size = len(cluster.stored(1))

    await expand(cluster)
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")

    assert cluster.stored(4) == cluster.stored(1)
    done = [rpc.MovingRow("t", 0, 4, 0, size)]
    await cluster.until(lambda: moving(cluster) == done, "the leader tells that 4 is there")


async def test_the_last_step_moves_leadership_and_deletes_what_is_left(
    cluster: SmallCluster,
) -> None:
    await cluster.produce(1, "a", "b")
    await expand(cluster)
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")

    await shrink(cluster)

    assert cluster.brokers[1].engine.replicas.describe() == []
    assert not (cluster.root / "1" / "t-0").exists()
    with pytest.raises(BrokerFenced):  # It has no metadata that would name the leader.
        await cluster.produce(1, "refused")
    assert (await cluster.produce(4, "c")).base_offset == 2
    assert await cluster.read(4) == ["a", "b", "c"]
    await cluster.until(lambda: moving(cluster, 4) == [], "nothing moves any more")


async def test_a_dropped_leader_answers_who_waits(cluster: SmallCluster) -> None:
    cluster.cut.update((2, 3))
    waiting = asyncio.create_task(cluster.produce(1, "unknown"))
    await cluster.until(lambda: cluster.end(1) == 1, "it is appended")

    cluster.publish(2, 1, (2, 3))
    assert await cluster.stop_replica(1, 1) == NO_ERROR

    with pytest.raises(LeadershipLost):
        await waiting


async def test_a_replica_that_is_dropped_while_it_fetches_leaves_no_trace(
    cluster: SmallCluster,
) -> None:
    await cluster.produce(1, "a")
    await expand(cluster)
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")
    cluster.publish(1, 1, (1, 2, 3))

    await cluster.grant(1, 2, 3)
    assert await cluster.stop_replica(4, 1) == NO_ERROR
    await cluster.produce(1, "b")

    assert cluster.brokers[4].engine.replicas.describe() == []
    assert not (cluster.root / "4" / "t-0").exists()
    led = cluster.brokers[1].engine.replicas.named("t", 0)
    assert led is not None
    assert {session.broker_id for session in led.subscribers or ()} <= {2, 3}


async def test_a_replica_that_is_dropped_while_it_is_held_back_can_come_again(
    cluster: SmallCluster,
) -> None:
    await throttled(cluster, rates(0))
    await cluster.produce(1, "a")
    await expand(cluster)
    cluster.publish(1, 1, (1, 2, 3))
    await cluster.grant(1, 2, 3)
    assert await cluster.stop_replica(4, 1) == NO_ERROR
    await throttled(cluster, None)
    assert cluster.brokers[4].engine.replicas.describe() == []

    cluster.publish(1, 2, (1, 2, 3))
    await expand(cluster)

    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")
    assert cluster.stored(4) == cluster.stored(1)


async def test_a_leader_that_drops_a_follower_within_the_epoch_sends_it_nothing_more(
    cluster: SmallCluster,
) -> None:
    await throttled(cluster, rates(0))
    await cluster.produce(1, "a")
    await expand(cluster)
    led = cluster.brokers[1].engine.replicas.named("t", 0)
    assert led is not None

    await cluster.grant(1, 2, 3)
    await throttled(cluster, None)
    await cluster.produce(1, "b")

    assert 4 not in {session.broker_id for session in led.subscribers or ()}
    assert (cluster.end(4), isr(cluster)) == (0, (1, 2, 3))


async def test_a_replica_that_was_removed_can_be_brought_back_in_the_same_epoch(
    cluster: SmallCluster,
) -> None:
    await cluster.produce(1, "a")
    shrunk = cluster.publish(1, 1, (1, 2))
    await cluster.grant(1, 2, replicas=(1, 2))
    assert await cluster.stop_replica(3, shrunk.leader_epoch) == NO_ERROR
    assert await cluster.grant(3, replicas=(1, 2, 3)) != [[[NO_ERROR]]], "an order from before"

    await cluster.grant(1, 2, 3, replicas=(1, 2, 3), adding=(3,))

    await cluster.until(lambda: isr(cluster) == (1, 2, 3), "3 is back")


async def test_a_stop_that_was_repeated_does_not_delete_the_replica_that_came_back(
    cluster: SmallCluster,
) -> None:
    """The controller sends again what is not answered in time; the first one may arrive last."""
    await cluster.produce(1, "a")
    shrunk = cluster.publish(1, 1, (1, 2))
    await cluster.grant(1, 2, replicas=(1, 2))
    delayed = cluster.stop_request(3, shrunk.leader_epoch)
    assert await cluster.stop_replica(3, shrunk.leader_epoch) == NO_ERROR
    await cluster.grant(1, 2, 3, replicas=(1, 2, 3), adding=(3,))
    await cluster.until(lambda: isr(cluster) == (1, 2, 3), "3 is back")

    answer = await cluster.brokers[3].engine.commands.stop_replica(delayed)

    assert answer.codes == [[FencedLeaderEpoch.code]]
    assert cluster.stored(3) == cluster.stored(1)
    assert await cluster.stop_replica(3, shrunk.leader_epoch) == NO_ERROR
    assert cluster.brokers[3].engine.replicas.describe() == []


async def test_a_grant_that_was_delayed_does_not_bring_back_a_replica_that_was_stopped_since(
    cluster: SmallCluster,
) -> None:
    """The controller gave up the answer, and cancelled the reassignment."""
    await cluster.produce(1, "a")
    delayed = cluster.request(4, replicas=EXPANDED, adding=(4,))
    assert await cluster.stop_replica(4, 0) == NO_ERROR

    codes = (await cluster.brokers[4].engine.commands.leader_and_isr(delayed)).codes

    assert codes == [[FencedLeaderEpoch.code]]
    assert cluster.brokers[4].engine.replicas.describe() == []
    await expand(cluster)
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")


async def test_a_grant_that_was_overtaken_brings_no_replica_back(cluster: SmallCluster) -> None:
    """The replica led in that epoch and became a stray; restored, it would lead in it again."""
    late = cluster.request(1)
    cluster.publish(2, 1, (2, 3))
    await cluster.grant(1, init=True, partitions=())

    codes = (await cluster.brokers[1].engine.commands.leader_and_isr(late)).codes

    assert codes == [[FencedLeaderEpoch.code]]
    assert cluster.brokers[1].engine.replicas.describe() == []


async def test_a_stopped_replica_keeps_its_log_and_follows_again(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a")
    await cluster.until(lambda: cluster.end(3) == 1, "3 has it")

    assert await cluster.stop_replica(3, 0, delete=False) == NO_ERROR
    assert cluster.brokers[3].engine.replicas.describe()[0].role == "fenced"
    await cluster.grant(3)

    await cluster.produce(1, "b")
    await cluster.until(lambda: cluster.end(3) == 2, "3 follows")


async def test_the_throttle_holds_moving_replicas_and_nobody_else(cluster: SmallCluster) -> None:
    """At a rate of 0, any byte that passes either side shows."""
    await throttled(cluster, rates(0))
    await cluster.produce(1, "a", "b")
    size = len(cluster.stored(1))
    await expand(cluster)

    for number in range(20):
        await cluster.produce(1, f"{number}", timeout_ms=2_000)

    assert (cluster.end(4), isr(cluster)) == (0, (1, 2, 3))
    assert (moving(cluster)[0].bytes_left, moving(cluster)[0].bytes_total > size) == (
        moving(cluster)[0].bytes_total,
        True,
    )
    await throttled(cluster, None)
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")


@pytest.mark.parametrize("side", ["sending", "receiving"])
async def test_each_side_holds_the_throttle_by_itself(cluster: SmallCluster, side: str) -> None:
    """The controller sets both; a side that lacks the rate must not disable the other."""
    broker = cluster.brokers[1 if side == "sending" else 4]
    throttle = getattr(broker.engine.throttle, side)
    await cluster.produce(1, "a")
    broker.engine.throttle._moving = rates(0)
    broker.engine.throttle._groups = {(TOPIC_ID, 0): "7"}
    throttle.set_rates({"7": 0})
    broker.engine.heartbeats.on_response = lambda _: None

    await expand(cluster)
    await cluster.produce(1, "b")
    assert cluster.end(4) == 0

    throttle.set_rates({"7": rpc.NO_THROTTLE})
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")


async def test_defect_15_another_task_at_a_standstill_holds_up_nobody_else(
    cluster: SmallCluster,
) -> None:
    """Each task's throttle is that of its own replicas."""
    await throttled(cluster, [rpc.MovingRate("7", 0, {TOPIC_ID: [9]}), *rates(1 << 30, "8")])
    await cluster.produce(1, "a", "b")
    await expand(cluster)
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")


async def test_defect_15_a_replica_without_a_rate_waits_for_it(cluster: SmallCluster) -> None:
    await throttled(cluster, [])
    await cluster.produce(1, "a", "b")
    await expand(cluster)
    for number in range(5):
        await cluster.produce(1, f"{number}", timeout_ms=2_000)
    assert (cluster.end(4), isr(cluster)) == (0, (1, 2, 3))
    await throttled(cluster, rates(1 << 30))
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")


async def test_defect_15_fetchers_of_tasks_that_have_ended_end(cluster: SmallCluster) -> None:
    """A broker that runs for years moves replicas for many tasks."""
    fetchers = cluster.brokers[4].engine.fetchers
    await cluster.produce(1, "a")
    await throttled(cluster, rates(0, "7"))
    await expand(cluster)
    for task in ("8", "9"):
        await throttled(cluster, rates(0, task))
    lanes = [lane for _, lane in fetchers._fetchers if isinstance(lane, str)]
    assert lanes == ["9"]
    await throttled(cluster, rates(1 << 30, "10"))
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")
    await throttled(cluster, None)
    assert [lane for _, lane in fetchers._fetchers if isinstance(lane, str)] == []


async def test_nothing_moves_before_the_controller_has_said_how_fast(
    cluster: SmallCluster,
) -> None:
    """Its command to add a replica may arrive before the heartbeat response with the rate."""
    broker = cluster.brokers[1]
    heartbeats, on_response = broker.engine.heartbeats, broker.engine.on_heartbeat_response
    throttle = broker.engine.throttle
    heartbeats.on_response = lambda _: None
    await cluster.produce(1, "a")
    throttle.on_heartbeat_sent()

    await expand(cluster)
    on_response(rpc.HeartbeatResponse(0, 1))
    assert throttle.sending.held, "the answer to a heartbeat from before the order"
    await cluster.produce(1, "b")
    assert cluster.end(4) == 0

    heartbeats.on_response = on_response
    heartbeats.trigger()
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")
    assert not throttle.sending.held


async def test_the_throttle_of_a_former_controller_is_ignored(cluster: SmallCluster) -> None:
    cluster.controller_epoch = 7
    await cluster.grant(1)
    broker = cluster.brokers[1]

    broker.engine.on_heartbeat_response(rpc.HeartbeatResponse(0, 6, rates(1_000)))
    assert broker.engine.throttle.bytes_per_s == rpc.NO_THROTTLE

    broker.engine.on_heartbeat_response(rpc.HeartbeatResponse(0, 7, rates(1_000)))
    assert broker.engine.throttle.bytes_per_s == 1_000


async def test_what_was_moved_is_counted(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a", "b")
    size = float(len(cluster.stored(1)))
    await expand(cluster)
    await cluster.until(lambda: isr(cluster) == EXPANDED, "4 is in sync")

    def value(number: int, name: str) -> float:
        counter = getattr(cluster.brokers[number]._dependencies.metrics, name)
        return float(counter._value.get())

    assert value(1, "moved_out") == value(4, "moved_in") == size
    assert value(2, "moved_in") == value(1, "moved_in") == 0


async def test_a_disk_that_cannot_be_read_keeps_no_heartbeat_back(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known to be copied then: all of the log is left."""
    await cluster.produce(1, "a")
    await cluster.grant(1, replicas=EXPANDED, adding=(4,))
    partition = cluster.brokers[1].engine.replicas.all()[0]

    def unreadable(*_: object) -> int:
        raise StorageFailed("the disk does not answer")

    monkeypatch.setattr(type(partition.log), "size_from", unreadable)
    [row] = partition.moving()

    assert (row.bytes_left, row.bytes_total) == (partition.log.size_bytes, partition.log.size_bytes)

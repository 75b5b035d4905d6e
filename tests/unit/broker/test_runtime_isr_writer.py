"""The ISR writer: which proposals it may still write, and for which replicas (R7, R9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from leadline_broker.domain.effects import Effect, IsrProposal, ReadState, WriteIsr
from leadline_broker.domain.leadership import IsrOutcome, IsrWriteResult
from leadline_broker.domain.replica import Replica
from leadline_broker.domain.state import PublishedState, TopicIdPartition
from leadline_broker.runtime.ports import Log
from leadline_broker.runtime.replication import isr_writer
from leadline_broker.runtime.replication.isr_writer import IsrWriter
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_common import rpc
from leadline_common.settings import BrokerSettings
from tests.support.services.zookeeper import until
from tests.unit.broker.log_support import batch, open_log
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, NodeStore, SmallCluster, StateNodes


def made(root: Path, number: int) -> Partition:
    root.joinpath(str(number)).mkdir()
    log = open_log(root / str(number))
    settings = TopicSettings(BrokerSettings(broker_id=1, log_dir=str(root))).of({})
    return Partition(TOPIC, TOPIC_ID, number, log, fresh(log, number), settings)


def fresh(log: Log, number: int) -> Replica:
    return Replica(broker_id=1, topic_id=TOPIC_ID, partition=number, log=log)


async def test_a_proposal_of_a_lost_session_is_not_written_in_the_next(tmp_path: Path) -> None:
    """The store adds the current incarnation, so ZooKeeper would accept the write."""
    states = {(TOPIC, number): PublishedState(1, 0, (1, 2), (), 0) for number in (0, 1)}
    store = NodeStore(1, StateNodes(states))
    shrink = IsrProposal(1, leader_epoch=0, isr=(1,), eligible=(), state_version=0)
    writer = IsrWriter(
        store,
        execute=lambda *_: None,
        on_committed=lambda *_: None,
        on_applied=lambda _: None,
    )
    fenced, leading = made(tmp_path, 0), made(tmp_path, 1)
    writer.write(fenced, shrink)
    writer.write(leading, shrink)
    fenced.replica = fresh(fenced.log, 0)

    running = asyncio.create_task(writer.run())
    try:
        await until(lambda: bool(store.written), "a proposal is written", 5.0)
    finally:
        running.cancel()

    assert len(store.written) == 1


class SlowStore(NodeStore):
    """Calls `during` while it writes."""

    during: Callable[[], None] = staticmethod(lambda: None)

    async def write_isrs(
        self, changes: Sequence[tuple[TopicIdPartition, IsrProposal]]
    ) -> list[IsrOutcome]:
        self.during()
        return await super().write_isrs(changes)


async def test_many_proposals_are_written_in_parts_each_as_it_is_by_then(tmp_path: Path) -> None:
    states = {(TOPIC, number): PublishedState(1, 0, (1, 2), (), 0) for number in range(4)}
    store = SlowStore(1, StateNodes(states))
    first, newer = (
        IsrProposal(number, leader_epoch=0, isr=isr, eligible=(), state_version=0)
        for number, isr in ((1, (1,)), (2, (1, 2)))
    )
    writer = IsrWriter(
        store,
        execute=lambda *_: None,
        on_committed=lambda *_: None,
        on_applied=lambda _: None,
        at_once=1,
    )
    partitions = [made(tmp_path, number) for number in range(4)]
    for partition in partitions:
        writer.write(partition, first)

    def change() -> None:
        store.during = lambda: None
        partitions[1].replica = fresh(partitions[1].log, 1)
        writer.write(partitions[2], newer)

    store.during = change
    running = asyncio.create_task(writer.run())
    try:
        await until(lambda: newer in store.written, "the newer proposal is written", 5.0)
    finally:
        running.cancel()

    assert store.written == [first, first, newer]


async def test_a_result_is_not_applied_to_a_replica_that_was_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many results are applied in turns, between which roles are taken."""
    monkeypatch.setattr(isr_writer, "_APPLIED_AT_ONCE", 1)
    states = {(TOPIC, number): PublishedState(1, 0, (1, 2), (), 0) for number in range(3)}
    partitions = [made(tmp_path, number) for number in range(3)]
    applied: list[int] = []

    def replace() -> None:
        partitions[1].replica = fresh(partitions[1].log, 1)

    def on_applied(partition: Partition) -> None:
        applied.append(partition.partition)
        asyncio.get_running_loop().call_soon(replace)

    writer = IsrWriter(
        NodeStore(1, StateNodes(states)),
        execute=lambda *_: None,
        on_committed=lambda *_: None,
        on_applied=on_applied,
    )
    shrink = IsrProposal(1, leader_epoch=0, isr=(1,), eligible=(), state_version=0)
    for partition in partitions:
        writer.write(partition, shrink)

    running = asyncio.create_task(writer.run())
    try:
        await until(lambda: 2 in applied, "the last result is applied", 5.0)
    finally:
        running.cancel()

    assert applied == [0, 2]


class ConflictingStore(NodeStore):
    """Refuses every transaction, but not because of the state node's version."""

    def _write(self, name: TopicIdPartition, proposal: IsrProposal) -> IsrOutcome:
        del name
        self.written.append(proposal)
        return IsrWriteResult.CONFLICT, -1


async def test_a_write_that_is_refused_again_and_again_is_paced(tmp_path: Path) -> None:
    store = ConflictingStore(1, StateNodes({(TOPIC, 0): PublishedState(1, 0, (1, 2), (), 0)}))
    partition = made(tmp_path, 0)
    partition.replica.on_leader_and_isr(rpc.PartitionRow(0, 1, 0, (1, 2), (1, 2), 0), 0)

    def execute(_: Partition, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, WriteIsr):
                writer.write(partition, effect.proposal)
            if isinstance(effect, ReadState):
                writer.read(partition)

    writer = IsrWriter(
        store,
        execute=execute,
        on_committed=lambda *_: None,
        on_applied=lambda _: None,
    )
    partition.log.append(batch(0))
    execute(partition, partition.replica.maybe_change_isr(1_000_000))

    running = asyncio.create_task(writer.run())
    for _ in range(1_000):
        await asyncio.sleep(0)
    running.cancel()

    assert 1 <= len(store.written) < 10


class MisspeltStore(NodeStore):
    """Has a state of partition 0 that cannot be decoded, because a person has edited it."""

    is_misspelt = True

    async def read_states(
        self, partitions: Sequence[TopicIdPartition]
    ) -> dict[TopicIdPartition, PublishedState | None]:
        found = await super().read_states(partitions)
        if self.is_misspelt:
            found.pop((TOPIC, TOPIC_ID, 0), None)
        return found


async def test_a_state_that_cannot_be_read_is_asked_for_until_it_can(tmp_path: Path) -> None:
    """Meanwhile its leader keeps leading, and the states of other partitions are applied."""
    newer = PublishedState(1, 0, (1,), (), 1)
    store = MisspeltStore(1, StateNodes({(TOPIC, number): newer for number in (0, 1)}))
    partitions = [made(tmp_path, number) for number in (0, 1)]
    for number, partition in enumerate(partitions):
        partition.replica.on_leader_and_isr(rpc.PartitionRow(number, 1, 0, (1, 2), (1, 2), 0), 0)
    writer = IsrWriter(
        store,
        execute=lambda *_: None,
        on_committed=lambda *_: None,
        on_applied=lambda _: None,
    )
    for partition in partitions:
        writer.read(partition)

    running = asyncio.create_task(writer.run())
    try:
        await until(lambda: partitions[1].replica.state.isr == (1,), "the other one is taken")
        assert partitions[0].replica.leadership is not None
        assert partitions[0].replica.state.isr == (1, 2)
        store.is_misspelt = False
        await until(lambda: partitions[0].replica.state.isr == (1,), "it is taken once repaired")
    finally:
        running.cancel()


async def test_defect_26_a_follower_that_catches_up_while_its_removal_is_written_rejoins(
    tmp_path: Path,
) -> None:
    """Without new records too: below min.insync.replicas there can be none."""
    async with SmallCluster(tmp_path, replica_lag_time_max_ms=200) as cluster:
        await cluster.start(1, 2)
        cluster.publish(1, 0, (1, 2))
        await cluster.grant(1, 2, init=True, replicas=(1, 2))
        await cluster.produce(1, "first")
        leader = cluster.brokers[1].engine
        leading = leader.replicas.named(TOPIC, 0)
        assert leading is not None
        cluster.stores[1].writing.clear()
        cluster.cut.add(2)
        unanswered = asyncio.create_task(cluster.produce(1, "second"))
        await cluster.until(lambda: leading.replica.leading().pending is not None, "it lags")

        cluster.cut.clear()
        await unanswered
        await leader.maintenance.check_isrs()
        cluster.stores[1].writing.set()

        await cluster.until(lambda: cluster.stores[1].written != [], "its removal is written")
        await cluster.until(
            lambda: (
                cluster.nodes.states[TOPIC, 0].isr == (1, 2) and len(cluster.stores[1].written) > 1
            ),
            "it rejoins",
        )

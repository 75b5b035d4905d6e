"""A grant that says what is applied already: a new controller sends thousands of these."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from leadline_broker.domain.replica import Replica, Role
from leadline_broker.runtime.replication.late_roles import LateRole
from leadline_client.errors import FencedLeaderEpoch
from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common import rpc
from leadline_common.directories import DirectoryEpochs
from leadline_common.rpc import NO_ERROR, PartitionRow
from tests.unit.broker.replicas import AR, ME, replica
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, three

ORDER = (3, 7)

# What a state version stands for: ISR, eligible replicas, directory epochs.
STATES: dict[int, tuple[tuple[int, ...], tuple[int, ...], DirectoryEpochs | None]] = {
    3: (AR, (), None),
    4: ((1, 2), (), None),
    5: ((1,), (2,), None),
    6: (AR, (), {ME: 2}),
}


def as_published(
    leader: int, epoch: int, replicas: tuple[int, ...], adding: tuple[int, ...], version: int
) -> PartitionRow:
    isr, eligible, directory_epochs = STATES[version]
    return PartitionRow(
        0, leader, epoch, isr, replicas, version, eligible, adding, 0, directory_epochs
    )


ROWS = st.builds(
    as_published,
    st.sampled_from([ME, 2, NO_LEADER]),
    st.integers(5, 6),
    st.sampled_from([AR, (1, 2, 4)]),
    st.sampled_from([(), (3,)]),
    st.sampled_from(sorted(STATES)),
)


def state_of(made: Replica) -> dict[str, object]:
    """Return all of a replica's state but the order, and what it knows of its followers."""
    found = {
        field.name: getattr(made.state, field.name)
        for field in fields(made.state)
        if field.name not in ("order", "log")
    }
    if made.leadership is not None:
        found["progress"] = copy.deepcopy(made.leadership.progress)
        found["pending"] = made.leadership.pending
    return found | {"role": made.role, "leadership": made.leadership}


@given(
    st.lists(ROWS, min_size=1, max_size=4),
    st.none() | ROWS,
    st.sampled_from([(3, 6), ORDER, (4, 1)]),
)
def test_what_repeats_changes_nothing(
    before: list[PartitionRow], other: PartitionRow | None, order: tuple[int, int]
) -> None:
    made, _ = replica([1, 1])
    last = other or before[-1]
    for row in before:
        made.on_leader_and_isr(row, 0, ORDER)
    known = state_of(made)
    repeats = made.repeats(last, order)
    event(f"repeats: {repeats}")

    answer = made.on_leader_and_isr(last, 100, order)

    if repeats:
        assert answer == (NO_ERROR, [])
        assert state_of(made) == known
        assert made.state.order == order


@pytest.mark.parametrize("leader", [ME, 2, NO_LEADER])
def test_the_last_grant_repeats_and_any_other_does_not(leader: int) -> None:
    made, _ = replica()
    row = PartitionRow(0, leader, 5, AR, AR, 3)
    made.on_leader_and_isr(row, 0, ORDER)

    assert made.repeats(row, ORDER)
    assert not made.repeats(row, (3, 6))
    for change in (
        {"leader": 3},
        {"leader_epoch": 6},
        {"replicas": (1, 3, 2)},
        {"adding": (3,)},
    ):
        assert not made.repeats(msgspec.structs.replace(row, **change), ORDER)
    leads = leader == ME
    newer = msgspec.structs.replace(row, isr=(1, 2), state_version=4)
    assert made.repeats(newer, ORDER) is not leads


def test_a_fenced_replica_takes_its_role() -> None:
    made, _ = replica()
    row = PartitionRow(0, 2, 5, AR, AR, 3)
    made.on_leader_and_isr(row, 0, ORDER)
    made.step_down()

    assert made.role is Role.FENCED
    assert not made.repeats(row, ORDER)


# -- as a command --------------------------------------------------------------


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    """Three brokers with a partition that 1 leads."""
    async with await three(tmp_path) as running:
        yield running


async def test_a_request_between_a_grant_and_its_repetition_is_older(
    cluster: SmallCluster,
) -> None:
    delayed = cluster.stop_request(2, 0)

    await cluster.grant(2)
    answer = await cluster.brokers[2].engine.commands.stop_replica(delayed)

    assert answer.codes == [[FencedLeaderEpoch.code]]
    assert len(cluster.brokers[2].engine.replicas.describe()) == 1


async def test_a_repeated_grant_ends_a_mark(cluster: SmallCluster) -> None:
    commands = cluster.brokers[2].engine.commands
    role = TopicPartition(TOPIC, 0)
    commands.late_roles.refused(LateRole(role, TOPIC_ID, 0, "the disk was full", 0))

    await cluster.grant(2)

    assert commands.late_roles.problems() == []


async def test_a_role_that_failed_half_way_is_applied_by_its_repetition(
    cluster: SmallCluster,
) -> None:
    """The state was taken, but heartbeats lack the role until it is applied."""
    replicas = cluster.brokers[2].engine.replicas
    partition = replicas.all()[0]
    cluster.publish(3, 1, (1, 2, 3))
    row = cluster.request(2).topics[0].partitions[0]
    partition.replica.on_leader_and_isr(row, 0)

    await cluster.grant(2)

    assert partition.applied_epoch == 1
    assert replicas.digest == rpc.replica_fingerprint(TOPIC_ID, 0, 1)


async def test_a_repeated_grant_binds_the_replica_to_its_present_directory(
    cluster: SmallCluster,
) -> None:
    state = cluster.brokers[2].engine.replicas.all()[0].replica.state
    state.directory_epoch = 2

    await cluster.grant(2)

    assert state.directory_epoch == 1

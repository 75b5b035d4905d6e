"""The nodes of consumer groups in ZooKeeper, also with concurrent writers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes, znodes
from leadline_common.leader_election import LeadershipTerm, TermEnded
from leadline_common.zk.client import READ_BATCH
from leadline_common.zk.errors import MultiFailed, NotPermitted
from leadline_common.zk.ops import ANY_VERSION, MultiResults, Op, SetOp, Stat
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry
from leadline_coordinator.adapters.group_nodes import GroupNodes
from leadline_coordinator.domain.records import (
    CommittedOffset,
    GroupRecord,
    MemberCredentials,
    MemberSubscription,
)
from tests.support.services.zookeeper import SESSION_TIMEOUT_MS

P = TopicPartition("t", 0)
EMPTY = GroupRecord("g", "range", "eager", 1)
OWNED = GroupRecord("g", "range", "eager", 2, {"m": MemberSubscription(topics=("t",))}, {P: "m"})
EMPTY_AGAIN = GroupRecord("g", "range", "eager", 3)
GROUPS = 300
LONG_NAME = "名" * 255
"""A group's name. The name of its znode has nine characters for each of these."""


def _owning(group: str, generation: int) -> GroupRecord:
    """Return a group whose only member has everything."""
    member = f"{group}-m"
    return GroupRecord(
        group,
        "range",
        "eager",
        generation,
        {member: MemberSubscription(topics=("t",))},
        {P: member},
        credentials={member: MemberCredentials()},
    )


class CountingSession(ZkSession):
    """Counts the reads by method."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    async def get_many(
        self, paths: Sequence[str], *, batch_size: int = READ_BATCH
    ) -> list[tuple[bytes, Stat] | None]:
        self.reads["get_many"] += 1
        return await super().get_many(paths, batch_size=batch_size)

    async def get_permitted_children(
        self, paths: Sequence[str], *, batch_size: int = READ_BATCH
    ) -> list[list[str] | NotPermitted | None]:
        self.reads["get_permitted_children"] += 1
        return await super().get_permitted_children(paths, batch_size=batch_size)


class OvertakenSession(ZkSession):
    """Another coordinator is elected as soon as so many multis are sent."""

    left = -1

    def submit_multi(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        if self.left == 0:
            super().submit_multi([SetOp(consumer_znodes.COORDINATOR_EPOCH, b"1", ANY_VERSION)])
        self.left -= 1
        return super().submit_multi(ops)


@pytest.fixture
async def overtaken(zk_chroot: str) -> AsyncIterator[OvertakenSession]:
    session = OvertakenSession()
    await session.start(zk_chroot, SESSION_TIMEOUT_MS)
    await session.ensure_path(consumer_znodes.GROUPS)
    await session.ensure_path(znodes.AUDIT)
    await session.create(consumer_znodes.COORDINATOR_EPOCH, b"0")
    try:
        yield session
    finally:
        await session.close()


MANY = {TopicPartition("t", n): CommittedOffset(n, 0) for n in range(1_500)}
"""Too many for one multi."""


async def test_a_write_that_another_coordinator_cut_off_is_not_said_to_be_refused(
    overtaken: OvertakenSession,
) -> None:
    """One that another coordinator was elected before has changed nothing."""
    nodes = GroupNodes(overtaken)
    await nodes.record(LeadershipTerm(0, 0), EMPTY)

    overtaken.left = 1
    with pytest.raises(MultiFailed):
        await nodes.write_offsets(LeadershipTerm(0, 0), "g", MANY)

    (found,) = await GroupNodes(overtaken).load()
    assert 0 < len(found.offsets) < len(MANY)
    with pytest.raises(TermEnded):
        await nodes.write_offsets(LeadershipTerm(0, 0), "g", MANY)


async def test_a_deletion_that_another_coordinator_cut_off_is_not_said_to_be_refused(
    overtaken: OvertakenSession,
) -> None:
    nodes = GroupNodes(overtaken)
    await nodes.write_offsets(LeadershipTerm(0, 0), "g", MANY)

    overtaken.left = 1
    with pytest.raises(MultiFailed):
        await nodes.delete_group(LeadershipTerm(0, 0), "g")

    (found,) = await GroupNodes(overtaken).load()
    assert 0 < len(found.offsets) < len(MANY)


async def test_a_first_write_after_the_next_election_has_changed_nothing(
    overtaken: OvertakenSession,
) -> None:
    overtaken.left = 0
    with pytest.raises(TermEnded):
        await GroupNodes(overtaken).write_offsets(LeadershipTerm(0, 0), "new", {P: MANY[P]})

    assert await GroupNodes(overtaken).load() == []


async def test_audit_entries_of_many_requests_are_written_though_one_multi_has_no_room(
    overtaken: OvertakenSession,
) -> None:
    """A write carries those of all requests that came during the one before it."""
    term, nodes = LeadershipTerm(0, 0), GroupNodes(overtaken)
    entry = AuditEntry(0, "cause", "admin", "offsets_reset", reason="r" * 200_000)

    await nodes.write_offsets(term, "g", {P: MANY[P]}, [entry] * 6)

    assert len(await overtaken.get_children(znodes.AUDIT)) == 6
    (found,) = await GroupNodes(overtaken).load()
    assert found.offsets == {P: MANY[P]}


async def test_writers_that_have_to_look_first_do_not_forget_what_the_other_has_written(
    zk_session: ZkSession,
) -> None:
    await zk_session.ensure_path(consumer_znodes.GROUPS)
    await zk_session.create(consumer_znodes.COORDINATOR_EPOCH, b"0")
    term = LeadershipTerm(0, 0)
    await GroupNodes(zk_session).record(term, EMPTY)

    nodes = GroupNodes(zk_session)  # as after a lost connection: nothing is known of the group
    committing = nodes.write_offsets(term, "g", {P: CommittedOffset(7, 0)})
    await asyncio.gather(nodes.record(term, OWNED), committing)
    await nodes.record(term, EMPTY_AGAIN)

    (found,) = await GroupNodes(zk_session).load()
    assert found.record == EMPTY_AGAIN
    assert found.offsets == {P: CommittedOffset(7, 0)}


async def test_groups_are_read_together_with_a_fixed_number_of_reads(
    zk_session: ZkSession, zk_chroot: str
) -> None:
    await zk_session.ensure_path(consumer_znodes.GROUPS)
    await zk_session.create(consumer_znodes.COORDINATOR_EPOCH, b"0")
    term, writer = LeadershipTerm(0, 0), GroupNodes(zk_session)
    wanted = {name: _owning(name, n) for n, name in enumerate(f"g{n}" for n in range(GROUPS))}
    await asyncio.gather(*(writer.record(term, one) for one in wanted.values()))
    committing = (
        writer.write_offsets(term, name, {P: CommittedOffset(one.generation, 0)})
        for name, one in wanted.items()
    )
    await asyncio.gather(*committing)

    session = CountingSession()
    await session.start(zk_chroot, SESSION_TIMEOUT_MS)
    found = await GroupNodes(session).load()
    await session.close()

    assert {one.record.name: one.record for one in found} == wanted
    assert all(one.offsets == {P: CommittedOffset(one.record.generation, 0)} for one in found)
    # Up to 250 groups at once: nodes, members with owners, and offsets; names of both levels.
    assert session.reads == {"get_many": 2 * 3, "get_permitted_children": 2 * 2}


async def test_a_group_with_a_long_name_and_many_offsets_is_read(zk_session: ZkSession) -> None:
    """The paths of 1,000 of its offsets are too large for one request."""
    await zk_session.ensure_path(consumer_znodes.GROUPS)
    await zk_session.create(consumer_znodes.COORDINATOR_EPOCH, b"0")
    term = LeadershipTerm(0, 0)
    offsets = {TopicPartition("t", n): CommittedOffset(n, 0) for n in range(1_000)}
    await GroupNodes(zk_session).write_offsets(term, LONG_NAME, offsets)

    (found,) = await GroupNodes(zk_session).load()

    assert found.record.name == LONG_NAME
    assert found.offsets == offsets

"""The nodes of consumer groups in ZooKeeper, also with concurrent writers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes
from leadline_common.leader_election import LeadershipTerm
from leadline_common.zk.client import READ_BATCH
from leadline_common.zk.ops import Stat
from leadline_common.zk.session import ZkSession
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

    async def get_children_many(
        self, paths: Sequence[str], *, batch_size: int = READ_BATCH
    ) -> list[list[str] | None]:
        self.reads["get_children_many"] += 1
        return await super().get_children_many(paths, batch_size=batch_size)


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
    assert session.reads == {"get_many": 2 * 3, "get_children_many": 2 * 2}


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

"""The nodes of consumer groups in ZooKeeper, also with concurrent writers."""

from __future__ import annotations

import asyncio

from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes
from leadline_common.leader_election import LeadershipTerm
from leadline_common.zk.session import ZkSession
from leadline_coordinator.adapters.group_nodes import GroupNodes
from leadline_coordinator.domain.records import CommittedOffset, GroupRecord, MemberSubscription

P = TopicPartition("t", 0)
EMPTY = GroupRecord("g", "range", "eager", 1)
OWNED = GroupRecord("g", "range", "eager", 2, {"m": MemberSubscription(topics=("t",))}, {P: "m"})
EMPTY_AGAIN = GroupRecord("g", "range", "eager", 3)


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

"""Committed offsets on their way to ZooKeeper: what is waited for, what is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from leadline_client.errors import NotCoordinator, StoreOutcomeUnknown
from leadline_client.wire import TopicPartition
from leadline_common.clock import SystemClock
from leadline_common.cluster_time import ClusterTime
from leadline_common.leader_election import LeadershipTerm, TermEnded
from leadline_common.settings import CoordinatorSettings
from leadline_common.zk.errors import ConnectionLoss, NotPermitted
from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.records import CommittedOffset
from leadline_coordinator.runtime.committer import OffsetCommitter
from leadline_coordinator.runtime.context import CoordinatorContext, CoordinatorMetrics
from leadline_coordinator.runtime.ports import BrokerClient, CoordinatorStore

P = TopicPartition("t", 0)
Q = TopicPartition("t", 1)


class SlowStore:
    """Holds offsets; a write waits until it is let through."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self.writing = asyncio.Event()
        self.let_through = asyncio.Event()
        self.failures: list[Exception | None] = []
        """How the next writes fail, the last one first; None is a write that succeeds."""
        self.audit: list[AuditEntry] = []
        self.groups = self

    async def write_offsets(
        self,
        _: LeadershipTerm,
        __: str,
        offsets: Mapping[TopicPartition, CommittedOffset | None],
        audit: Sequence[AuditEntry],
    ) -> None:
        self.writing.set()
        await self.let_through.wait()
        failure = self.failures.pop() if self.failures else None
        if failure is not None:
            raise failure
        self.audit += audit
        for partition, offset in offsets.items():
            if offset is None:
                self.offsets.pop(partition, None)
            else:
                self.offsets[partition] = offset


def committer_on(store: SlowStore) -> OffsetCommitter:
    context = CoordinatorContext(
        store=cast("CoordinatorStore", store),
        brokers=cast("BrokerClient", None),
        term=LeadershipTerm(1, 1),
        settings=CoordinatorSettings(coordinator_id=1),
        clock=SystemClock(),
        time=ClusterTime(SystemClock()),
        metrics=CoordinatorMetrics(),
        new_id=str,
    )
    return OffsetCommitter(context, "g", store.offsets)


async def done(*waited_for: Any) -> None:
    async with asyncio.timeout(10):
        await asyncio.gather(*waited_for)


async def test_what_is_deleted_is_not_written_afterwards() -> None:
    store = SlowStore()
    committer = committer_on(store)
    first = asyncio.create_task(
        committer.commit({P: CommittedOffset(1, 0), Q: CommittedOffset(1, 0)})
    )
    await store.writing.wait()
    second = asyncio.create_task(
        committer.commit({P: CommittedOffset(2, 0), Q: CommittedOffset(2, 0)})
    )
    third = asyncio.create_task(committer.commit({Q: CommittedOffset(3, 0)}))
    await asyncio.sleep(0)  # until both are accepted

    deleting = asyncio.create_task(committer.delete(lambda partition, _: partition == Q))
    await asyncio.sleep(0)
    store.let_through.set()
    await done(first, second, third, deleting, committer.flush())

    assert deleting.result() == 1
    assert store.offsets == committer.offsets == {P: CommittedOffset(2, 0)}


async def test_nobody_waits_for_what_was_deleted_before_it_was_written() -> None:
    store = SlowStore()
    committer = committer_on(store)
    first = asyncio.create_task(committer.commit({P: CommittedOffset(1, 0)}))
    await store.writing.wait()
    second = asyncio.create_task(committer.commit({P: CommittedOffset(2, 0)}))
    await asyncio.sleep(0)

    deleting = asyncio.create_task(committer.delete(lambda *_: True))
    store.let_through.set()
    await done(first, second, deleting)
    await done(committer.commit({P: CommittedOffset(5, 0)}))

    assert store.offsets == {P: CommittedOffset(5, 0)}


@pytest.mark.parametrize("failure", [NotPermitted("/consumers"), RuntimeError("a bug")])
async def test_writes_that_fail_one_after_the_other_are_logged_once(failure: Exception) -> None:
    """A group repeats a write a few times a second, for as long as ZooKeeper refuses it."""
    store = SlowStore()
    store.let_through.set()
    store.failures = [failure] * 2
    committer = committer_on(store)
    with capture_logs() as lines:
        for _ in range(2):
            with pytest.raises(StoreOutcomeUnknown):
                await done(committer.commit({P: CommittedOffset(1, 0)}))
        await done(committer.flush())

    assert store.failures == []
    assert [(line["log_level"], line["more_before"]) for line in lines] == [("error", 0)]


async def test_defect_04_a_write_that_fails_is_repeated_until_it_is_done() -> None:
    store = SlowStore()
    store.let_through.set()
    store.failures = [ConnectionLoss()]
    committer = committer_on(store)
    entry = AuditEntry(0, "cause", "operator", "offsets_reset")

    with pytest.raises(StoreOutcomeUnknown):
        await done(committer.commit({P: CommittedOffset(1, 0)}, [entry]))
    await done(committer.commit({Q: CommittedOffset(2, 0)}))

    both = {P: CommittedOffset(1, 0), Q: CommittedOffset(2, 0)}
    assert store.offsets == committer.offsets == both
    assert store.audit == [entry]


async def test_defect_04_dropped_offsets_are_gone_at_once_and_deleted_in_the_end() -> None:
    """Also those in flight and pending, and if the deletion fails at first."""
    store = SlowStore()
    store.offsets = {P: CommittedOffset(1, 0, topic_id="old")}
    committer = committer_on(store)
    first = asyncio.create_task(committer.commit({P: CommittedOffset(2, 0, topic_id="old")}))
    await store.writing.wait()
    second = asyncio.create_task(committer.commit({P: CommittedOffset(3, 0, topic_id="old")}))
    await asyncio.sleep(0)

    committer.drop(lambda _, committed: committed.topic_id == "old", {"t"})
    assert committer.offsets == {}
    store.failures = [ConnectionLoss(), None]
    store.let_through.set()
    await done(first)
    assert committer.offsets == {}
    with pytest.raises(StoreOutcomeUnknown):
        await done(second)
    await done(committer.flush())

    assert store.offsets == committer.offsets == {}


async def test_defect_04_a_commit_for_the_new_topic_replaces_the_dropped_offset() -> None:
    store = SlowStore()
    store.offsets = {P: CommittedOffset(500, 0, topic_id="old")}
    committer = committer_on(store)
    committer.drop(lambda _, committed: committed.topic_id == "old", {"t"})
    new = CommittedOffset(5, 0, topic_id="new")
    committing = asyncio.create_task(committer.commit({P: new}))
    await asyncio.sleep(0)
    committer.drop(lambda _, committed: committed.topic_id == "old", {"t"})
    store.let_through.set()
    await done(committing)

    assert store.offsets == committer.offsets == {P: new}


async def test_who_waits_for_a_write_of_a_former_coordinator_is_refused() -> None:
    store = SlowStore()
    store.failures = [TermEnded("succeeded")]
    committer = committer_on(store)
    first = asyncio.create_task(committer.commit({P: CommittedOffset(1, 0)}))
    await store.writing.wait()
    second = asyncio.create_task(committer.commit({P: CommittedOffset(2, 0)}))
    await asyncio.sleep(0)
    store.let_through.set()
    for waiting in (first, second):
        with pytest.raises(NotCoordinator):
            await done(waiting)
    assert committer.offsets == {}


async def test_defect_06_what_is_closed_for_the_deletion_of_its_group_writes_nothing_more() -> None:
    """A topic may be deleted at the same time: its offsets go with the group."""
    store = SlowStore()
    store.let_through.set()
    committer = committer_on(store)
    await done(committer.commit({P: CommittedOffset(1, 0)}))
    store.writing.clear()
    await committer.close()

    committer.drop(lambda *_: True, {"t"})
    with pytest.raises(StoreOutcomeUnknown):
        await done(committer.commit({Q: CommittedOffset(1, 0)}))

    assert committer.offsets == {}
    assert not store.writing.is_set()


async def test_a_commit_that_is_being_written_keeps_its_group_from_expiring() -> None:
    """Otherwise it would be acknowledged and, with its group, deleted at once."""
    store = SlowStore()
    committer = committer_on(store)
    assert committer.last_commit_ms == 0
    commit = asyncio.create_task(committer.commit({P: CommittedOffset(1, 7)}))
    await done(store.writing.wait())
    assert committer.last_commit_ms == 7
    later = asyncio.create_task(committer.commit({Q: CommittedOffset(1, 9)}))
    await asyncio.sleep(0)
    assert committer.last_commit_ms == 9
    store.let_through.set()
    await done(commit, later, committer.delete(lambda one, _: one == Q))
    assert committer.last_commit_ms == 7
    await committer.close()


async def test_only_offsets_of_the_changed_topics_are_looked_at() -> None:
    store = SlowStore()
    store.let_through.set()
    other = TopicPartition("other", 0)
    store.offsets = {P: CommittedOffset(1, 0)}
    committer = committer_on(store)
    seen: list[TopicPartition] = []

    def is_gone(one: TopicPartition, _: CommittedOffset) -> bool:
        seen.append(one)
        return True

    committer.drop(is_gone, {"other"})
    assert (seen, committer.topics()) == ([], {"t"})

    await done(committer.commit({other: CommittedOffset(1, 0), P: CommittedOffset(2, 0)}))
    assert committer.topics() == {"t", "other"}
    committer.drop(is_gone, {"other"})
    assert (seen, committer.topics()) == ([other], {"t"})
    await done(committer.flush())
    await done(committer.delete(lambda *_: True))
    assert committer.topics() == set()
    assert store.offsets == {}
    await committer.close()

"""Committed offsets on their way to ZooKeeper: what is waited for, what is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from leadline_client.wire import TopicPartition
from leadline_common.clock import SystemClock
from leadline_common.leader_election import LeadershipTerm
from leadline_common.settings import CoordinatorSettings
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
        self.groups = self

    async def write_offsets(
        self,
        _: LeadershipTerm,
        __: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        ___: Mapping[str, str],
        ____: Sequence[AuditEntry],
    ) -> None:
        self.writing.set()
        await self.let_through.wait()
        self.offsets.update(offsets)

    async def delete_offsets(
        self,
        _: LeadershipTerm,
        __: str,
        partitions: Collection[TopicPartition],
        ___: Sequence[AuditEntry],
    ) -> None:
        for partition in partitions:
            del self.offsets[partition]


def committer_on(store: SlowStore) -> OffsetCommitter:
    context = CoordinatorContext(
        store=cast("CoordinatorStore", store),
        brokers=cast("BrokerClient", None),
        term=LeadershipTerm(1, 1),
        settings=CoordinatorSettings(coordinator_id=1),
        clock=SystemClock(),
        metrics=CoordinatorMetrics(),
        new_id=str,
    )
    return OffsetCommitter(context, "g", {}, lambda: {"t": "id"})


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

    deleting = asyncio.create_task(committer.delete(lambda partition: partition == Q))
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

    deleting = asyncio.create_task(committer.delete(lambda _: True))
    store.let_through.set()
    await done(first, second, deleting)
    await done(committer.commit({P: CommittedOffset(5, 0)}))

    assert store.offsets == {P: CommittedOffset(5, 0)}

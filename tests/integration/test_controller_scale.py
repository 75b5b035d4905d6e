"""Ten thousand partitions: the exact counts of requests that performance goals promise."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from leadline_common.leader_election import LeadershipTerm
from leadline_common.zk.ops import MultiResults, Op, SetOp
from leadline_controller.adapters.zk_store import ControllerZkStore
from leadline_controller.domain.cluster import ClusterPolicy
from leadline_controller.runtime.channel.pending_roles import MOST_ROLES
from leadline_controller.runtime.image_loader import load_image
from tests.support.services.controller_rig import Rig, create
from tests.support.services.zookeeper import until

pytestmark = pytest.mark.slow

TOPICS = 10
PARTITIONS = 1000
N = TOPICS * PARTITIONS


class CountingStore(ControllerZkStore):
    """A store that remembers how much had been read when it last wrote states of partitions."""

    reads_before_last_states = 0

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        if any(isinstance(op, SetOp) and op.path.endswith("/state") for op in ops):
            self.reads_before_last_states = self.reads
        return super().submit(ops)


async def test_counts_of_creation_failure_and_load(rig: Rig) -> None:
    controller = await rig.up(store_type=CountingStore)
    store = controller.stores[-1]
    assert isinstance(store, CountingStore)

    for number in range(TOPICS):
        writes = store.writes
        await create(controller, f"t{number}", partitions=PARTITIONS, replication_factor=3)
        assert store.writes - writes <= 2 * PARTITIONS / 1000 + 5
    assert all(len(broker.roles) == N for broker in rig.brokers.values())

    await rig.settled(controller)
    left = [rig.brokers[2], rig.brokers[3]]
    before = [(len(broker.leader_and_isr), broker.roles_bytes) for broker in left]
    reads, writes = store.reads, store.writes
    await rig.brokers[1].leave()
    await until(
        lambda: all(r.leader_epoch == 1 for b in left for r in b.roles.values()),
        "every role is acknowledged",
        60,
    )
    assert store.reads_before_last_states == reads
    assert store.writes - writes <= N / 500 + 3
    for broker, (requests, size) in zip(left, before, strict=True):
        sent = broker.leader_and_isr[requests:]
        assert len(sent) <= 2 + N / 1000
        assert all(sum(len(t.partitions) for t in one.topics) <= MOST_ROLES for one in sent)
        assert (broker.roles_bytes - size) / N <= 40

    reads = store.reads
    loaded = await load_image(store, ClusterPolicy(), LeadershipTerm(1, 1))
    assert store.reads - reads <= N / 500 + TOPICS / 500 + 10
    assert sum(1 for _ in loaded.partitions()) == N

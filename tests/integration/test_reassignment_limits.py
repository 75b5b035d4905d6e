"""Many partitions within the limits on movements: by the audit, and by polling (KIP-435)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import pytest

from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry
from tests.support.reassigning import (
    Followers,
    audit_records,
    get,
    post_reassignment,
    read_topic,
    reassignment_queue_of,
)
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController
from tests.support.services.zookeeper import until

pytestmark = pytest.mark.slow

PARTITION_LIMIT, LEADER_LIMIT = 50, 10
SETTINGS = {
    "reassignment_max_concurrent_replica_movements": 1,
    "reassignment_max_concurrent_partition_movements": PARTITION_LIMIT,
    "reassignment_max_concurrent_leader_movements": LEADER_LIMIT,
    "audit_outbox_keep_entries": 1_000_000,
    "audit_outbox_max_entries": 1_000_000,
}


@dataclass
class Replay:
    """What the audit says, entry by entry: which steps ran side by side.

    A step runs from the entry that says what it adds or removes to the one that says
    nothing any more. `movers` are those that ended under another leader, from and to.
    """

    most_running: int = 0
    most_added: int = 0
    movers: list[tuple[int, int]] = field(default_factory=list)
    _begun: dict[int, tuple[int, int]] = field(default_factory=dict)
    _leaders: dict[int, int] = field(default_factory=dict)

    def take(self, number: int, entry: AuditEntry) -> None:
        """Follow one entry."""
        rows = (entry.after or {}) if entry.kind == "reassignment_step" else {}
        ended = {}
        for partition, row in ((int(key), row) for key, row in rows.items()):
            if row["adding"] or row["removing"]:
                self._begun[partition] = (number, self._leaders[partition])
                self.most_added = max(self.most_added, len(row["adding"]))
            elif partition in self._begun:
                ended[partition] = self._begun.pop(partition)
        self._leaders |= {change.partition: change.after[0] for change in entry.changes}
        self.most_running = max(self.most_running, len(self._begun))
        self.movers += [
            (begun, number)
            for partition, (begun, leader) in ended.items()
            if self._leaders[partition] != leader
        ]

    @property
    def most_movers(self) -> int:
        """How many steps that changed a leader ran side by side."""
        edges = [edge for begun, ended in self.movers for edge in ((begun, 1), (ended, -1))]
        return max(accumulate(change for _, change in sorted(edges)), default=0)


@pytest.mark.parametrize("partitions", [300, pytest.param(2000, marks=pytest.mark.soak)])
async def test_limits_are_never_exceeded(rig: Rig, zk_session: ZkSession, partitions: int) -> None:
    controller = await rig.up(brokers=6, **SETTINGS)
    homes = {p: (1 + p % 3, 1 + (p + 1) % 3) for p in range(partitions)}
    await create(controller, replica_assignment={str(p): r for p, r in homes.items()})
    leading = {("orders", p): (r[0] + 3, r[1]) for p, r in homes.items() if p % 2}
    following = {("orders", p): (r[0], r[1] + 3) for p, r in homes.items() if not p % 2}
    targets = leading | following
    async with Followers(rig, zk_session):
        task = await post_reassignment(controller, targets)
        most_seen = await watch(controller, task["id"])
    assert most_seen == PARTITION_LIMIT
    found = await read_topic(zk_session, "orders")
    assert found.partitions == {number: replicas for (_, number), replicas in targets.items()}
    replay = Replay()
    for record in await audit_records(zk_session):
        replay.take(record.id, record.entry)
    assert len(replay.movers) == len(leading)
    assert (replay.most_running, replay.most_movers, replay.most_added) == (
        PARTITION_LIMIT,
        LEADER_LIMIT,
        1,
    )


async def watch(controller: RunningController, task_id: str) -> int:
    """Poll the current batch until a task is over, and return the largest one."""
    elected = controller.leadership.active_controller
    assert elected is not None
    task = elected.tasks.store.find(task_id)
    most = 0
    while not task.node.state.is_over:
        batch = (await get(controller, "/v1/reassignments"))["current_batch"]
        most = max(most, len(batch))
    return most


async def test_a_raised_limit_is_for_the_next_steps(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(
        brokers=6,
        reassignment_max_concurrent_replica_movements=1,
        reassignment_max_concurrent_partition_movements=2,
    )
    await create(controller, replica_assignment={str(p): [1, 2, 3] for p in range(8)})
    await post_reassignment(controller, {("orders", p): (1, 5, 6) for p in range(8)})
    before = await batch_of(controller, 2)
    assert all(len(added) == 1 for added in before.values())
    raised = {
        "reassignment.max.concurrent.partition.movements": "5",
        "reassignment.parallel.replica.count": "2",
    }
    answer = await controller.http.patch("/v1/configs", json={"set": raised})
    assert answer.status_code == 200, answer.text
    after = await batch_of(controller, 5)
    assert {number: after[number] for number in before} == before
    assert sorted(map(len, after.values())) == [1, 1, 2, 2, 2]
    async with Followers(rig, zk_session):
        await until(lambda: not len(reassignment_queue_of(controller)), "all are moved")
    assert set((await read_topic(zk_session, "orders")).partitions.values()) == {(1, 5, 6)}


async def batch_of(controller: RunningController, size: int) -> dict[int, list[int]]:
    """Wait until so many steps are under way, and return what each adds."""
    await until(
        lambda: reassignment_queue_of(controller).in_flight == size, f"{size} steps are under way"
    )
    rows = (await get(controller, "/v1/reassignments"))["reassignments"]
    return {row["partition"]: row["adding"] for row in rows if row["adding"]}

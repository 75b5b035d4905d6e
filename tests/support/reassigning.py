"""What a test of reassignments needs beside recording brokers: replicas that catch up, and looks.

A recording broker copies nothing. `catch_up` does what its leader would do: it takes
the replicas that were told to follow into the ISR, and says so in a heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec

from leadline_client.errors import NoController
from leadline_common import znodes
from leadline_common.audit_outbox import audit_op
from leadline_common.zk.errors import MultiFailed
from leadline_common.zk.ops import SetOp
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry, StateChange, TopicAssignment
from leadline_controller.domain.history import AuditRecord
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from tests.support.services.controller_rig import Rig
from tests.support.services.controllers import RunningController
from tests.support.services.zookeeper import until


async def post_reassignment(
    controller: RunningController, targets: Mapping[tuple[str, int], Sequence[int]], **options: Any
) -> dict[str, Any]:
    """Ask for a reassignment, and return the task."""
    rows = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in targets.items()
    ]
    body = {"version": 1, "partitions": rows, **options}
    answer = await controller.http.post("/v1/reassignments", json=body)
    assert answer.status_code == 202, answer.text
    task: dict[str, Any] = answer.json()
    return task


async def audit_records(session: ZkSession) -> list[AuditRecord]:
    """Return the audit in the order in which it was written."""
    names = await session.get_children(znodes.AUDIT)
    found = await session.get_many([f"{znodes.AUDIT}/{name}" for name in names])
    return [
        AuditRecord(znodes.audit_id(name), node[1].czxid, znodes.decode_audit(node[0]))
        for name, node in zip(names, found, strict=True)
        if node is not None
    ]


async def read_topic(session: ZkSession, topic: str) -> TopicAssignment:
    """Return what a topic's node says."""
    data, _ = await session.get(znodes.topic_path(topic))
    return znodes.decode_topic(data)


async def catch_up(
    rig: Rig,
    controller: RunningController,
    session: ZkSession,
    names: Iterable[tuple[str, int]],
    *,
    but: Sequence[int] = (),
) -> list[tuple[str, int]]:
    """Take replicas that were told to follow into the ISR; return where there were any."""
    grown: dict[int, list[tuple[str, int]]] = {}
    wanted = list(names)
    for name, leader in zip(
        wanted,
        await asyncio.gather(*(_grow(rig, session, name, but) for name in wanted)),
        strict=True,
    ):
        if leader is not None:
            grown.setdefault(leader, []).append(name)
    for leader, changed in grown.items():
        if not rig.brokers[leader].is_registered:
            continue
        beat = rig.brokers[leader].heartbeat(isr_changes=changed)
        with contextlib.suppress(NoController):
            await controller.heartbeat(beat)
    return [name for changed in grown.values() for name in changed]


async def _grow(
    rig: Rig, session: ZkSession, name: tuple[str, int], but: Sequence[int]
) -> int | None:
    path = znodes.state_path(*name)
    data, stat = await session.get(path)
    state = znodes.decode_state(data)
    followers = [
        broker.id
        for broker in rig.brokers.values()
        if broker.is_registered
        and broker.id not in (*state.isr, *but)
        and (row := broker.roles.get(name)) is not None
        and row.leader_epoch == state.leader_epoch
        and broker.id in row.replicas
    ]
    if not followers or state.leader < 0:
        return None
    grown = msgspec.structs.replace(state, isr=(*state.isr, *followers))
    facts = [(s.leader, s.leader_epoch, s.isr) for s in (state, grown)]
    change = StateChange(*name, "isr", facts[0], facts[1], stat.version + 1)
    now_ms = time.time_ns() // 1_000_000  # an entry of 1970 would be deleted, and all before it
    entry = AuditEntry(now_ms, "catch-up", f"broker-{state.leader}", "isr", changes=(change,))
    try:
        await session.multi(
            [SetOp(path, znodes.encode_state(grown), stat.version), audit_op(entry)]
        )
    except MultiFailed:  # the controller was faster: the leader is fenced, and asks again
        return None
    return state.leader


class Followers:
    """Lets replicas that are being added catch up, over and over, until it is left.

    `but` names brokers that never do.
    """

    def __init__(self, rig: Rig, session: ZkSession, *, but: Sequence[int] = ()) -> None:
        self._rig = rig
        self._session = session
        self._but = but
        self._task: asyncio.Task[None] | None = None

    async def _follow(self) -> None:
        while True:
            for controller in self._rig.controllers:
                if controller.is_active:
                    names = [
                        entry.topic_partition
                        for entry in reassignment_queue_of(controller)
                        if entry.is_running
                    ]
                    await catch_up(self._rig, controller, self._session, names, but=self._but)
            await asyncio.sleep(0.005)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def reassignment_queue_of(controller: RunningController) -> ReassignmentQueue:
    """Return the reassignments that the active controller knows of."""
    elected = controller.leadership.active_controller
    return elected.reassignments if elected is not None else ReassignmentQueue()


async def get(controller: RunningController, path: str) -> Any:
    """Read a document of the API."""
    answer = await controller.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def over(controller: RunningController, task_id: str) -> dict[str, Any]:
    """Wait until a task is over, and return it."""
    elected = controller.leadership.active_controller
    assert elected is not None
    await until(lambda: elected.tasks.store.find(task_id).node.state.is_over, f"{task_id} is over")
    task: dict[str, Any] = await get(controller, f"/v1/tasks/{task_id}")
    return task

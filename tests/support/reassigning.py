"""What a test of reassignments needs beside recording brokers: replicas that catch up, and looks.

A recording broker copies nothing. `catch_up` does what its leader would do: it takes
the replicas that were told to follow into the ISR, and says so in a heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from leadline_common import rpc, znodes
from leadline_common.zk.errors import BadVersion
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import TopicAssignment
from tests.support.controller_rig import Rig
from tests.support.controllers import RunningController


async def post_reassignment(
    controller: RunningController, targets: dict[tuple[str, int], Sequence[int]], **options: Any
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
    for name in names:
        leader = await _grow(rig, session, name, but)
        if leader is not None:
            grown.setdefault(leader, []).append(name)
    for leader, changed in grown.items():
        beat = rig.brokers[leader].heartbeat(isr_changes=changed)
        answer = await controller.http.post(
            rpc.HEARTBEAT_PATH,
            content=msgspec.json.encode(beat),
            headers={"Content-Type": rpc.JSON},
        )
        assert answer.status_code == 200, answer.text
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
    try:
        await session.set(path, znodes.encode_state(grown), stat.version)
    except BadVersion:  # the controller was faster: the leader is fenced, and asks again
        return None
    return state.leader

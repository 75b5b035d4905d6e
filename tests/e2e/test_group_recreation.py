"""Consumer groups of a topic that is deleted and recreated while ZooKeeper cannot be written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults.load import Load
from tests.support.faults.scenario import TOPIC, loaded, running_cluster
from tests.support.faults.zk_proxy import CrashPoints, put_before_coordinators
from tests.support.groups.group import Group
from tests.support.groups.log import Event, Partition, unconsumed
from tests.support.services.cluster import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 3
CALM = {"zookeeper.session.timeout.ms": "4000"}
"""So that a cut connection does not end the session, and with it the term."""
LEAST_COMMITTED = 500
"""Of each partition, before the deletion: so much would be skipped in the recreated topic."""


async def committed(group: Group, least: Mapping[Partition, int]) -> None:
    """Wait until a group has committed so much of each partition, or more."""

    async def is_committed() -> bool:
        if await group.document() is None:
            return False
        offsets = await group.offsets()
        return all(offsets.get(one, 0) >= offset for one, offset in least.items())

    await wait_until(is_committed, f"{group.name} has committed {dict(least)}")


def offsets_of(load: Load) -> dict[Partition, list[int]]:
    """Return the offsets of all acknowledged records."""
    acked: dict[Partition, list[int]] = {}
    for ack in load.acks:
        offsets = range(ack.base_offset, ack.base_offset + ack.count)
        acked.setdefault((load.topic, ack.partition), []).extend(offsets)
    return acked


async def is_cut(cuts: Iterable[CrashPoints]) -> bool:
    return any(cut.ended.is_set() for cut in cuts)


def since(events: Iterable[Event], at_s: float) -> Sequence[Event]:
    return [event for event in events if event.at_s >= at_s]


@pytest.mark.parametrize("after", [False, True], ids=["before_the_write", "after_the_write"])
async def test_defect_04_a_recreated_topic_is_read_from_its_first_record(
    tmp_path: Path, *, after: bool
) -> None:
    """The coordinator's connection breaks once, at the deletion of a group's offsets.

    `idle` has no members meanwhile; the member of `live` stays.
    """
    async with running_cluster(coordinators=2, settings=CALM) as cluster, AsyncExitStack() as stack:
        paths = [b"/consumers/groups/idle/offsets"]
        cuts = (await put_before_coordinators(cluster, paths, stack)).values()
        idle = Group(cluster, tmp_path, "idle", topics=TOPIC)
        live = Group(cluster, tmp_path, "live", topics=TOPIC)
        stack.push_async_callback(idle.stop)
        stack.push_async_callback(live.stop)
        least = {(TOPIC, number): LEAST_COMMITTED for number in range(PARTITIONS)}
        async with loaded(cluster, NewTopic(TOPIC, PARTITIONS, 3), label="old/") as old:
            idle.start("a")
            live.start("b")
            await asyncio.gather(committed(idle, least), committed(live, least))
            await idle.leave("a")
            await old.load.stop()
        for cut in cuts:  # Only the active coordinator writes, and another may be elected.
            cut.arm(1, after=after)
        deleted_s = time.monotonic()
        await cluster.client.delete_topic(TOPIC)
        await wait_until(partial(is_cut, cuts), "a coordinator's connection was cut")

        async with loaded(cluster, NewTopic(TOPIC, PARTITIONS, 3), label="new/") as new:
            await new.load.progress(records=2 * LEAST_COMMITTED)
            idle.start("c")
            await new.verify()
            acked = offsets_of(new.load)
            ends = {one: max(offsets) + 1 for one, offsets in acked.items()}
            await asyncio.gather(committed(idle, ends), committed(live, ends))
        assert unconsumed(acked, idle.members["c"].events()) == []
        assert unconsumed(acked, since(live.members["b"].events(), deleted_s)) == []

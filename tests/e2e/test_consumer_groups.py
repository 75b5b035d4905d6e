"""Groups of real consumer processes under load, while members, services and topics come and go.

In each scenario every acknowledged record is consumed, no partition has two owners at
once by the members' own logs, and no commit of an earlier generation is accepted. How
long it takes to settle is `benchmarks/group_settling.py`'s to measure.
"""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from leadline_client.wire import NewTopic
from tests.support.faults.load import IMPATIENT
from tests.support.groups.group import LoadedGroup, loaded_group
from tests.support.groups.log import Partition, given_up
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Three brokers, a controller and two coordinators for all scenarios."""
    directory = tmp_path_factory.mktemp("groups")
    async with Cluster(directory, coordinators=2, policy=IMPATIENT) as running:
        await running.active_coordinator()
        yield running


async def look(group: LoadedGroup) -> dict[str, Any]:
    """Return the group as it is now."""
    document = await group.document()
    assert document is not None
    return document


async def refuses_all_of(group: LoadedGroup, before: Mapping[str, Any]) -> None:
    """Commit as every member of an earlier generation would: nothing of it may be accepted."""
    assert (await look(group))["generation"] > before["generation"]
    for member in before["members"]:
        answer = await group.commit_as(member, before)
        rows = answer.json().get("offsets") or [answer.json()]
        assert all(row["error_code"] for row in rows), answer.text
    assert 0 not in (await group.offsets()).values()


def kept_by_all(group: LoadedGroup, since_s: float) -> bool:
    """Tell whether no member that runs has given anything up since a moment."""
    return not {one for one, _ in given_up(group.events(), since_s)} & set(group.running())


def taken_away(
    before: Mapping[str, set[Partition]], after: Mapping[str, set[Partition]]
) -> set[tuple[str, Partition]]:
    """Return (member, partition) for all that members do not have any more."""
    return {(name, one) for name, part in before.items() for one in part - after[name]}


@pytest.mark.parametrize("protocol", ["cooperative", "eager"])
async def test_a_member_joins(cluster: Cluster, tmp_path: Path, protocol: str) -> None:
    async with loaded_group(cluster, tmp_path, f"join-{protocol}") as group:
        group.start("a", "b", protocol=protocol)
        parts = await group.settled("a", "b")
        before = await look(group)
        joined_s = time.monotonic()
        group.start("c", protocol=protocol)
        after = await group.settled("a", "b", "c")
        moved = taken_away(parts, after)
        everything = {(name, one) for name, part in parts.items() for one in part}
        stopped = given_up(group.events(), joined_s)
        assert stopped == (moved if protocol == "cooperative" else everything)
        assert [len(part) for part in after.values()] == [2, 2, 2]
        await refuses_all_of(group, before)
        await group.consuming(group.partitions, time.monotonic())


async def test_a_member_leaves(cluster: Cluster, tmp_path: Path) -> None:
    async with loaded_group(cluster, tmp_path, "leave") as group:
        group.start("a", "b", "c")
        await group.settled("a", "b", "c")
        before = await look(group)
        left_s = time.monotonic()
        await group.leave("c")
        await group.settled("a", "b")
        assert kept_by_all(group, left_s)
        await refuses_all_of(group, before)


@pytest.mark.scenario("S28")
async def test_a_member_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    async with loaded_group(cluster, tmp_path, "killed") as group:
        group.start("a", "b", "c")
        await group.settled("a", "b", "c")
        before = await look(group)
        killed_s = time.monotonic()
        await group.kill("c")
        await group.settled("a", "b")
        assert kept_by_all(group, killed_s)
        await refuses_all_of(group, before)


@pytest.mark.scenario("S28")
async def test_a_member_is_frozen_past_its_limit(cluster: Cluster, tmp_path: Path) -> None:
    async with loaded_group(cluster, tmp_path, "frozen") as group:
        group.start("a", "b", "c")
        await group.settled("a", "b", "c")
        before = await look(group)
        frozen_s = time.monotonic()
        async with group.frozen("c"):
            await group.settled("a", "b", without=["c"])
            await group.consuming(group.partitions, time.monotonic())
            assert not {one for one, _ in given_up(group.events(), frozen_s)}
        await group.settled("a", "b", "c")
        awake = [e for e in group.members["c"].events() if e.at_s > group.freezes[0].until_s]
        assert next(e for e in awake if e.kind in {"consumed", "revoked", "lost"}).kind == "lost"
        await refuses_all_of(group, before)


@pytest.mark.scenario("S28")
async def test_the_coordinator_is_killed_amid_a_rebalance(cluster: Cluster, tmp_path: Path) -> None:
    async with loaded_group(cluster, tmp_path, "failover") as group:
        group.start("a", "b", "c")
        await group.settled("a", "b", "c")
        before = await look(group)
        active = await cluster.active_coordinator()
        group.start("d", begin_at="SIGUSR1")

        async def is_waiting() -> bool:
            return bool(group.members["d"].events())

        async def is_stopping() -> bool:
            return bool((await look(group))["state"] == "stopping")

        # Frozen members do not answer a Stop, so the rebalance lasts until they are evicted. The
        # fourth is started before: the start of a process could take longer than that.
        await wait_until(is_waiting, "the fourth is ready to join")
        async with group.frozen("a", "b", "c"):
            group.members["d"].child.signal(signal.SIGUSR1)
            await wait_until(is_stopping, "the members are being stopped")
            await cluster.kill(active)
        await cluster.active_coordinator(not_in=[active])
        await group.settled("a", "b", "c", "d")
        await refuses_all_of(group, before)
        cluster.restart(active)
        await cluster.until_ready(active)


@pytest.mark.scenario("S28")
async def test_the_coordinator_is_frozen_and_wakes_up_fenced(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with loaded_group(cluster, tmp_path, "fenced") as group:
        group.start("a", "b", "c")
        parts = await group.settled("a", "b", "c")
        before, settled_s = await look(group), time.monotonic()
        active = await cluster.active_coordinator()
        cluster.pause(active)
        await cluster.active_coordinator(not_in=[active])
        await group.consuming(group.partitions, time.monotonic())
        cluster.resume(active)

        async def resigned() -> bool:
            answer = (await cluster.get(active, "/v1/coordinator")).json()
            epoch = answer["coordinator"] and answer["coordinator"]["epoch"]
            return not answer["active"] and bool(epoch) and epoch > before["coordinator_epoch"]

        await wait_until(resigned, f"{active} knows that it was succeeded")
        assert await group.settled("a", "b", "c") == parts
        assert kept_by_all(group, settled_s)
        for member in before["members"]:
            answer = await group.commit_as(member, before)
            assert answer.json()["error_code"], "a commit under an earlier epoch was accepted"


async def test_a_topic_that_matches_a_pattern_is_created(cluster: Cluster, tmp_path: Path) -> None:
    async with loaded_group(cluster, tmp_path, "wild", pattern="wild-.*") as group:
        group.start("a", "b")
        await group.settled("a", "b")
        created_s = time.monotonic()
        await cluster.client.create_topic(NewTopic("wild-two", 4, 3))
        async with group.load("wild-two", 4):
            await group.settled("a", "b", partitions=10)
            await group.consuming([("wild-two", number) for number in range(4)], created_s)
        assert kept_by_all(group, created_s)


async def test_partitions_are_added(cluster: Cluster, tmp_path: Path) -> None:
    async with loaded_group(cluster, tmp_path, "grown") as group:
        group.start("a", "b")
        await group.settled("a", "b")
        added_s = time.monotonic()
        controller = await cluster.active_controller()
        path = "/v1/topics/grown-topic/partitions"
        answer = await cluster.post(controller, path, json={"partitions": 8})
        assert answer.is_success, answer.text
        async with group.load("grown-topic", 8):
            await group.settled("a", "b", partitions=8)
            await group.consuming([("grown-topic", 6), ("grown-topic", 7)], added_s)
        assert kept_by_all(group, added_s)


async def test_a_topic_is_deleted(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.client.create_topic(NewTopic("going", 4, 3))
    async with loaded_group(cluster, tmp_path, "deleted", also="going") as group:
        group.start("a", "b")
        before = await group.settled("a", "b", partitions=10)
        deleted_s = time.monotonic()
        await cluster.client.delete_topic("going")
        after = await group.settled("a", "b")
        stopped = given_up(group.events(), deleted_s)
        assert stopped == taken_away(before, after)
        # Of what is left, only what balance asks for has moved.
        left = [sum(topic != "going" for topic, _ in part) for part in before.values()]
        assert len([one for one in stopped if one[1][0] != "going"]) == max(left) - 3


@pytest.mark.slow
@pytest.mark.scenario("S23")
async def test_a_rolling_restart_moves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    async with loaded_group(cluster, tmp_path, "rolling") as group:
        group.start("a", "b", "c")
        parts = await group.settled("a", "b", "c")
        settled_s = time.monotonic()
        active = await cluster.active_coordinator()
        standby = next(
            one.name for one in cluster.supervisor.layout.coordinators if one.name != active
        )
        for name in (standby, active, *(one.name for one in cluster.supervisor.layout.brokers)):
            assert await cluster.terminate(name) == 0
            cluster.restart(name)
            await cluster.until_ready(name)
            await cluster.in_sync("rolling-topic", 3)
        assert await group.settled("a", "b", "c") == parts
        assert kept_by_all(group, settled_s)
        await group.consuming(group.partitions, time.monotonic())


async def test_a_static_member_is_restarted(cluster: Cluster, tmp_path: Path) -> None:
    async with loaded_group(cluster, tmp_path, "static") as group:
        group.start("a", "b")
        group.start("c", instance_id="blue")
        parts = await group.settled("a", "b", "c")
        left_s = time.monotonic()
        await group.leave("c")
        group.start("c2", instance_id="blue")
        after = await group.settled("a", "b", "c2")
        assert after["c2"] == parts["c"]
        assert kept_by_all(group, left_s)

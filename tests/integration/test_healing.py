"""Self-healing over a real ZooKeeper; brokers take every command, and replicas catch up."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from leadline_common import znodes
from leadline_common.failed_brokers import decode_failed_broker, failed_broker_path
from leadline_common.zk.session import ZkSession
from leadline_controller.domain.cluster import BrokerDown, BrokerUp
from leadline_controller.runtime.reassignment.events import HealingDue
from tests.support.healing import (
    LATER,
    NEVER,
    SOON,
    avoids,
    down,
    failures,
    forget,
    is_calm,
    kinds,
    replicas,
    set_interval,
    until_kinds,
    until_noted,
    until_shown,
)
from tests.support.manual_clock import ManualClock
from tests.support.reassigning import Followers, audit_records
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import MortalStore, RunningController, active
from tests.support.services.zookeeper import until


async def test_the_replicas_of_a_dead_broker_are_rebuilt_on_others(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(5, **SOON)
    await create(controller, partitions=10, replication_factor=2)
    async with Followers(rig, zk_session):
        await rig.brokers[1].stop()
        await until(lambda: avoids(controller, 1), "nothing is assigned to the dead broker")
        await until(lambda: is_calm(controller), "all chunks are over")
    assert all(len(set(assigned)) == 2 for assigned in replicas(controller).values())
    load = Counter(broker for assigned in replicas(controller).values() for broker in assigned)
    assert max(load.values()) - min(load.values()) <= 1
    await until_noted(zk_session)
    await until_kinds(controller, "broker_failed", "healing_queued", "broker_healed")
    (row,) = await failures(controller)
    assert (row["broker"], row["outcome"], row["detected_by"]) == (1, "healed", "controller-1")
    assert (row["chunks"], row["chunks_over"]) == (2, 2)
    assert (row["partitions"], row["partitions_moved"]) == (4, 4)
    assert (
        row["failed_at"] + SOON["failed_broker_interval_ms"] <= row["queued_at"] <= row["over_at"]
    )
    tasks = (await controller.http.get("/v1/tasks/history")).json()["tasks"]
    assert [(task["kind"], task["state"]) for task in tasks] == [("heal", "done")] * 2


async def test_a_restart_within_the_interval_moves_nothing(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(5, **LATER)
    await create(controller, partitions=10, replication_factor=2)
    before = replicas(controller)
    incarnation = rig.brokers[1].incarnation
    await rig.brokers[1].leave()
    await until_noted(zk_session, 1)
    data, _ = await zk_session.get(failed_broker_path(1))
    assert decode_failed_broker(data).incarnation == incarnation
    await rig.brokers[1].register()
    await until_noted(zk_session)
    assert replicas(controller) == before
    assert await kinds(controller, broker=1) == ["broker_failed", "broker_returned"]
    (row,) = await failures(controller)
    assert (row["outcome"], row["chunks"]) == ("cancelled", 0)
    assert row["returned_at"] > row["failed_at"]


async def test_a_broker_that_has_not_registered_yet_has_not_failed(
    rig: Rig, zk_session: ZkSession
) -> None:
    await zk_session.ensure_path(znodes.broker_epoch_path(9))
    controller = await rig.up(2, **SOON)
    await rig.brokers[1].leave()
    await until_kinds(controller, "broker_failed")

    assert {row["broker"] for row in await failures(controller)} == {1}


@pytest.mark.parametrize("years", [10, -10])
async def test_the_wall_clock_decides_nothing_while_a_controller_is_active(
    rig: Rig, years: int
) -> None:
    """Set forward, healing would move all that a broker has that restarts; set back, nothing."""
    controller = await rig.up(3, **LATER)
    await create(controller, partitions=4, replication_factor=2)
    elected = controller.leadership.active_controller
    assert elected is not None
    healing, clock = elected.healing, ManualClock()
    healing.clock = healing.records.clock = clock
    await rig.brokers[1].stop()
    await until(lambda: 1 in healing.records.failed, "the failure is recorded")
    waits_for = healing.waits_for(1)
    assert waits_for == "the end of failed.broker.interval.ms: it may return"

    clock.step_wall(years * 365 * 86_400_000)
    assert healing.waits_for(1) == waits_for
    clock.advance(60_001)
    assert healing.waits_for(1) != waits_for


async def test_the_time_of_the_failure_outlives_the_controller(
    rig: Rig, zk_session: ZkSession
) -> None:
    first = await rig.up(3, **LATER)
    second = await rig.controller(**LATER)
    await create(first, partitions=4, replication_factor=2)
    await rig.brokers[1].stop()
    await until_noted(zk_session, 1)
    noted, _ = await zk_session.get(failed_broker_path(1))
    await first.retire()
    await active([second])
    elected = second.leadership.active_controller
    assert elected is not None
    await until(lambda: 1 in elected.healing.records.failed, "the successor knows")
    assert (await zk_session.get(failed_broker_path(1)))[0] == noted


async def test_a_broker_that_died_while_nobody_ruled_is_noticed(
    rig: Rig, zk_session: ZkSession
) -> None:
    first = await rig.up(3, **LATER)
    await create(first, partitions=4, replication_factor=2)
    await first.retire()
    await rig.brokers[1].stop()
    await rig.controller(**LATER)
    await until_noted(zk_session, 1)


async def test_what_failed_while_healing_was_off_is_healed_when_it_is_switched_on(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(4, **NEVER)
    await create(controller, partitions=6, replication_factor=2)
    await rig.brokers[1].stop()
    await until_noted(zk_session, 1)
    assert not avoids(controller, 1)
    async with Followers(rig, zk_session):
        await set_interval(controller, 100)
        await until(lambda: avoids(controller, 1), "nothing is assigned to the dead broker")


async def test_healing_stops_where_more_have_failed_than_the_budget_allows(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(4, **LATER, failed_broker_budget_percent=30)
    await create(
        controller, replica_assignment={"0": [1, 3], "1": [3, 1], "2": [2, 4], "3": [4, 3]}
    )
    elected = controller.leadership.active_controller
    assert elected is not None
    await asyncio.gather(rig.brokers[1].leave(), rig.brokers[2].leave())
    await until(lambda: elected.healing.is_suspended, "the budget is used up")
    await set_interval(controller, 0)
    # Whatever that has set off is done before the answer to the next request.
    tried = await controller.http.post("/v1/topics", json={"name": "tried", "dry_run": True})
    assert tried.status_code == 200
    assert list(elected.healing.chunks()) == []
    ready = (await controller.http.get("/readyz")).text
    assert "healing is suspended" in ready
    assert "healing_suspended" in await kinds(controller)
    await rig.brokers[2].register()
    async with Followers(rig, zk_session):
        await until(lambda: not elected.healing.is_suspended, "the budget suffices again")
        await until(lambda: avoids(controller, 1), "the one that stayed away is healed")
    assert "healing_resumed" in await kinds(controller)


async def test_defect_11_a_broker_counts_against_the_budget_while_its_chunks_are_queued(
    rig: Rig, zk_session: ZkSession
) -> None:
    """One failure after the other must not heal on with half the brokers dead."""
    controller = await rig.up(4, **SOON, failed_broker_budget_percent=34)
    pairs = [(1, 3), (4, 1), (3, 1), (1, 4), (2, 3), (4, 2)]
    await create(controller, replica_assignment={str(p): pair for p, pair in enumerate(pairs)})
    elected = controller.leadership.active_controller
    assert elected is not None
    await rig.brokers[1].leave()
    await until(lambda: bool(list(elected.healing.chunks(1))), "the first is being healed")
    await until_noted(zk_session)  # all of it is queued: its record is gone
    await rig.brokers[2].leave()
    await until(lambda: elected.healing.is_suspended, "half the brokers are down")
    due = elected.healing.due_at(2)
    assert due is not None
    await until(lambda: elected.context.clock.wall_ms() > due, "the second counts as dead")
    await set_interval(controller, 0)
    # Whatever that has set off is done before the answer to the next request.
    tried = await controller.http.post("/v1/topics", json={"name": "tried", "dry_run": True})
    assert tried.status_code == 200
    assert list(elected.healing.chunks(2)) == []
    await until_noted(zk_session, 2)
    assert "brokers [1, 2] are down" in (await controller.http.get("/readyz")).text
    assert await shown_as_failed(controller) == 2
    await rig.brokers[1].register()

    async def has_returned() -> bool:
        shown: str = (await down(controller))[1]["state"]
        return shown == "returned"

    await wait_until(has_returned, "its chunk, to which no replica is added, goes on", 20)
    assert await shown_as_failed(controller) == 1
    async with Followers(rig, zk_session):
        await until(lambda: not elected.healing.is_suspended, "the budget suffices again")
        await until(lambda: avoids(controller, 2), "the second is healed")


async def shown_as_failed(controller: RunningController) -> int:
    """Return how many brokers are down, as the metrics say."""
    lines = (await controller.http.get("/metrics")).text.splitlines()
    (found,) = (line for line in lines if line.startswith("leadline_controller_failed_brokers "))
    return int(float(found.rpartition(" ")[2]))


async def test_defect_11_a_dead_broker_without_replicas_does_not_suspend_healing_for_ever(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(4, **LATER, failed_broker_budget_percent=34)
    pairs = [(1, 3), (4, 1), (3, 4)]
    await create(controller, replica_assignment={str(p): pair for p, pair in enumerate(pairs)})
    elected = controller.leadership.active_controller
    assert elected is not None
    for broker in (1, 2):
        await rig.brokers[broker].leave()
    await until(lambda: elected.healing.is_suspended, "half the brokers are down")
    await set_interval(controller, 100)
    async with Followers(rig, zk_session):
        await until(lambda: avoids(controller, 1), "the one that has replicas is healed")

    async def are_healed() -> bool:
        return [row["state"] for row in (await down(controller)).values()] == ["healed"] * 2

    await wait_until(are_healed, "both are shown as healed", 20)


async def test_defect_12_a_healed_broker_is_shown_until_it_returns(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(5, **LATER)
    standby = await rig.controller(**LATER)
    await create(controller, partitions=10, replication_factor=2)
    assert await down(controller) == {}
    await rig.brokers[1].leave()
    await until_noted(zk_session, 1)
    waiting = (await down(controller))[1]
    assert (waiting["state"], waiting["partitions"]) == ("waiting", 4)
    assert "failed.broker.interval.ms" in waiting["waits_for"]
    status, refused = await forget(controller, 1)
    assert (status, refused["error_code"]) == (409, 40984)
    assert "4 partitions" in refused["message"]
    await set_interval(controller, 0)
    async with Followers(rig, zk_session):
        await until(lambda: is_calm(controller), "all chunks are over")
    refusal = "forget_broker"
    await until_kinds(controller, "broker_failed", refusal, "healing_queued", "broker_healed")
    healed = (await down(controller))[1]
    assert (healed["state"], healed["waits_for"]) == ("healed", None)
    assert (healed["partitions"], healed["partitions_moved"]) == (0, 4)
    assert (healed["chunks"], healed["chunks_queued"]) == ([], 2)
    assert healed["failed_at"] == waiting["failed_at"] < healed["queued_at"] <= healed["healed_at"]
    plan = (await controller.http.post("/v1/plans", json={"kind": "balance"})).json()
    assert plan["down"] == [1]
    await controller.retire()
    await active([standby])
    assert (await down(standby))[1] == healed, "another controller knows as much"
    await rig.brokers[1].register()

    async def is_gone() -> bool:
        return await down(standby) == {}

    await wait_until(is_gone, "it has returned", 20)
    assert await zk_session.get_children(znodes.DEAD_BROKERS) == []


async def test_defect_12_a_broker_that_will_not_return_is_forgotten(
    rig: Rig, zk_session: ZkSession
) -> None:
    """It may have failed while no controller saw it, and may return nevertheless."""
    first = await rig.up(4, **LATER)
    await create(first, replica_assignment={"0": [1, 2]})
    assert (await forget(first, 3))[0] == 409, "it is live"
    assert (await forget(first, 9))[0] == 404
    await first.retire()
    await rig.brokers[3].leave()
    await rig.brokers[4].stop()
    first.resume()
    await until_noted(zk_session, 3, 4)
    await until_shown(first, {3: "waiting", 4: "waiting"})
    status, forgotten = await forget(first, 4)
    assert (status, forgotten["id"]) == (200, 4)
    assert (await forget(first, 4))[0] == 404
    await set_interval(first, 0)
    await until_noted(zk_session)
    await until_shown(first, {3: "healed"})
    assert (await forget(first, 3))[0] == 200
    await first.retire()
    first.resume()
    await until(lambda: first.is_active, "it is active again")
    await rig.settled(first)
    assert await down(first) == {}
    await rig.brokers[3].register()
    await rig.settled(first)
    await rig.brokers[3].leave()
    await until_noted(zk_session)

    async def is_shown() -> bool:
        return [*await down(first)] == [3]

    await wait_until(is_shown, "it is a broker like any other", 20)
    assert await kinds(first, broker=4) == ["broker_failed", "broker_forgotten", "forget_broker"]


async def test_a_broker_that_returns_and_fails_at_once_has_failed_again(
    rig: Rig, zk_session: ZkSession
) -> None:
    """The healing may look at the brokers only when such a broker is gone again."""
    controller = await rig.up(4, **LATER)
    await rig.brokers[3].leave()
    await rig.brokers[4].stop()
    await until_noted(zk_session, 3, 4)
    await until_shown(controller, {3: "waiting", 4: "waiting"})
    assert (await forget(controller, 4))[0] == 200
    elected = controller.leadership.active_controller
    assert elected is not None
    for broker in (3, 4):
        again = znodes.BrokerRegistration(broker, "127.0.0.1", 1, "http://127.0.0.1:1", None, 7)
        elected.image.apply([BrokerUp(again), BrokerDown(broker)])
    elected.queue.trigger(HealingDue)
    await until_noted(zk_session, 3, 4)
    await until_shown(controller, {3: "waiting", 4: "waiting"})
    for broker in (3, 4):
        data, _ = await zk_session.get(failed_broker_path(broker))
        assert decode_failed_broker(data).incarnation == 7
        about = Counter(await kinds(controller, broker=broker))
        assert (about["broker_failed"], about["broker_returned"]) == (2, 1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_controller_may_end_at_any_write_of_the_workflow(
    rig: Rig, zk_session: ZkSession, *, after: bool
) -> None:
    """Each term writes who is live, and then gets one write further."""
    options = {**NEVER, "failed_broker_chunk_partitions": 2}
    first = await rig.up(4, store_type=MortalStore, **options)
    await create(first, partitions=8, replication_factor=2)
    await rig.brokers[1].stop()
    await until_noted(zk_session, 1)
    await set_interval_by_hand(zk_session, 0)
    terms = 0
    async with Followers(rig, zk_session):
        while await cut_short(first, 2 if after else 3, after=after):
            terms += 1
            await first.retire()
            first.resume()
            await until(lambda: first.is_active, "it is active again")
    # Usually ten; what a term writes before its cut is set does not count.
    assert terms > 4
    assert avoids(first, 1)
    moved = [r for r in await audit_records(zk_session) if r.entry.kind == "reassignment_begun"]
    begun = [
        (topic, number)
        for record in moved
        for topic, rows in (record.entry.after or {}).items()
        for number in rows
    ]
    assert len(begun) == len(set(begun)), "nothing is moved twice"


async def set_interval_by_hand(session: ZkSession, interval_ms: int) -> None:
    """Switch healing on as an operator at ZooKeeper would."""
    configs = znodes.encode_configs({"failed.broker.interval.ms": str(interval_ms)})
    await session.set(znodes.CONFIG_CLUSTER, configs, -1)


async def cut_short(controller: RunningController, cut: int, *, after: bool) -> bool:
    """End a controller at its `cut`-th write from now on; False if it is done before."""
    store = controller.stores[-1]
    assert isinstance(store, MortalStore)
    store.dies_after_sending, store.writes_left = after, cut
    await until(lambda: store.writes_left <= 0 or is_calm(controller), "cut, or all is healed")
    return store.writes_left <= 0

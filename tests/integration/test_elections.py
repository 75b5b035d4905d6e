"""Elections by request and by orders in ZooKeeper, and the balance of leaders."""

from __future__ import annotations

import asyncio
import json

import pytest

from leadline_common import znodes
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from tests.integration.test_controller_spine import audit, beat
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController, read_state
from tests.support.services.zookeeper import until

AR = {str(p): [1, 2] for p in range(4)}


async def non_preferred(rig: Rig, zk_session: ZkSession, **settings: object) -> RunningController:
    """Start a cluster in which broker 1 has come back, is in sync, and leads nothing."""
    controller = await rig.up(brokers=2, **settings)
    await create(controller, replica_assignment=AR)
    await rig.brokers[1].leave()
    await until(lambda: all(r.leader == 2 for r in rig.brokers[2].roles.values()), "2 leads")
    rig.brokers[1].roles.clear()
    await rig.brokers[1].register()
    await rig.settled(controller)
    for partition in range(4):
        state = await read_state(zk_session, "orders", partition)
        grown = znodes.PartitionState(2, state.leader_epoch, (2, 1), state.controller_epoch)
        path = znodes.state_path("orders", partition)
        await zk_session.set(path, znodes.encode_state(grown), ANY_VERSION)
    await beat(controller, rig.brokers[2], isr_changes=[("orders", p) for p in range(4)])
    return controller


async def led_by_1(rig: Rig, *partitions: int) -> None:
    await until(
        lambda: (
            {p for (_, p), row in rig.brokers[1].roles.items() if row.leader == 1} == {*partitions}
        ),
        f"1 leads {partitions}",
    )


async def test_preferred_election_of_one_many_and_all(rig: Rig, zk_session: ZkSession) -> None:
    controller = await non_preferred(rig, zk_session, auto_leader_rebalance_enable=False)
    one = {"type": "preferred", "partitions": [{"topic": "orders", "partition": 2}]}
    dry = await controller.http.post("/v1/elections", json=one | {"dry_run": True})
    assert [row["partition"] for row in dry.json()["elected"]] == [2]
    assert (await read_state(zk_session, "orders", 2)).leader == 2
    answer = await controller.http.post("/v1/elections", json=one)
    assert answer.json()["elected"] == dry.json()["elected"]
    await led_by_1(rig, 2)
    await controller.http.post("/v1/elections", json={"type": "preferred"})
    await led_by_1(rig, 0, 1, 2, 3)


KAFKAS = {
    "version": 1,
    "partitions": [
        {"topic": "orders", "partition": 1},
        {"topic": "orders", "partition": 9},
        {"topic": "none", "partition": 0},
    ],
}


@pytest.mark.parametrize(
    ("order", "moved"),
    [
        (json.dumps(KAFKAS).encode(), (1,)),
        (b"", (0, 1, 2, 3)),
        (b"not JSON", ()),
        (b'{"partitions": [{"topic": "orders"}]}', ()),
        (b'{"partitions": [{"topic": "none", "partition": 0}]}', ()),
    ],
)
async def test_defect_14_an_order_for_preferred_leaders_is_carried_out_and_taken_away(
    rig: Rig, zk_session: ZkSession, order: bytes, moved: tuple[int, ...]
) -> None:
    controller = await non_preferred(rig, zk_session, auto_leader_rebalance_enable=False)
    await zk_session.create(znodes.PREFERRED_ELECTION, order)
    async with asyncio.timeout(20):
        while await zk_session.exists(znodes.PREFERRED_ELECTION):  # noqa: ASYNC110 - a node
            await asyncio.sleep(0.01)
    await led_by_1(rig, *moved)
    (entry,) = [e for e in await audit(zk_session) if e.kind.startswith("preferred_")]
    assert entry.outcome == ("done" if moved else "refused")
    assert ("none-0" in entry.reason) == (b"none" in order)
    await rig.settled(controller)


async def test_an_order_that_nobody_carried_out_is_found_by_the_next_controller(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await non_preferred(rig, zk_session, auto_leader_rebalance_enable=False)
    await controller.retire()
    await zk_session.create(znodes.PREFERRED_ELECTION, b"{}")
    controller.resume()
    await led_by_1(rig, 0, 1, 2, 3)


async def test_the_balance_puts_leaders_back_by_itself_once_it_is_enabled(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await non_preferred(
        rig,
        zk_session,
        auto_leader_rebalance_enable=False,
        leader_imbalance_check_interval_ms=100,
    )
    written = len(await audit(zk_session))
    await controller.http.get("/v1/cluster")
    assert len(await audit(zk_session)) == written
    changes = {"set": {"auto.leader.rebalance.enable": "true"}}
    assert (await controller.http.patch("/v1/configs", json=changes)).status_code == 200
    await led_by_1(rig, 0, 1, 2, 3)
    entry = (await audit(zk_session))[-1]
    assert (entry.kind, entry.actor) == ("election", "controller-1")
    assert "balance" in entry.reason


async def test_an_unclean_election_says_what_may_be_lost_for_each_partition(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=3)
    await create(controller, replica_assignment={"0": [1, 2], "1": [3, 2]})
    await rig.brokers[2].leave()
    await until(lambda: rig.brokers[3].roles["orders", 1].isr == (3,), "2 has left the ISR")
    held = await read_state(zk_session, "orders", 1)
    late = znodes.PartitionState(3, held.leader_epoch, (3,), held.controller_epoch)
    await zk_session.set(znodes.state_path("orders", 1), znodes.encode_state(late), ANY_VERSION)
    await beat(controller, rig.brokers[3], isr_changes=[("orders", 1)])
    await rig.brokers[1].leave()
    await rig.brokers[3].leave()
    await rig.brokers[2].register()
    await rig.settled(controller)
    order = {"type": "unclean", "dry_run": True}
    dry = await controller.http.post("/v1/elections", json=order)
    assert {row["partition"]: row["may_lose"] for row in dry.json()["elected"]} == {0: [], 1: [3]}
    answer = await controller.http.post("/v1/elections", json={"type": "unclean"})
    assert answer.json()["elected"] == dry.json()["elected"]

"""Reassignments on a real ZooKeeper with brokers that record: the nodes and commands of a step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

import pytest

from leadline_common import znodes
from leadline_common.tasks import intent_path, intents_path
from leadline_common.zk.errors import ConnectionLoss
from leadline_common.zk.ops import ANY_VERSION, MultiResults, Op
from leadline_common.zk.session import ZkSession
from leadline_controller.adapters.zk_store import ControllerZkStore
from tests.support.checks.audit_records import broken_chains
from tests.support.reassigning import (
    Followers,
    audit_records,
    catch_up,
    get,
    over,
    post_reassignment,
    read_topic,
    reassignment_queue_of,
)
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import MortalStore, RunningController, read_state
from tests.support.services.zookeeper import until

ORDERS = ("orders", 0)
SLOWLY = {"reassignment_max_concurrent_replica_movements": 1}
Row = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def row_of(controller: RunningController, number: int = 0) -> Row:
    """Return replicas, adding and removing of a partition as the controller knows them."""
    node = controller.service.image().topics["orders"].assignment
    return node.partitions[number], node.adding.get(number, ()), node.removing.get(number, ())


def leader_of(controller: RunningController, number: int = 0) -> int | None:
    state = controller.service.image().topics["orders"].partitions[number].state
    return state.leader if state else None


def becomes(
    controller: RunningController, replicas: Sequence[int], adding: Sequence[int] = ()
) -> Callable[[], bool]:
    return lambda: row_of(controller)[:2] == (tuple(replicas), tuple(adding))


def is_row(controller: RunningController, row: Row) -> bool:
    return row_of(controller) == row


def follow(rig: Rig, brokers: Sequence[int]) -> bool:
    return all(ORDERS in rig.brokers[broker].roles for broker in brokers)


async def stored(session: ZkSession, number: int = 0) -> Row:
    node = await read_topic(session, "orders")
    return node.partitions[number], node.adding.get(number, ()), node.removing.get(number, ())


async def finished(controller: RunningController) -> None:
    await until(lambda: idle(controller), "nothing is being reassigned any more")


async def test_the_printed_example_step_by_step(rig: Rig, zk_session: ZkSession) -> None:
    """KIP-435: (0,1,2,3,4) to (5,6,7,8,9), two at a time; each node exactly as printed."""
    controller = await rig.up(brokers=0, reassignment_max_concurrent_replica_movements=2)
    await rig.add_brokers(*range(10))
    await rig.settled(controller)
    await create(controller, replica_assignment={"0": [0, 1, 2, 3, 4]})
    task = await post_reassignment(controller, {ORDERS: (5, 6, 7, 8, 9)})
    steps: list[tuple[Row, list[int]]] = [
        (((5, 0, 1, 2, 3, 4), (5,), ()), [5, 0, 1, 2, 3, 4]),
        (((5, 6, 0, 1, 2, 3, 4), (6,), (0, 1)), [5, 6, 2, 3, 4]),
        (((5, 6, 7, 8, 2, 3, 4), (7, 8), (2, 3)), [5, 6, 7, 8, 4]),
        (((5, 6, 7, 8, 9, 4), (9,), (4,)), [5, 6, 7, 8, 9]),
    ]
    for expanded, result in steps:
        await until(partial(is_row, controller, expanded), f"expanded to {expanded}")
        assert await stored(zk_session) == expanded
        listed = await get(controller, "/v1/reassignments")
        assert listed["current_batch"][0]["target"] == result
        assert listed["reassignments"][0]["waiting_for"] == list(expanded[1])
        await until(partial(follow, rig, expanded[1]), "the added replicas have their roles")
        assert rig.brokers[expanded[1][0]].roles[ORDERS].adding == expanded[1]
        assert not any(rig.brokers[b].stops for b in (*expanded[1], *result))
        await catch_up(rig, controller, zk_session, [ORDERS])
    await finished(controller)
    assert await stored(zk_session) == ((5, 6, 7, 8, 9), (), ())
    assert await zk_session.exists(intents_path("orders")) is None
    assert (await read_state(zk_session, *ORDERS)).leader == 5
    await rig.settled(controller)
    assert {b.id for b in rig.brokers.values() if b.stops} == {0, 1, 2, 3, 4}
    assert all(stop.delete for b in rig.brokers.values() for stop in b.stops)
    assert (await over(controller, task["id"]))["partitions"]["done"] == 1
    entries = [record.entry for record in await audit_records(zk_session)]
    steps_audited = [entry.after for entry in entries if entry.kind == "reassignment_step"]
    walked = [after["0"] for after in steps_audited if after]
    assert [row["replicas"] for row in walked if not row["adding"]] == [r for _, r in steps]


async def test_the_new_leader_takes_over_before_anything_is_dropped(
    rig: Rig, zk_session: ZkSession
) -> None:
    """R13: nobody is dropped while the target is not in the ISR, and the leader is moved first."""
    controller = await rig.up(brokers=4)
    await create(controller, replica_assignment={"0": [1, 2]})
    await post_reassignment(controller, {ORDERS: (3, 4)})
    await until(becomes(controller, (3, 4, 1, 2), (3, 4)), "both are being added")
    await until(partial(follow, rig, (3, 4)), "the added replicas have their roles")
    await catch_up(rig, controller, zk_session, [ORDERS], but=[4])
    await until(lambda: rig.brokers[4].roles[ORDERS].leader == 3, "3 leads")
    assert await stored(zk_session) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert not rig.brokers[1].stops
    await until(lambda: rig.brokers[4].roles[ORDERS].leader_epoch == 2, "4 follows 3")
    await catch_up(rig, controller, zk_session, [ORDERS])
    await finished(controller)
    state = await read_state(zk_session, *ORDERS)
    assert (state.leader, set(state.isr)) == (3, {3, 4})
    await until(lambda: bool(rig.brokers[1].stops and rig.brokers[2].stops), "told to delete")


@pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])
async def test_a_new_term_goes_on_after_any_write(
    rig: Rig, zk_session: ZkSession, *, after: bool
) -> None:
    """R13: cut before or after its n-th write, for all n; nothing is begun again from the start."""
    controller = await rig.up(brokers=6, store_type=MortalStore, **SLOWLY)
    homes, away = ((1, 2), (2, 3)), ((4, 5), (6, 4))
    await create(controller, replica_assignment={"0": homes[0], "1": homes[1]})
    async with Followers(rig, zk_session):
        for cut in count(1):
            targets = {("orders", p): r for p, r in enumerate(away if cut % 2 else homes)}
            was_cut = await cut_short(controller, targets, cut, after=after)
            await controller.retire()
            controller.resume()
            await rig.settled(controller)
            if len(await zk_session.get_children(znodes.REASSIGN_PARTITIONS)) < cut:
                await post_reassignment(controller, targets)
            await finished(controller)
            for name, replicas in targets.items():
                assert await stored(zk_session, name[1]) == (replicas, (), ())
            await rig.settled(controller)
            if not was_cut:
                break
    assert cut > 10
    assert await zk_session.get_children(znodes.PARTITIONS_REASSIGNED) == []
    assert not list(broken_chains(await audit_records(zk_session)))


class UncertainStore(ControllerZkStore):
    """A store that never hears of the outcome of its k-th write from now: it did happen, or not."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left = -1
        self.sends_it = False

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        self.writes_left -= 1
        if self.writes_left != 0:
            return super().submit(ops)
        if self.sends_it:
            super().submit(ops).add_done_callback(lambda answer: answer.exception())
        lost: asyncio.Future[MultiResults] = asyncio.get_running_loop().create_future()
        lost.set_exception(ConnectionLoss("the answer was lost"))
        return lost


@pytest.mark.parametrize("sent", [False, True], ids=["not-sent", "sent"])
async def test_a_write_of_unknown_outcome_is_looked_at(
    rig: Rig, zk_session: ZkSession, *, sent: bool
) -> None:
    """R7: any one write of a reassignment, within one term."""
    controller = await rig.up(brokers=6, store_type=UncertainStore, **SLOWLY)
    homes, away = ((1, 2), (2, 3)), ((4, 5), (6, 4))
    await create(controller, replica_assignment={"0": homes[0], "1": homes[1]})
    store = controller.stores[-1]
    assert isinstance(store, UncertainStore)
    store.sends_it = sent
    async with Followers(rig, zk_session):
        for k in range(1, 10):
            targets = {("orders", p): r for p, r in enumerate(away if k % 2 else homes)}
            rows = [{"topic": t, "partition": p, "replicas": r} for (t, p), r in targets.items()]
            store.writes_left = k
            await controller.http.post("/v1/reassignments", json={"partitions": rows})
            if k == 1 and not sent:
                await post_reassignment(controller, targets)
            await until(partial(knows, controller, k), "the task is known")
            await until(lambda: store.writes_left < 0, f"write {k} has come")
            await finished(controller)
            for name, replicas in targets.items():
                assert await stored(zk_session, name[1]) == (replicas, (), ())
    assert await zk_session.get_children(znodes.PARTITIONS_REASSIGNED) == []
    assert not list(broken_chains(await audit_records(zk_session)))


async def cut_short(
    controller: RunningController,
    targets: Mapping[tuple[str, int], tuple[int, ...]],
    cut: int,
    *,
    after: bool,
) -> bool:
    """Begin a reassignment, and end the controller at its `cut`-th write; False if it has fewer."""
    store = controller.stores[-1]
    assert isinstance(store, MortalStore)
    store.dies_after_sending, store.writes_left = after, cut
    rows = [{"topic": t, "partition": p, "replicas": r} for (t, p), r in targets.items()]
    await controller.http.post("/v1/reassignments", json={"partitions": rows})
    await until(lambda: store.writes_left <= 0 or idle(controller), "cut, or over")
    was_cut = store.writes_left <= 0
    store.writes_left = -1
    return was_cut


def knows(controller: RunningController, tasks: int) -> bool:
    elected = controller.leadership.active_controller
    return elected is not None and len(list(elected.tasks.store)) == tasks


def idle(controller: RunningController) -> bool:
    """Tell whether a controller knows of nothing to reassign."""
    elected = controller.leadership.active_controller
    if elected is None or len(reassignment_queue_of(controller)):
        return False
    return all(task.node.state.is_over for task in elected.tasks.store)


async def test_cancelling_before_the_first_step_changes_nothing(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment={"0": [1]})
    await rig.brokers[2].leave()
    await until(lambda: 2 not in controller.service.image().brokers, "2 is gone")
    task = await post_reassignment(controller, {ORDERS: (2,)})
    rows = (await get(controller, "/v1/reassignments"))["reassignments"]
    assert (rows[0]["reason"], rows[0]["waiting_for"]) == ("target_offline", [2])
    answer = await controller.http.delete("/v1/reassignments/orders/0")
    assert (answer.status_code, answer.json()["start"]) == (202, [1])
    await finished(controller)
    assert (await read_state(zk_session, *ORDERS)).leader_epoch == 0
    done = await over(controller, task["id"])
    assert (done["partitions"]["failed"], done["partitions"]["done"]) == (1, 0)
    answer = await controller.http.delete("/v1/reassignments/orders/0")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 404)


async def test_cancelling_in_the_middle_restores_the_start_list(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=6, **SLOWLY)
    await create(controller, replica_assignment={"0": [1, 2, 3]})
    task = await post_reassignment(controller, {ORDERS: (4, 5, 6)})
    await until(becomes(controller, (4, 1, 2, 3), (4,)), "4 is being added")
    await until(lambda: ORDERS in rig.brokers[4].roles, "4 has its role")
    await catch_up(rig, controller, zk_session, [ORDERS])
    await until(becomes(controller, (4, 5, 2, 3), (5,)), "5 is being added")
    assert (await controller.http.delete(f"/v1/tasks/{task['id']}")).status_code == 202
    async with Followers(rig, zk_session):
        await finished(controller)
    assert await stored(zk_session) == ((1, 2, 3), (), ())
    state = await read_state(zk_session, *ORDERS)
    assert (state.leader, set(state.isr)) == (1, {1, 2, 3})
    await rig.settled(controller)
    assert ORDERS not in rig.brokers[4].roles
    assert ORDERS not in rig.brokers[5].roles
    assert (await over(controller, task["id"]))["state"] == "cancelled"
    assert (await controller.http.delete(f"/v1/tasks/{task['id']}")).json()["error_code"] == 40981


async def test_cancelling_after_the_leader_has_moved_takes_the_leadership_back(
    rig: Rig, zk_session: ZkSession
) -> None:
    """The replica that leads again is one that the step would have removed."""
    controller = await rig.up(brokers=4, **SLOWLY)
    await create(controller, replica_assignment={"0": [1, 4, 2]})
    task = await post_reassignment(controller, {ORDERS: (4, 2, 3)})
    await until(becomes(controller, (4, 2, 3, 1), (3,)), "3 is being added")
    await until(lambda: leader_of(controller) == 4, "4, which has the records already, leads")
    assert (await controller.http.delete(f"/v1/tasks/{task['id']}")).status_code == 202
    await finished(controller)
    assert await stored(zk_session) == ((1, 4, 2), (), ())
    assert (await read_state(zk_session, *ORDERS)).leader == 1
    assert (await over(controller, task["id"]))["state"] == "cancelled"


@pytest.mark.parametrize("whole", [False, True], ids=["partition", "task"])
async def test_cancelling_what_somebody_has_just_edited_by_hand_cancels_it(
    rig: Rig, zk_session: ZkSession, *, whole: bool
) -> None:
    """The controller has not heard of the edit: its write is refused, and has to be repeated."""
    controller = await rig.up(brokers=3, reconcile_interval_ms=3_600_000)
    await create(controller, replica_assignment={"0": [1]})
    task = await post_reassignment(controller, {ORDERS: (2,)})
    await until(lambda: ORDERS in rig.brokers[2].roles, "2 is being added")
    data, _ = await zk_session.get(intent_path(*ORDERS))
    await zk_session.set(intent_path(*ORDERS), data.replace(b"[2]", b"[3]"), ANY_VERSION)
    path = f"/v1/tasks/{task['id']}" if whole else "/v1/reassignments/orders/0"
    assert (await controller.http.delete(path)).status_code == 202
    await finished(controller)
    assert await stored(zk_session) == ((1,), (), ())
    assert (await over(controller, task["id"]))["partitions"]["failed"] == 1


async def test_a_retarget_goes_on_from_where_the_partition_is(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=5, **SLOWLY)
    await create(controller, replica_assignment={"0": [1, 2]})
    first = await post_reassignment(controller, {ORDERS: (3, 4)})
    await until(becomes(controller, (3, 1, 2), (3,)), "3 is being added")
    rows = {"partitions": [{"topic": "orders", "partition": 0, "replicas": [5, 2]}]}
    refused = await controller.http.post("/v1/reassignments", json=rows)
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40980)
    second = await post_reassignment(controller, {ORDERS: (5, 2)}, retarget=True)
    rows_now = (await get(controller, "/v1/reassignments"))["reassignments"]
    assert (rows_now[0]["start"], rows_now[0]["task"]) == ([1, 2], second["id"])
    async with Followers(rig, zk_session):
        await finished(controller)
    assert await stored(zk_session) == ((5, 2), (), ())
    await rig.settled(controller)
    assert ORDERS not in rig.brokers[3].roles
    assert (await over(controller, first["id"]))["partitions"]["failed"] == 1
    assert (await over(controller, second["id"]))["partitions"]["done"] == 1


async def test_a_target_that_is_down_is_waited_for(rig: Rig, zk_session: ZkSession) -> None:
    """Nobody is dropped for it, and the leader's place is kept until it returns."""
    controller = await rig.up(brokers=4)
    await create(controller, replica_assignment={"0": [1, 2]})
    await rig.brokers[3].leave()
    await until(lambda: 3 not in controller.service.image().brokers, "3 is gone")
    await post_reassignment(controller, {ORDERS: (3, 4)})
    async with Followers(rig, zk_session):
        await until(lambda: 4 in row_of(controller)[0] and not row_of(controller)[1], "4 is in")
        listed = (await get(controller, "/v1/reassignments"))["reassignments"][0]
        assert (listed["reason"], listed["waiting_for"]) == ("target_offline", [3])
        assert len(row_of(controller)[0]) == 2
        await rig.brokers[3].register()
        await finished(controller)
    assert (await read_state(zk_session, *ORDERS)).leader == 3


async def test_a_dropped_replica_is_stopped_until_its_broker_says_so(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment={"0": [1]})
    rig.brokers[1].deaf = True
    await post_reassignment(controller, {ORDERS: (2,)})
    await until(lambda: ORDERS in rig.brokers[2].roles, "2 follows")
    await catch_up(rig, controller, zk_session, [ORDERS])
    await finished(controller)
    assert not rig.brokers[1].stops
    rig.brokers[1].deaf = False
    await until(lambda: bool(rig.brokers[1].stops), "1 is told at last")
    assert ORDERS not in rig.brokers[1].roles


async def test_a_conflicting_write_is_decided_again(rig: Rig, zk_session: ZkSession) -> None:
    """R7: the state is written by its leader, the topic's node by hand, between look and write."""
    controller = await rig.up(brokers=3)
    await create(controller, replica_assignment={"0": [1, 2], "1": [2, 1]})
    node = await read_topic(zk_session, "orders")
    await zk_session.set(znodes.topic_path("orders"), znodes.encode_topic(node), ANY_VERSION)
    state = await read_state(zk_session, *ORDERS)
    shrunk = znodes.PartitionState(1, 0, (1,), state.controller_epoch)
    await zk_session.set(znodes.state_path(*ORDERS), znodes.encode_state(shrunk), 0)
    async with Followers(rig, zk_session):
        await post_reassignment(controller, {ORDERS: (3, 1), ("orders", 1): (3, 2)})
        await finished(controller)
    assert [(await stored(zk_session, p))[0] for p in (0, 1)] == [(3, 1), (3, 2)]

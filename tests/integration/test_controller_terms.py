"""Leadership terms: races, zombies, standbys, and controllers that die between two writes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import pytest

from leadline_client.errors import LeadlineError, NoController
from leadline_client.wire import NewTopic
from leadline_common import znodes
from leadline_common.leader_election import ElectionState
from leadline_common.zk.client import Callback
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, SetOp
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import ControllerRegistration, TopicAssignment
from leadline_controller.adapters.zk_store import ControllerZkStore
from leadline_controller.domain.cluster import ClusterImage
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import MortalStore, RunningController, active
from tests.support.services.zookeeper import until


async def take_over(session: ZkSession) -> int:
    """Become the controller, as a candidate does once the holder's session has expired."""
    data, stat = await session.get(znodes.CONTROLLER_EPOCH)
    successor = ControllerRegistration(99, "http://127.0.0.1:9", 0)
    await session.multi(
        [
            DeleteOp(znodes.CONTROLLER, ANY_VERSION),
            CreateOp(znodes.CONTROLLER, znodes.encode_value(successor), ephemeral=True),
            SetOp(znodes.CONTROLLER_EPOCH, str(int(data) + 1).encode(), stat.version),
        ]
    )
    return int(data) + 1


async def test_of_several_candidates_one_rules(rig: Rig, zk_session: ZkSession) -> None:
    controllers = [await rig.controller() for _ in range(3)]
    leader = await active(controllers)
    others = [c for c in controllers if c is not leader]
    await until(lambda: all(c.epoch == 1 for c in controllers), "the others know the active one")
    assert not any(c.is_active for c in others)
    data, _ = await zk_session.get(znodes.CONTROLLER)
    assert znodes.decode_controller(data).id == leader.settings.controller_id
    await leader.retire()
    successor = await active(others)
    assert successor.epoch == 2
    assert (await zk_session.get(znodes.CONTROLLER_EPOCH))[0] == b"2"


async def test_a_standby_forwards_what_it_cannot_answer(rig: Rig) -> None:
    leader = await rig.up(brokers=1)
    standby = await rig.controller()
    await until(lambda: standby.epoch == 1, "the standby knows the active one")
    await create(standby, partitions=2, replication_factor=1)
    for path in ("/v1/metadata", "/v1/topics/orders", "/v1/brokers", "/v1/cluster"):
        here, there = await asyncio.gather(standby.http.get(path), leader.http.get(path))
        assert (here.status_code, here.json()) == (200, there.json())
    own = (await standby.http.get("/v1/controller")).json()
    assert (own["id"], own["active"], own["controller"]["id"]) == (2, False, 1)
    assert (await standby.http.get("/readyz")).status_code == 200
    refusal = await standby.http.post("/v1/topics", json={"name": "orders"})
    assert (refusal.status_code, refusal.json()["error_code"]) == (400, 40002)


async def test_a_zombie_cannot_write_and_resigns(rig: Rig, zk_session: ZkSession) -> None:
    """R11: another session took over while this one still believes that it is active."""
    zombie = await rig.up(brokers=1, store_type=BlindStore)
    elected, store = zombie.leadership.active_controller, zombie.stores[-1]
    assert isinstance(store, BlindStore)
    store.seen = await store.read_election()
    epoch = await take_over(zk_session)
    with pytest.raises(LeadlineError) as failure:
        await zombie.service.create_topic(NewTopic("late", 1, 1), dry_run=False)
    # Where another write of its own was refused before this one came, nothing was begun.
    assert failure.value.outcome == "unknown" or isinstance(failure.value, NoController)
    assert await zk_session.exists(znodes.topic_path("late")) is None
    await until(lambda: zombie.leadership.active_controller is not elected, "it resigns")
    await until(lambda: zombie.epoch == epoch, "it knows its successor")
    assert not zombie.is_active


class BlindStore(ControllerZkStore):
    """A store that goes on seeing the controller that it has once `seen`."""

    seen: ElectionState | None = None

    async def read_election(self, watch: Callback | None = None) -> ElectionState:
        return self.seen or await super().read_election(watch)


async def test_a_controller_that_is_replaced_notices_without_writing(
    rig: Rig, zk_session: ZkSession
) -> None:
    leader = await rig.up(brokers=1)
    await take_over(zk_session)
    await until(lambda: not leader.is_active, "it resigns")
    answer = await leader.http.get("/v1/metadata")
    assert answer.json()["error_code"] == 50350


class CutOffStore(ControllerZkStore):
    """A store that may be cut off without a notification."""

    is_cut_off = False

    def lease_valid(self) -> bool:
        return not self.is_cut_off and super().lease_valid()


async def test_a_controller_without_a_lease_resigns(rig: Rig) -> None:
    """R10: no connection state ever says that the session may have expired."""
    leader = await rig.up(brokers=1, store_type=CutOffStore)
    store = leader.stores[-1]
    assert isinstance(store, CutOffStore)
    store.is_cut_off = True
    await until(lambda: leader.is_active and leader.epoch == 2, "it is elected again")
    assert leader.stores[-1] is not store


async def test_a_controller_that_hears_of_no_broker_lets_another_one_lead(rig: Rig) -> None:
    cut_off = await rig.up(brokers=3, broker_contact_timeout_ms=500)
    successor = await rig.controller()
    await until(lambda: successor.is_active, "another one leads")
    await until(lambda: cut_off.epoch == 2, "it knows its successor")
    assert not cut_off.is_active


async def test_an_operator_may_force_an_election(rig: Rig, zk_session: ZkSession) -> None:
    leader = await rig.up(brokers=1)
    await zk_session.delete(znodes.CONTROLLER, ANY_VERSION)
    await until(lambda: leader.is_active and leader.epoch == 2, "it is elected again")


async def is_whole(session: ZkSession, topic: str) -> bool:
    """Return whether each partition of a topic has its state."""
    data, _ = await session.get(znodes.topic_path(topic))
    partitions = znodes.decode_topic(data).partitions
    paths = [znodes.state_path(topic, partition) for partition in partitions]
    return None not in await session.get_many(paths)


async def mortal(rig: Rig, k: int, *, after: bool) -> RunningController:
    """Start a controller that dies at its k-th write from now."""
    made = await rig.controller(store_type=MortalStore, zookeeper_multi_max_ops=2)
    await rig.settled(made)
    store = made.stores[-1]
    assert isinstance(store, MortalStore)
    store.writes_left = k
    store.dies_after_sending = after
    return made


@pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])
async def test_creation_survives_death_at_any_write(
    rig: Rig, zk_session: ZkSession, *, after: bool
) -> None:
    await rig.add_brokers(1, 2)
    for k in range(1, 6):
        name = f"topic-{k}"
        doomed = await mortal(rig, k, after=after)
        outcome = (
            await asyncio.gather(
                doomed.service.create_topic(NewTopic(name, 5, 2), dry_run=False),
                return_exceptions=True,
            )
        )[0]
        await doomed.retire()
        successor = await rig.controller(zookeeper_multi_max_ops=2)
        await rig.settled(successor)
        if await zk_session.exists(znodes.topic_path(name)):
            assert await is_whole(zk_session, name)
            assert sum(topic == name for topic, _ in rig.brokers[1].roles) == 5
        else:
            assert isinstance(outcome, LeadlineError)
            assert (await create(successor, name, partitions=5, replication_factor=2))["topic_id"]
        await successor.retire()


def is_over(controller: RunningController, image: ClusterImage, topic: str) -> bool:
    """Return whether a controller lost its leadership, or has deleted a topic."""
    return controller.leadership.active_controller is None or topic not in image.topics


@pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])
async def test_deletion_survives_death_at_any_write(
    rig: Rig, zk_session: ZkSession, *, after: bool
) -> None:
    await rig.add_brokers(1, 2)
    for k in range(1, 9):
        name = f"topic-{k}"
        maker = await rig.controller()
        await rig.settled(maker)
        await create(maker, name, partitions=3, replication_factor=2)
        await maker.retire()
        doomed = await mortal(rig, k, after=after)
        elected = doomed.leadership.active_controller
        assert elected is not None
        with suppress(LeadlineError):
            await doomed.service.delete_topic(name, 0)
        await until(partial(is_over, doomed, elected.image, name), "it dies, or is done")
        await doomed.retire()
        ordered = await zk_session.exists(znodes.delete_topic_path(name))
        successor = await rig.controller()
        await rig.settled(successor)
        if ordered is None and await zk_session.exists(znodes.topic_path(name)):
            await successor.http.delete(f"/v1/topics/{name}")
        await until(partial(is_over, successor, successor.service.image(), name), "it is gone")
        assert await zk_session.exists(znodes.topic_path(name)) is None
        assert await zk_session.exists(znodes.delete_topic_path(name)) is None
        assert not any(topic == name for b in rig.brokers.values() for topic, _ in b.roles)
        await successor.retire()


async def test_first_leaders_are_given_where_a_dead_controller_left_gaps(
    rig: Rig, zk_session: ZkSession
) -> None:
    """Only partitions without a state node; a leaderless one is left alone."""
    await rig.add_brokers(2)
    for path in znodes.PERSISTENT_PATHS:
        await zk_session.ensure_path(path)
    assignment = znodes.encode_topic(TopicAssignment("id-1", {0: (1, 2), 1: (2, 1)}))
    state = znodes.PartitionState(-1, 7, (1,), 0)
    await zk_session.create(znodes.topic_path("gaps"), assignment)
    await zk_session.ensure_path(znodes.partition_path("gaps", 0))
    await zk_session.create(znodes.state_path("gaps", 0), znodes.encode_state(state))
    controller = await rig.controller()
    await rig.settled(controller)
    partitions = (await controller.http.get("/v1/topics/gaps/partitions")).json()["partitions"]
    assert [(p["leader"], p["leader_epoch"], p["isr"]) for p in partitions] == [
        (-1, 7, [1]),
        (2, 0, [2]),
    ]

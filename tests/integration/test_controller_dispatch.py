"""What brokers receive when one of them refuses, disagrees or is slow."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from unittest.mock import AsyncMock

import pytest

from leadline_client.errors import NoController, StaleControllerEpoch, StorageFailed
from leadline_client.wire import NewTopic
from leadline_common.leader_election import ElectionState
from tests.integration.test_controller_spine import beat
from tests.support.services.controller_rig import Rig, create
from tests.support.services.zookeeper import until


async def test_a_role_that_is_refused_for_ever_keeps_nothing_else_waiting(rig: Rig) -> None:
    """One full disk: its broker still hears of every other topic, and still deletes."""
    controller = await rig.up(brokers=2)
    await create(controller, "old", partitions=1, replication_factor=2)
    broker = rig.brokers[1]
    broker.refuse_next = [StorageFailed.code] * 10_000
    creation = asyncio.create_task(
        controller.service.create_topic(NewTopic("full", 1, 2), dry_run=False)
    )
    await until(lambda: "full" in broker.metadata, "metadata goes on")
    answer = await controller.http.delete("/v1/topics/old?wait_ms=5000")
    assert answer.json()["complete"]
    broker.refuse_next.clear()
    await creation
    assert ("full", 0) in broker.roles


async def test_defect_10_a_role_that_is_refused_for_ever_leaves_the_audit_readable(
    rig: Rig,
) -> None:
    controller = await rig.up(brokers=2)
    rig.brokers[1].refused_topics["full"] = StorageFailed.code
    creation = asyncio.create_task(
        controller.service.create_topic(NewTopic("full", 1, 2), dry_run=False)
    )
    await until(lambda: bool(rig.brokers[1].late), "the role is refused")
    for number in range(3):
        await create(controller, f"other-{number}", partitions=1, replication_factor=2)

        answer = await controller.http.get("/v1/audit?kind=topic_created")

        assert answer.status_code == 200, answer.text
        found = {entry["resource"]["topic"] for entry in answer.json()["entries"]}
        assert f"other-{number}" in found
    rig.brokers[1].refused_topics.clear()
    await creation


async def test_defect_10_a_broker_that_cannot_be_reached_leaves_the_audit_readable(
    rig: Rig,
) -> None:
    """Its session lives on, so that the controller keeps sending."""
    controller = await rig.up(brokers=2)
    rig.brokers[1].deaf = True
    creation = asyncio.create_task(
        controller.service.create_topic(NewTopic("t", 1, 2), dry_run=False)
    )
    elected = controller.service.active_controller()
    await until(lambda: not elected.dispatcher.idle(), "the role is being sent")
    for kind in ("topic_created", "state_changed", "topic_created"):
        answer = await controller.http.get(f"/v1/audit?kind={kind}")

        assert answer.status_code == 200, answer.text
    rig.brokers[1].deaf = False
    await creation


@pytest.mark.parametrize("taken", [False, True])
async def test_defect_10_a_refused_role_does_not_hide_that_others_are_missing(
    rig: Rig, taken: bool
) -> None:
    """R8: the broker lacks a role that it had acknowledged, while it refuses another."""
    controller = await rig.up(brokers=1)
    broker = rig.brokers[1]
    await create(controller, "orders", partitions=2, replication_factor=1)
    if taken:
        await create(controller, "full", partitions=1, replication_factor=1)
    broker.refused_topics["full"] = StorageFailed.code
    creation: asyncio.Task[object] | None = None
    if taken:
        await broker.bounce()
    else:
        creation = asyncio.create_task(
            controller.service.create_topic(NewTopic("full", 1, 1), dry_run=False)
        )
    await until(lambda: bool(broker.late) and len(broker.roles) == 2, "one role is refused")

    def grants() -> int:
        return sum(command.is_init for command in broker.leader_and_isr)

    before = grants()
    for _ in range(8):
        await beat(controller, broker)
    assert grants() == before, "what it refuses is known"
    del broker.roles["orders", 1]
    for _ in range(8):
        await beat(controller, broker)
    await until(lambda: ("orders", 1) in broker.roles, "the missing role is sent again")
    broker.refused_topics.clear()
    await until(lambda: ("full", 0) in broker.roles, "the refused role is sent again")
    if creation is not None:
        await creation


async def test_a_disagreement_that_grants_do_not_settle_costs_ever_fewer_of_them(rig: Rig) -> None:
    """A replica that cannot be opened, for instance: the broker says so with every heartbeat."""
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, replication_factor=1)
    broker = rig.brokers[1]

    def grants() -> int:
        return sum(command.is_init for command in broker.leader_and_isr)

    before = grants()
    for _ in range(100):
        await beat(controller, broker, replicas=9)
        await rig.settled(controller)
    assert 2 <= grants() - before <= 6
    for _ in range(2):
        await beat(controller, broker)
    broker.roles.clear()
    for _ in range(5):
        await beat(controller, broker)
    await until(lambda: len(broker.roles) == 1, "after an agreement it is helped soon again")


async def test_talk_of_a_later_controller_makes_a_controller_look(rig: Rig) -> None:
    """R11: it goes by what ZooKeeper says, not by what anybody claims."""
    controller = await rig.up(brokers=1)
    elected, term = controller.service.active_controller(), controller.epoch
    await beat(controller, rig.brokers[1], controller_epoch=term + 1)
    await create(controller, partitions=1, replication_factor=1)
    assert controller.service.active_controller() is elected, "it holds the leadership"
    store = controller.stores[-1]
    state = await store.read_election()
    store.read_election = partial(  # type: ignore[method-assign]  # what it reads
        _led_by_another, state
    )
    await beat(controller, rig.brokers[1], controller_epoch=term + 1)
    await until(lambda: controller.is_active and controller.epoch > term, "it is elected again")


async def test_a_broker_that_refuses_every_epoch_deposes_nobody(rig: Rig) -> None:
    """R11: whoever answers for a broker may claim anything."""
    controller = await rig.up(brokers=2)
    elected = controller.service.active_controller()
    rig.brokers[1].refused_topics["full"] = StaleControllerEpoch.code
    creation = asyncio.create_task(
        controller.service.create_topic(NewTopic("full", 1, 2), dry_run=False)
    )
    await until(lambda: bool(rig.brokers[1].late), "the role is refused")
    await create(controller, "other", partitions=1, replication_factor=2)
    rig.brokers[1].refused_topics.clear()
    await creation
    assert controller.service.active_controller() is elected


@pytest.mark.parametrize("moved", ["the leader", "the epoch"])
async def test_a_refusal_that_zookeeper_confirms_ends_the_term(rig: Rig, moved: str) -> None:
    controller = await rig.up(brokers=1)
    term, store = controller.epoch, controller.stores[-1]
    state = await store.read_election()
    epoch = replace(state.term, epoch_version=state.term.epoch_version + 1)
    changed = await _led_by_another(state) if moved == "the leader" else replace(state, term=epoch)
    store.read_election = AsyncMock(return_value=changed)  # type: ignore[method-assign]  # what it reads
    rig.brokers[1].refused_topics["full"] = StaleControllerEpoch.code
    creation = asyncio.create_task(
        controller.service.create_topic(NewTopic("full", 1, 1), dry_run=False)
    )
    await until(lambda: controller.is_active and controller.epoch > term, "it is elected again")
    await asyncio.gather(creation, return_exceptions=True)


async def _led_by_another(state: ElectionState, _watch: object = None) -> ElectionState:
    assert state.leader is not None
    return replace(state, leader=replace(state.leader, session_id=state.leader.session_id + 1))


async def test_a_long_poll_ends_with_the_term(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    version = controller.service.image().version
    poll = asyncio.create_task(controller.service.metadata(version + 1_000, 30_000))
    await asyncio.sleep(0)  # it has begun, under this term
    await controller.retire()
    with pytest.raises(NoController):
        await poll

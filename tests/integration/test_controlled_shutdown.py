"""Controlled shutdown: the controller moves all leaders off a broker that is about to stop."""

from __future__ import annotations

import msgspec
import pytest

from leadline_client.errors import BrokerFenced, StaleIncarnation
from leadline_common import rpc, znodes
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_controller.runtime.channel.dispatcher import MISMATCHES_BEFORE_GRANT
from tests.integration.test_controller_spine import audit, beat
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RecordingBroker, RunningController, read_state
from tests.support.services.identities import call_as
from tests.support.services.zookeeper import until


async def ask_to_stop(
    controller: RunningController, broker: RecordingBroker, incarnation: int | None = None
) -> rpc.ControlledShutdownResponse:
    known = broker.incarnation if incarnation is None else incarnation
    request = rpc.ControlledShutdownRequest(broker.id, known, "test")
    answer = await call_as(
        broker.identity, controller.internal_address, rpc.CONTROLLED_SHUTDOWN_PATH, request
    )
    return msgspec.json.decode(answer, type=rpc.ControlledShutdownResponse)


async def request_shutdown(
    controller: RunningController, broker: RecordingBroker
) -> list[tuple[str, int]]:
    """Request the controlled shutdown of a broker; return the partitions that it still leads."""
    return (await ask_to_stop(controller, broker)).remaining


async def state_changes(session: ZkSession) -> int:
    return sum(len(entry.changes) for entry in await audit(session))


async def test_leaders_are_moved_before_a_broker_stops(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    await create(controller, partitions=6, replication_factor=3)
    assert await request_shutdown(controller, rig.brokers[1]) == []
    for partition in range(6):
        state = await read_state(zk_session, "orders", partition)
        assert state.leader != 1
        assert set(state.isr) == {2, 3}
    await until(lambda: not rig.brokers[1].roles, "it has left its replicas")
    assert not any(stop.delete for stop in rig.brokers[1].stops)
    assert all(row.leader in (2, 3) for row in rig.brokers[2].roles.values())
    entry = next(e for e in await audit(zk_session) if e.kind == "controlled_shutdown")
    assert entry.actor == "broker-1"
    written = await state_changes(zk_session)
    assert await request_shutdown(controller, rig.brokers[1]) == []
    assert await state_changes(zk_session) == written, "repeating it writes nothing"
    await rig.brokers[1].leave()
    await rig.settled(controller)
    assert await state_changes(zk_session) == written, "its end is no news any more"


async def test_what_nobody_else_can_lead_is_answered_and_goes_on(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment={"0": [1], "1": [2]})
    assert await request_shutdown(controller, rig.brokers[1]) == [("orders", 0)]
    state = await read_state(zk_session, "orders", 0)
    assert (state.leader, state.leader_epoch) == (1, 0)
    assert ("orders", 0) in rig.brokers[1].roles


async def test_acks_all_goes_on_until_the_broker_is_gone(rig: Rig, zk_session: ZkSession) -> None:
    """min.insync.replicas 2 of two replicas: the ISR keeps it, and another one leads."""
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment={"0": [1, 2], "1": [2, 1]})
    assert await request_shutdown(controller, rig.brokers[1]) == []
    states = [await read_state(zk_session, "orders", partition) for partition in (0, 1)]
    assert [(s.leader, set(s.isr)) for s in states] == [(2, {1, 2}), (2, {1, 2})]
    await until(lambda: rig.brokers[1].roles["orders", 0].leader == 2, "it follows")
    assert rig.brokers[1].stops == []


async def test_a_broker_that_stops_gets_nothing_new(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2, 3]})
    await request_shutdown(controller, rig.brokers[1])
    grants = sum(command.is_init for command in rig.brokers[1].leader_and_isr)
    answer = await controller.http.post("/v1/elections", json={"type": "preferred"})
    assert answer.json()["elected"] == []
    await create(controller, "new", replica_assignment={"0": [1, 2, 3]})
    state = await read_state(zk_session, "new", 0)
    assert (state.leader, state.isr) == (2, (2, 3))
    placed = await create(controller, "placed", partitions=3, replication_factor=2)
    assert all(1 not in replicas for replicas in placed["replica_assignment"].values())
    for _ in range(MISMATCHES_BEFORE_GRANT + 2):
        await beat(controller, rig.brokers[1])
    await rig.settled(controller)
    assert sum(command.is_init for command in rig.brokers[1].leader_and_isr) == grants
    # It would be in sync and preferred, if its stop had not been ordered.
    grown = znodes.PartitionState(2, 1, (1, 2, 3), 1)
    await zk_session.set(znodes.state_path("orders", 0), znodes.encode_state(grown), ANY_VERSION)
    await beat(controller, rig.brokers[2], isr_changes=[("orders", 0)])
    await rig.brokers[2].leave()
    await until(lambda: rig.brokers[3].roles["orders", 0].leader == 3, "3 leads, not 1")
    await rig.brokers[1].bounce()
    await until(lambda: len(rig.brokers[1].roles) == 2, "the next incarnation has its roles")
    assert controller.service.image().stopping == set()


async def test_an_unknown_incarnation_is_refused(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment={"0": [1, 2]})
    broker = rig.brokers[1]
    with pytest.raises(StaleIncarnation):
        await ask_to_stop(controller, broker, broker.incarnation - 1)
    with pytest.raises(BrokerFenced):
        await ask_to_stop(controller, broker, broker.incarnation + 1)
    assert (await read_state(zk_session, "orders", 0)).leader == 1


async def test_another_controller_is_asked_again(rig: Rig, zk_session: ZkSession) -> None:
    first = await rig.up()
    await create(first, partitions=3, replication_factor=3)
    await request_shutdown(first, rig.brokers[1])
    await first.retire()
    second = await rig.controller()
    await rig.settled(second)
    assert await request_shutdown(second, rig.brokers[1]) == []
    await until(lambda: not rig.brokers[1].roles, "it has left its replicas again")

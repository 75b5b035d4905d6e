"""A broker obeys the controller that ZooKeeper names, in the epoch that ZooKeeper has."""

from __future__ import annotations

import pytest

from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.controller_check import ControllerCheck
from leadline_client.errors import BrokerFenced, StaleControllerEpoch, UnknownControllerEpoch
from leadline_common.zk.errors import ConnectionLoss
from tests.unit.broker.small_cluster import NodeStore, StateNodes


class AskedStore(NodeStore):
    """Counts how often it is asked who leads; may be unreachable."""

    def __init__(self, nodes: StateNodes) -> None:
        super().__init__(1, nodes)
        self.asked = 0
        self.reachable = True

    async def elected_controller(self) -> tuple[int | None, int]:
        self.asked += 1
        if not self.reachable:
            raise ConnectionLoss
        return await super().elected_controller()


async def _nothing_under_way() -> None: ...


@pytest.fixture
def nodes() -> StateNodes:
    return StateNodes(elected=(2, 7))


@pytest.fixture
def store(nodes: StateNodes) -> AskedStore:
    return AskedStore(nodes)


@pytest.fixture
def check(store: AskedStore) -> ControllerCheck:
    return ControllerCheck(store, BrokerState(1, lambda: True), _nothing_under_way)


async def test_the_elected_controller_is_confirmed_once(
    check: ControllerCheck, store: AskedStore
) -> None:
    for _ in range(3):
        await check.require_active(2, 7)
    assert store.asked == 1


@pytest.mark.parametrize("controller", [1, 2])
@pytest.mark.parametrize("epoch", [8, 2**31, 2**63])
async def test_no_epoch_above_zookeepers_is_obeyed(
    check: ControllerCheck, controller: int, epoch: int
) -> None:
    with pytest.raises(UnknownControllerEpoch):
        await check.require_active(controller, epoch)


@pytest.mark.parametrize(("controller", "epoch"), [(1, 7), (2, 6), (1, 6), (3, -1)])
async def test_another_controller_or_an_earlier_epoch_is_stale(
    check: ControllerCheck, controller: int, epoch: int
) -> None:
    with pytest.raises(StaleControllerEpoch) as refused:
        await check.require_active(controller, epoch)
    assert refused.value.details["controller_epoch"] == 7


async def test_a_controller_whose_session_is_over_is_stale(
    check: ControllerCheck, nodes: StateNodes
) -> None:
    nodes.elected = (-1, 7)
    with pytest.raises(StaleControllerEpoch):
        await check.require_active(2, 7)


async def test_an_unreadable_leader_node_does_not_stop_the_controller_of_the_epoch(
    check: ControllerCheck, nodes: StateNodes
) -> None:
    nodes.elected = (None, 7)
    await check.require_active(2, 7)
    with pytest.raises(UnknownControllerEpoch):
        await check.require_active(2, 8)


async def test_without_zookeeper_a_new_controller_is_asked_to_wait(
    check: ControllerCheck, nodes: StateNodes, store: AskedStore
) -> None:
    await check.require_active(2, 7)
    store.reachable = False
    await check.require_active(2, 7)
    with pytest.raises(BrokerFenced) as refused:
        await check.require_active(1, 8)
    assert refused.value.retriable
    store.reachable, nodes.elected = True, (1, 8)
    await check.require_active(1, 8)

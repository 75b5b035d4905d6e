"""What is left of a controller's term in its process."""

from __future__ import annotations

import gc
from weakref import ref

import pytest

from leadline_common import znodes
from leadline_common.leader_election import RETRY_S
from leadline_controller.runtime.active_controller import ActiveController
from tests.runtime_simulation.cluster import Cluster, files
from tests.runtime_simulation.plan import Plan
from tests.runtime_simulation.world import World

_ANY = -1


@pytest.mark.usefixtures("own_collector")
def test_nothing_is_left_of_a_term_when_the_process_leads_again() -> None:
    """Each term has an image of the whole cluster, and freezes what there is.

    What the garbage collector has not freed by then, it never would.
    """
    world = World(1)
    with files() as root:
        cluster = Cluster(world, root, Plan(brokers=1, controllers=1))
        with cluster.system.in_force(), cluster.machine.sockets.in_force():
            gc.collect()
            gc.disable()
            try:
                cluster.start()
                first = ref(active_in(cluster))
                end_term(cluster)

                second = ref(active_in(cluster))

                assert second() is not None
                assert first() is None
            finally:
                gc.enable()
                gc.unfreeze()
                cluster.end()


@pytest.mark.parametrize("lasts_s", [0.5, 30.0])
def test_defect_51_only_a_controller_that_is_cut_off_for_long_has_a_successor(
    lasts_s: float,
) -> None:
    """It reaches ZooKeeper, so that its session goes on."""
    world = World(1)
    with files() as root:
        plan = Plan(brokers=3, controllers=2, contact_timeout_ms=2_000)
        cluster = Cluster(world, root, plan)
        with cluster.system.in_force(), cluster.machine.sockets.in_force():
            try:
                cluster.start()
                assert cluster.run(30, lambda: any(one.is_active for one in cluster.controllers))
                cluster.run(3)
                (first,) = (one for one in cluster.controllers if one.is_active)
                (other,) = (one for one in cluster.controllers if one is not first)

                cluster.network.isolate(first.name, [one.name for one in cluster.brokers.values()])
                world.loop.after(lasts_s, cluster.network.heal)
                is_succeeded = cluster.run(10, lambda: other.is_active)

                assert is_succeeded == (lasts_s > 2)
                assert first.is_active != is_succeeded
            finally:
                cluster.end()


def active_of(cluster: Cluster) -> ActiveController | None:
    (controller,) = cluster.controllers
    return None if controller.leadership is None else controller.leadership.active_controller


def active_in(cluster: Cluster) -> ActiveController:
    """Let time pass until the controller is active, and return its term."""
    cluster.run(30, lambda: active_of(cluster) is not None)
    found = active_of(cluster)
    assert found is not None
    return found


def end_term(cluster: Cluster) -> None:
    """Delete the leader node as an operator might, and let the controller find out."""
    change = cluster.zookeeper.tree.begin()
    change.delete(znodes.CONTROLLER, _ANY)
    cluster.zookeeper.committed(change.commit())
    assert cluster.run(30, lambda: active_of(cluster) is None)
    cluster.run(RETRY_S / 2)
    # Only the simulation keeps tasks that are done, and transports that are closed.
    loop = cluster.world.loop
    loop._tasks = [task for task in loop._tasks if not task.done()]
    cluster.zookeeper.transports.clear()

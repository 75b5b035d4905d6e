"""What can happen to any service: it is killed, frozen or cut off, and recovers some time later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.runtime_simulation.cluster import Cluster
from tests.runtime_simulation.network import both_ways
from tests.runtime_simulation.plan import Fault
from tests.runtime_simulation.services import Service

S = TypeVar("S", bound=Service)


class ServiceFaults:
    """Injects faults that end by themselves. Once all is `healed`, nothing more happens."""

    def __init__(self, cluster: Cluster) -> None:
        self.healed = False
        self._cluster = cluster
        self._world = cluster.world

    def later(self, delay_s: float, action: Callable[..., object], *args: object) -> None:
        """Do something later, unless all is healed by then."""

        def act() -> None:
            if not self.healed:
                action(*args)

        self._world.loop.after(delay_s, act)

    @staticmethod
    def choose(hosts: Sequence[S], active: Sequence[S], fault: Fault) -> S:
        """Return the active one in three faults of four, otherwise any."""
        return active[0] if active and fault.choice % 4 else hosts[fault.target % len(hosts)]

    def kill(self, service: Service, fault: Fault) -> None:
        """Kill a service, and start it again."""
        if not self.healed:
            service.kill()
            self.later(fault.for_s, service.start)

    def freeze(self, service: Service, fault: Fault) -> None:
        """Freeze a service, and let it go on."""
        service.freeze()
        self.later(fault.for_s, service.resume)

    def cut_from_zookeeper(self, service: Service, fault: Fault) -> None:
        """Cut a service off from ZooKeeper."""
        zookeeper, process = self._cluster.zookeeper, service.process
        if process is None:
            return
        zookeeper.cut.add(service.name)
        # A silent cut is noticed only after a part of the session timeout.
        notice_s = 0.0 if fault.choice % 2 else self._world.between(0.1, 1.3)
        self.later(notice_s, zookeeper.disconnect, process)
        self.later(fault.for_s, zookeeper.cut.discard, service.name)

    def cut_off(self, name: str, others: Sequence[str], fault: Fault) -> None:
        """Cut a process off from others, in both directions."""
        self.cut(both_ways(name, others), fault)

    def cut(self, links: set[tuple[str, str]], fault: Fault) -> None:
        """Cut links, each from one process to another."""
        network = self._cluster.network
        network.cut |= links
        self.later(fault.for_s, network.cut.difference_update, links)

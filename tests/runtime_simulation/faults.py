"""Injects the faults of a plan into a running cluster, and heals it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from leadline_broker.adapters.log.root_files import read_directory_version
from leadline_common import znodes
from tests.runtime_simulation.ambushes import Ambushes
from tests.runtime_simulation.clock import several_wrong_times, wrong_times
from tests.runtime_simulation.cluster import FAST_DISK_S, FIRST, Cluster
from tests.runtime_simulation.damage import Damage
from tests.runtime_simulation.group_faults import GroupFaults
from tests.runtime_simulation.network import NetworkWeather
from tests.runtime_simulation.plan import (
    CLOCK,
    CLOCKS,
    CUT_OFF,
    DIES,
    FLIP,
    HANG,
    OLDER_COPY,
    SHORT,
    UNCLEAN,
    UNREADABLE,
    Fault,
    Plan,
)
from tests.runtime_simulation.reading_faults import ReadingFaults
from tests.runtime_simulation.service_faults import ServiceFaults
from tests.runtime_simulation.services import BrokerService, Service
from tests.runtime_simulation.unclean_faults import UncleanFaults
from tests.runtime_simulation.zookeeper import ZooKeeperWeather

PUT_BACK: Final = "an older copy took the place of a disk"
SUCCEEDED: Final = "another controller led while one was cut off from all brokers"


class Faults:
    """Injects the faults of a plan into a cluster, and heals it."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._services = services = ServiceFaults(cluster)
        self._damage = Damage(cluster)
        self._reading = ReadingFaults(cluster.world, services)
        cluster.slow_disk_s = plan.slow_disk_s
        cluster.network.weather = plan.network
        cluster.zookeeper.weather = plan.zookeeper
        self._of_brokers: dict[str, Callable[[BrokerService, Fault], None]] = {
            "kill": services.kill,
            "power cut": self._cut_power,
            "leader killed at an acknowledgement": self._kill_at_acknowledgement,
            "freeze": services.freeze,
            "wiped disk": self._wipe,
            OLDER_COPY: self._copy,
            DIES: self._lose,
            FLIP: self._flip,
            HANG: self._hang,
            SHORT: self._run_short,
            UNREADABLE: self._reading.begin,
            "clean restart": self._restart,
            "cut from ZooKeeper": services.cut_from_zookeeper,
            "ZooKeeper connection lost": self._disconnect,
            "fsync fails": self._fail_fsync,
            "disk full": self._fill_disk,
            "isolate": self._isolate,
            "one-way cut": self._cut_one_way,
        }
        self._of_others: dict[str, Callable[[Fault], None]] = {
            "power cut of all": self._cut_all,
            "power cut of all at an acknowledgement": self._cut_all_at_acknowledgement,
            "kill controller": lambda fault: services.kill(self._active(fault), fault),
            "freeze controller": lambda fault: services.freeze(self._active(fault), fault),
            "cut controller from ZooKeeper": lambda fault: services.cut_from_zookeeper(
                self._active(fault), fault
            ),
            "cut controller from brokers": self._cut_controller,
            CUT_OFF: self._cut_off_controller,
            "second controller": self._delete_controller,
            "no quorum": self._lose_quorum,
            CLOCK: self._set_clock,
            CLOCKS: self._set_clocks,
            UNCLEAN: UncleanFaults(cluster, services).begin,
            "preferred leaders elected": lambda _: self._cluster.elect_preferred(),
            **Ambushes(cluster, services).by_kind,
        }
        self._of_group: GroupFaults | None = None
        if cluster.members is not None:
            self._of_group = GroupFaults(cluster, cluster.members, services)
        for fault in plan.faults:
            self._world.loop.after(fault.at_s, self._inject, fault)

    def heal(self) -> None:
        """End all faults: everything runs, and all links work."""
        self._services.healed = True
        cluster = self._cluster
        cluster.slow_disk_s = FAST_DISK_S
        cluster.network.weather = NetworkWeather()
        cluster.zookeeper.weather = ZooKeeperWeather()
        cluster.system.ahead_s.clear()
        cluster.network.heal()
        cluster.zookeeper.cut.clear()
        cluster.zookeeper.regain_quorum()
        for broker in cluster.brokers.values():
            if broker.disk.shortage:
                self._end_shortage(broker)
            broker.disk.free_bytes = None
            if broker.disk.hangs:
                self._world.loop.after(1.0, broker.start_if_ended)
            broker.go_on()
            if broker.disk.failing:
                self._repair_disk(broker)
        for service in cluster.services:
            service.resume()
            service.start()
        for broker in cluster.brokers.values():
            if broker.stopping:
                self._start_again(broker)
        if self._of_group is not None:
            self._of_group.heal()
        self._reading.end()
        self._damage.repair()

    def _inject(self, fault: Fault) -> None:
        if self._services.healed:
            return
        self._world.note("FAULT %s", fault)
        self._world.reached(fault.kind)
        if self._of_group is not None and self._of_group.inject(fault):
            return
        broker = self._broker(fault)
        inject = self._of_brokers.get(fault.kind)
        if inject is not None:
            inject(broker, fault)
        else:
            self._of_others[fault.kind](fault)

    def _broker(self, fault: Fault) -> BrokerService:
        """Return the leader of a partition in half of the faults, otherwise any broker."""
        brokers = self._cluster.brokers
        state = self._cluster.topics.state(FIRST)
        if fault.choice & 8 and state is not None and state.leader in brokers:
            return brokers[state.leader]
        return brokers[1 + fault.target % len(brokers)]

    def _active(self, fault: Fault) -> Service:
        """Return the active controller in three faults of four, otherwise any."""
        hosts = self._cluster.controllers
        active = [host for host in hosts if host.is_active]
        return self._services.choose(hosts, active, fault)

    # -- processes and disks ---------------------------------------------------

    def _cut_power(self, broker: BrokerService, fault: Fault) -> None:
        if not self._services.healed:
            broker.kill()
            broker.disk.cut_power()
            self._services.later(fault.for_s * self._world.between(0.5, 1.5), broker.start)

    def _cut_all(self, fault: Fault) -> None:
        for broker in self._cluster.brokers.values():
            self._cut_power(broker, fault)

    def _kill_at_acknowledgement(self, broker: BrokerService, fault: Fault) -> None:
        self._cluster.at_next_acknowledgement(partial(self._services.kill, broker, fault))

    def _cut_all_at_acknowledgement(self, fault: Fault) -> None:
        self._cluster.at_next_acknowledgement(partial(self._cut_all, fault))

    def _restart(self, broker: BrokerService, fault: Fault) -> None:
        """Stop a broker in good order, and start it again later; meanwhile it may be killed."""
        broker.stop()
        self._services.later(fault.for_s + 1.0, self._start_again, broker)

    @staticmethod
    def _start_again(broker: BrokerService) -> None:
        broker.kill()  # if it has not stopped by now
        broker.start()

    def _wipe(self, broker: BrokerService, fault: Fault) -> None:
        """Lose a broker's disk, once in a run: min.insync.replicas - 1 disks may be lost."""
        if self._cluster.wiped is None and len(self._cluster.brokers) > 2:
            self._cluster.wiped = broker.number
            broker.kill()
            broker.disk.wipe()
            self._services.later(fault.for_s, broker.start)

    def _copy(self, broker: BrokerService, fault: Fault) -> None:
        """Copy a broker's disk, and later let the copy take its place."""
        self._services.later(fault.for_s, self._put_back, broker, broker.disk.copied())

    def _put_back(self, broker: BrokerService, copy: Path) -> None:
        """Replace a disk by a copy of it, if the copy can be known to be older by now."""
        if read_directory_version(broker.disk.root) == read_directory_version(copy):
            return
        self._world.reached(PUT_BACK)
        self._cluster.wiped = broker.number
        broker.kill()
        broker.disk.replace_by(copy)
        broker.start()

    def _lose(self, broker: BrokerService, fault: Fault) -> None:
        """Lose a broker and its disk; by choice it returns long after, with its disk."""
        if self._cluster.wiped is not None or len(self._cluster.brokers) < 4:
            return
        self._cluster.wiped, broker.gone = broker.number, True
        broker.kill()
        if fault.choice % 2:
            self._services.later(fault.for_s, self._cluster.give_back, broker)

    def _flip(self, broker: BrokerService, fault: Fault) -> None:
        """Kill a broker, damage its disk, and start it again."""
        broker.kill()
        self._damage.flip(broker, fault)
        self._services.later(fault.for_s, broker.start)

    def _fail_fsync(self, broker: BrokerService, fault: Fault) -> None:
        broker.disk.failing = True
        self._services.later(fault.for_s, self._repair_disk, broker)

    @staticmethod
    def _repair_disk(broker: BrokerService) -> None:
        """Let fsync work again. A log that failed stays closed until its broker is restarted."""
        broker.disk.failing = False
        broker.kill()
        broker.start()

    def _hang(self, broker: BrokerService, fault: Fault) -> None:
        broker.hang()
        self._services.later(fault.for_s, broker.go_on)

    def _run_short(self, broker: BrokerService, fault: Fault) -> None:
        """Let a broker have no space for new files, or no descriptor for any."""
        broker.disk.shortage = errno.EMFILE if fault.choice & 16 else errno.ENOSPC
        if broker.disk.shortage == errno.ENOSPC:
            broker.disk.free_bytes = 0
        self._services.later(fault.for_s, self._end_shortage, broker)

    def _end_shortage(self, broker: BrokerService) -> None:
        """Let a broker have space and descriptors again; it starts if the lack of them ended it."""
        broker.disk.shortage, broker.disk.free_bytes = 0, None
        broker.start()

    def _set_clock(self, fault: Fault) -> None:
        """Set the wall clock of a service, and later set it right or to another wrong time."""
        names = [service.name for service in self._cluster.services]
        name = names[fault.target % len(names)]
        for delay_s, ahead_s in wrong_times(fault):
            self._services.later(delay_s, self._cluster.system.set_clock, name, ahead_s)

    def _set_clocks(self, fault: Fault) -> None:
        """Set the wall clocks of several services at once, and later set them right."""
        system = self._cluster.system
        controllers = [one.name for one in self._cluster.controllers]
        brokers = [one.name for one in self._cluster.brokers.values()]
        others = [one.name for one in self._cluster.coordinators]
        for name, ahead_s in several_wrong_times(fault, controllers, brokers, others):
            system.set_clock(name, ahead_s)
            self._services.later(fault.for_s, system.set_clock, name, 0.0)

    def _fill_disk(self, broker: BrokerService, fault: Fault) -> None:
        broker.disk.free_bytes = 0

        def free() -> None:
            broker.disk.free_bytes = None
            broker.start()

        self._services.later(fault.for_s, free)

    # -- ZooKeeper -------------------------------------------------------------

    def _disconnect(self, broker: BrokerService, _: Fault) -> None:
        if broker.process is not None:
            self._cluster.zookeeper.disconnect(broker.process)

    def _delete_controller(self, _: Fault) -> None:
        """Delete the leader node, as an operator may: two controllers believe that they lead."""
        self._cluster.zookeeper.delete(znodes.CONTROLLER)

    def _lose_quorum(self, fault: Fault) -> None:
        zookeeper = self._cluster.zookeeper
        zookeeper.without_quorum = True
        for service in self._cluster.services:
            if service.process is not None:
                zookeeper.disconnect(service.process)
        self._services.later(fault.for_s, zookeeper.regain_quorum)

    # -- links -----------------------------------------------------------------

    def _isolate(self, broker: BrokerService, fault: Fault) -> None:
        self._services.cut_off(broker.name, self._others(broker), fault)

    def _cut_one_way(self, broker: BrokerService, fault: Fault) -> None:
        others = self._others(broker)
        self._services.cut({(broker.name, others[fault.choice % len(others)])}, fault)

    def _cut_controller(self, fault: Fault) -> None:
        controller = self._active(fault)
        brokers = self._cluster.brokers.values()
        self._services.cut({(controller.name, broker.name) for broker in brokers}, fault)

    def _cut_off_controller(self, fault: Fault) -> None:
        """Cut the active controller off in both directions; see at the end who leads."""
        active = [host for host in self._cluster.controllers if host.is_active]
        if not active:
            return
        names = [broker.name for broker in self._cluster.brokers.values()]
        self._services.cut_off(active[0].name, names, fault)

        def look() -> None:
            if any(host.is_active for host in self._cluster.controllers if host is not active[0]):
                self._world.reached(SUCCEEDED)

        self._services.later(fault.for_s, look)

    def _others(self, broker: BrokerService) -> list[str]:
        return [each.name for each in self._cluster.brokers.values() if each is not broker]

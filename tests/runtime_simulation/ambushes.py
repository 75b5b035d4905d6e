"""Faults that wait for an event, and then strike what is about to happen."""

from __future__ import annotations

from collections.abc import Callable

from leadline_common import znodes
from tests.runtime_simulation.cluster import FIRST, Cluster
from tests.runtime_simulation.plan import AWAY_AND_BACK, BEHIND, GROWTH, REPLACED, SHRUNKEN, Fault
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.service_faults import ServiceFaults
from tests.runtime_simulation.services import BrokerService
from tests.runtime_simulation.zookeeper_tree import Change


class Ambushes:
    """Waits in a cluster for changes in ZooKeeper."""

    def __init__(self, cluster: Cluster, services: ServiceFaults) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._services = services
        self.by_kind: dict[str, Callable[[Fault], None]] = {
            GROWTH: self._await_growth,
            SHRUNKEN: self._await_shrinking,
            AWAY_AND_BACK: self._await_move,
            BEHIND: self._await_tail,
            REPLACED: self._await_deletion,
        }

    def _on_commit(self, act: Callable[[list[Change]], bool]) -> None:
        """Show each commit to a function until it returns True, or all is healed."""
        services = self._services
        self._cluster.zookeeper.on_commit.append(lambda changes: services.healed or act(changes))

    def _kill_soon(self, broker: BrokerService, fault: Fault) -> None:
        delay_s = self._world.between(0.05, 0.5)
        self._services.later(delay_s, self._services.kill, broker, fault)

    def _but(self, *numbers: int) -> list[BrokerService]:
        return [b for b in self._cluster.brokers.values() if b.number not in numbers]

    def _links_of(self, number: int) -> set[tuple[str, str]]:
        """Return the links between a broker and the other ones."""
        name, others = self._cluster.brokers[number].name, self._but(number)
        return {(b.name, name) for b in others} | {(name, b.name) for b in others}

    # -- changes of an ISR -----------------------------------------------------

    def _await_growth(self, fault: Fault) -> None:
        """As soon as an ISR grows: lose the leader's answer, and soon all brokers but the joiner.

        The joiner gets no record meanwhile. So nothing that is acknowledged after the growth took
        effect may lack it (R5, R7). By choice the leader loses ZooKeeper for a while.
        """

        def look(changes: list[Change]) -> bool:
            for change in changes:
                if (grown := self._cluster.growth(change.path)) is not None:
                    self._world.loop.after(0.0, self._on_growth, *grown, fault)
                    return True
            return False

        self._on_commit(look)

    def _on_growth(self, leader: int, joiner: int, fault: Fault) -> None:
        self._world.reached("ISR grew in an ambush")
        self._lose_zookeeper(self._cluster.brokers[leader], fault)
        self._services.cut(self._links_of(joiner), fault)
        for broker in self._but(joiner):
            self._kill_soon(broker, fault)

    def _lose_zookeeper(self, broker: BrokerService, fault: Fault) -> None:
        zookeeper = self._cluster.zookeeper
        if broker.process is None:
            return
        zookeeper.disconnect(broker.process)
        if fault.choice % 2:
            zookeeper.cut.add(broker.name)
            self._services.later(0.8, zookeeper.cut.discard, broker.name)

    def _await_shrinking(self, fault: Fault) -> None:
        """Once a dead broker has left the ISR: kill the others, and let one return with it.

        That one was the last member of the ISR, and leads with the high watermark of its last
        checkpoint. The other one asks it for records, but gets no answer. If it joins, it is the
        only one that stays: so it must have what earlier leaders have committed (R6).
        """
        replicas = len(self._cluster.topics.replicas(FIRST))

        def look(_: list[Change]) -> bool:
            state = self._cluster.topics.state(FIRST)
            if state is None or len(state.isr) >= replicas:
                return False
            self._services.later(self._world.between(0.3, 0.6), self._kill_isr, state.isr)
            return True

        del fault
        self._on_commit(look)

    def _kill_isr(self, isr: tuple[int, ...]) -> None:
        """Kill the members of an ISR, until all their sessions have expired."""
        for member in isr:
            self._cluster.brokers[member].kill()
        self._services.later(2.5, self._return_two, isr)

    def _return_two(self, isr: tuple[int, ...]) -> None:
        state = self._cluster.topics.state(FIRST)
        if state is None or len(state.isr) != 1:
            return
        self._world.reached("a broker behind returned with the last member")
        last = self._cluster.brokers[state.isr[0]]
        (behind,) = self._but(*isr)
        self._cluster.network.cut.add((last.name, behind.name))
        last.start()
        behind.start()

        def look(changes: list[Change]) -> bool:
            grown = any(self._cluster.growth(change.path) for change in changes)
            if grown:
                self._services.later(0.0, last.kill)
            return grown

        self._on_commit(look)

    # -- leadership ------------------------------------------------------------

    def _await_move(self, fault: Fault) -> None:
        """Move leadership to the preferred replica, and back as that one loses its session.

        The first leader does not learn that it was replaced. What the last broker should have
        learned arrives late: it fetches from the first one as of an earlier epoch (R1), and then
        from the preferred one, which is cut off from ZooKeeper and knows no better.
        """
        state, replicas = self._cluster.topics.state(FIRST), self._cluster.topics.replicas(FIRST)
        if state is None or state.leader in (-1, replicas[0]) or len(state.isr) < len(replicas):
            return
        first, preferred = (self._cluster.brokers[n] for n in (state.leader, replicas[0]))
        self._services.cut_from_zookeeper(preferred, fault)
        self._services.later(0.9, self._move_away, first, preferred)

    def _move_away(self, first: BrokerService, preferred: BrokerService) -> None:
        (last,) = self._but(first.number, preferred.number)
        network, controllers = self._cluster.network, self._cluster.controllers
        lost = {(controller.name, first.name) for controller in controllers}
        network.cut |= lost
        for controller in controllers:
            network.hold(controller.name, last.name)
        self._cluster.elect_preferred()

        def moved_away(_: list[Change]) -> bool:
            if self._leads(preferred):
                self._on_commit(moved_back)
                return True
            return False

        def moved_back(_: list[Change]) -> bool:
            if not self._leads(first):
                return False
            self._world.reached("leadership moved back")
            network.cut -= lost
            self._world.loop.after(0.0, self._on_moved_back, first, last)
            return True

        self._on_commit(moved_away)

    def _leads(self, broker: BrokerService) -> bool:
        state = self._cluster.topics.state(FIRST)
        return state is not None and state.leader == broker.number

    def _on_moved_back(self, first: BrokerService, last: BrokerService) -> None:
        network, links = self._cluster.network, set[tuple[str, str]]()
        delay_s = self._world.between(0.1, 0.4)
        for controller in self._cluster.controllers:
            links.add((controller.name, last.name))
            self._deliver(network.release(controller.name, last.name), delay_s)
        network.cut |= links
        self._services.later(delay_s + 1.0, network.cut.difference_update, links)
        self._services.later(delay_s + self._world.between(0.2, 0.6), first.kill)

    def _await_tail(self, fault: Fault) -> None:
        """Cut the leader's power once a follower has more than the leader has synced.

        The leader is back at once. The followers reach it again when it has appended as much as
        they have: other records, unless it leads in a new epoch (R9).
        """
        if self._services.healed:
            return
        leader = self._leader()
        followers = [] if leader is None else self._but(leader.number)
        end = max((one.log_end_offset(*FIRST) for one in followers), default=-1)
        if leader is None or end <= leader.durable_end_offset(*FIRST):
            self._services.later(0.005, self._await_tail, fault)
            return
        self._world.reached("a leader with less than its followers lost power")
        leader.kill()
        leader.disk.cut_power()
        for follower in followers:
            self._cluster.network.hold(follower.name, leader.name)
        self._services.later(fault.for_s, leader.start)
        until_s = self._world.loop.now_s + 2.0
        self._services.later(fault.for_s, self._reach_again, leader, followers, end, until_s)

    def _reach_again(
        self, leader: BrokerService, followers: list[BrokerService], end: int, until_s: float
    ) -> None:
        if leader.log_end_offset(*FIRST) <= end and self._world.loop.now_s < until_s:
            self._services.later(0.005, self._reach_again, leader, followers, end, until_s)
            return
        for follower in followers:
            self._deliver(self._cluster.network.release(follower.name, leader.name))

    def _leader(self) -> BrokerService | None:
        state = self._cluster.topics.state(FIRST)
        leader = None if state is None else self._cluster.brokers.get(state.leader)
        return leader if leader is not None and leader.running else None

    def _deliver(self, requests: list[Callable[[], object]], delay_s: float = 0.0) -> None:
        """Let requests that were held arrive in their order."""
        for place, arrive in enumerate(requests):
            self._services.later(delay_s + place / 1000, arrive)

    # -- controllers -----------------------------------------------------------

    def _await_deletion(self, fault: Fault) -> None:
        """Replace the controller that is about to delete the nodes of a topic.

        It gets the last answer that it needs late, when a topic of the name exists again (R11).
        """

        def look(process: Process, path: str) -> bool:
            if self._services.healed:
                return True
            parent, _, topic = path.rpartition("/")
            tombstone = self._cluster.zookeeper.tree.now(znodes.delete_topic_path(topic))
            if parent != znodes.PARTITIONS_REMOVE or tombstone is None:
                return False
            self._world.reached("a topic was created again as a controller was replaced")
            zookeeper = self._cluster.zookeeper
            zookeeper.stall(process, fault.for_s)
            self._services.later(0.0, zookeeper.delete, znodes.CONTROLLER)
            others = [host for host in self._cluster.controllers if host.process is not process]
            self._services.later(0.0, self._cluster.create_topics, [topic], 1, 3, others)
            return True

        self._cluster.zookeeper.on_read.append(look)

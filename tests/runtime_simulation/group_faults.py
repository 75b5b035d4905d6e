"""Injects the faults of a plan that meet coordinators and members of the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leadline_common import consumer_znodes
from tests.runtime_simulation.cluster import Cluster
from tests.runtime_simulation.coordinators import CoordinatorHost
from tests.runtime_simulation.group_operators import GroupOperators
from tests.runtime_simulation.member_processes import MemberProcess
from tests.runtime_simulation.members import Members
from tests.runtime_simulation.plan import (
    DELETE_GROUP,
    DUPLICATE,
    EVICT,
    FORMER,
    LATE_COMMIT,
    LATE_POLL,
    RESET,
    Fault,
)
from tests.runtime_simulation.polled_members import HELD_BACK, PolledMember
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.service_faults import ServiceFaults
from tests.runtime_simulation.web import WebRequest

_MOST_MEMBERS: Final = 5


class GroupFaults:
    """Injects faults into one group and its coordinators."""

    def __init__(self, cluster: Cluster, members: Members, services: ServiceFaults) -> None:
        self._cluster = cluster
        self._members = members
        self._services = services
        self._operators = GroupOperators(cluster, members)
        self._by_kind: dict[str, Callable[[Fault], None]] = {
            "kill coordinator": lambda fault: services.kill(self._coordinator(fault), fault),
            "freeze coordinator": lambda fault: services.freeze(self._coordinator(fault), fault),
            "cut coordinator from ZooKeeper": lambda fault: services.cut_from_zookeeper(
                self._coordinator(fault), fault
            ),
            "second coordinator": self._delete_coordinator,
            "cut coordinator from brokers": self._cut_from_brokers,
            "kill member": self._kill_member,
            "freeze member": self._freeze_member,
            "member leaves": self._leave,
            "member joins": self._join,
            "cut member from coordinators": self._cut_member,
            "one-way cut of a member": self._cut_member_one_way,
            LATE_COMMIT: self._delay_commit,
            LATE_POLL: self._delay_poll,
            FORMER: self._supersede,
            DUPLICATE: self._duplicate,
            **dict.fromkeys((EVICT, RESET, DELETE_GROUP), self._operators.begin),
        }

    def inject(self, fault: Fault) -> bool:
        """Inject a fault if it is one of a group; return whether it is."""
        if fault.kind not in self._by_kind:
            return False
        self._by_kind[fault.kind](fault)
        return True

    def heal(self) -> None:
        """Let all members go on; there is at least one."""
        for member in self._members.ever:
            member.resume()
        self._members.start_again()
        if not self._members.running():
            self._members.join_any()

    # -- coordinators ----------------------------------------------------------

    def _coordinator(self, fault: Fault) -> CoordinatorHost:
        """Return the active coordinator in three faults of four, otherwise any."""
        hosts = self._cluster.coordinators
        active = [host for host in hosts if host.is_active]
        return self._services.choose(hosts, active, fault)

    def _delete_coordinator(self, _: Fault) -> None:
        """Delete the leader node, so that two coordinators believe that they lead."""
        self._cluster.zookeeper.delete(consumer_znodes.COORDINATOR)

    def _supersede(self, fault: Fault) -> None:
        """Let another coordinator lead while what the active one has written is on its way."""
        active = next((host for host in self._cluster.coordinators if host.is_active), None)
        if active is not None and active.process is not None:
            self._cluster.zookeeper.hold(active.process, fault.for_s)
            self._services.later(fault.choice / 1000, self._depose, active, fault)

    def _depose(self, active: CoordinatorHost, fault: Fault) -> None:
        """Let a coordinator lose its node, and the members that speak with it."""
        self._delete_coordinator(fault)
        names = [member.name for member in self._members.running()]
        self._services.cut_off(active.name, names, fault)

    def _cut_from_brokers(self, fault: Fault) -> None:
        name = self._coordinator(fault).name
        brokers = [broker.name for broker in self._cluster.brokers.values()]
        self._services.cut({(name, broker) for broker in brokers}, fault)

    # -- members ---------------------------------------------------------------

    def _member(self, fault: Fault) -> MemberProcess | None:
        running = self._members.running()
        return running[fault.target % len(running)] if running else None

    def _kill_member(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            member.kill()
            self._services.later(fault.for_s, self._join_again, member)

    def _freeze_member(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            member.freeze()
            self._services.later(fault.for_s, member.resume)

    def _leave(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            member.leave()
            self._services.later(fault.for_s, self._join, fault)

    def _join(self, _: Fault) -> None:
        if self._has_room():
            self._members.join_any()

    def _join_again(self, member: MemberProcess) -> None:
        if self._has_room():
            self._members.join_again(member)

    def _duplicate(self, fault: Fault) -> None:
        """Start a second consumer of an instance; the first may be cut off, or frozen."""
        if (member := self._member(fault)) is None or not self._has_room():
            return
        self._cluster.world.reached(DUPLICATE)
        state = fault.choice % 3
        if state == 0:
            self._cut_member(fault)
        elif state == 1:
            self._freeze_member(fault)
        self._services.later(fault.choice / 100_000, self._join_again, member)

    def _has_room(self) -> bool:
        return not self._operators.busy and len(self._members.running()) < _MOST_MEMBERS

    def _peers(self, member: MemberProcess) -> list[str]:
        """Return the names of the services that a member needs: coordinators, or brokers."""
        names = [service.name for service in self._cluster.services]
        return [name for name in names if name.startswith(member.peers)]

    def _cut_member(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            self._services.cut_off(member.name, self._peers(member), fault)

    def _cut_member_one_way(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            names = self._peers(member)
            towards = fault.choice % 2
            self._services.cut(
                {(member.name, name) if towards else (name, member.name) for name in names}, fault
            )

    def _delay_commit(self, fault: Fault) -> None:
        """Let a member's next commit arrive when another one owns its partitions (R16)."""
        member = self._member(fault)

        def take(sender: Process, request: WebRequest, arrive: Callable[[], None]) -> bool:
            commits = request.method == "POST" and request.target.endswith("/offsets")
            commits = commits and not self._services.healed
            if not commits or member is None or sender.name != member.name:
                return False
            self._cluster.world.reached("a commit was held back")
            self._cut_member(fault)
            self._services.later(fault.for_s, arrive)
            return True

        self._cluster.machine.web.on_request.append(take)

    def _delay_poll(self, fault: Fault) -> None:
        """Let the next poll, or commit, of a member that polls arrive late, or once more then."""
        polled = [one for one in self._members.running() if isinstance(one, PolledMember)]
        if not polled:
            return
        member = polled[fault.target % len(polled)]
        kind = "/offsets" if fault.choice & 2 and member.commits_itself else "/poll"

        def take(sender: Process, request: WebRequest, arrive: Callable[[], None]) -> bool:
            if sender.name != member.name or not request.target.endswith(kind):
                return False
            self._cluster.world.reached(HELD_BACK)
            if fault.choice & 1:
                arrive()
            self._services.later(fault.for_s, arrive)
            return True

        self._cluster.machine.web.on_request.append(take)

"""A simulated controller process around the controller's own decisions.

It campaigns, loads, and then reconciles: on hints and every so often it reads
who lives and what is published, lets the domain decide, writes the decision
conditionally, and repeats its grants until they are acknowledged (rule R8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leadline_client.errors import FencedLeaderEpoch, StaleControllerEpoch
from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.directories import kept_epochs
from leadline_common.rpc import NO_ERROR, PartitionRow
from leadline_common.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    BrokerRegistration,
    broker_id_path,
    topic_path,
)
from leadline_controller.domain.cluster import (
    BrokerDown,
    BrokerUp,
    Change,
    ClusterImage,
    ClusterPolicy,
    StateSet,
    TopicSet,
)
from leadline_controller.domain.election import ElectionKind, ElectionReason, elect
from leadline_controller.domain.failover import (
    StateDecision,
    elect_unclean,
    on_broker_change,
    on_controller_failover,
)
from leadline_controller.domain.memberships import misplaced_members
from tests.simulation.broker_shell import BrokerProcess
from tests.simulation.messages import PARTITION, TOPIC, Grant, Stop
from tests.simulation.network import Answer, Q
from tests.simulation.reassigning import INTENT, next_movement
from tests.simulation.replica_shell import STATE
from tests.simulation.world import Process
from tests.simulation.zookeeper import (
    Check,
    Create,
    Op,
    Outcome,
    Read,
    Session,
    Set,
    ZkError,
    Znode,
)

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

NAME = TopicPartition(TOPIC, PARTITION)
RECONCILE_MS = 70.0
RESEND_MS = 30.0

Need = tuple[int, int, int]
"""What a broker must have acknowledged: incarnation, leader epoch, state version."""


class ControllerProcess(Process):
    """One run of a controller."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster.world, f"controller {number}")
        self.cluster = cluster
        self.rules = cluster.world.rules
        self.image: ClusterImage | None = None
        self.epoch_version = -1
        self.wanted_leader = NO_LEADER
        self.wants_unclean = False
        self._busy = False
        self._again = False
        self._acked: dict[int, Need] = {}
        self._granted: dict[int, int] = {}
        self._sent: set[tuple[int, Need]] = set()
        self._dropped: set[int] = set()
        self.session: Session
        self._paths = [broker_id_path(b) for b in cluster.everyone]
        self._connect()
        self.after(RECONCILE_MS, self._tick)

    @property
    def active(self) -> bool:
        """Tell whether this controller believes that it is the active one."""
        return self.image is not None

    def kill(self) -> None:
        """End at once; the session lives on for its timeout."""
        super().kill()
        if self.session.connected:
            self.session.disconnect()

    def _connect(self) -> None:
        self.session = self.cluster.zookeeper.connect(self)
        self.session.on_expired = self._expired
        self.session.on_hint = self.wake
        self.wake()

    def _expired(self) -> None:
        self._resign("its session expired")
        self._connect()

    def _resign(self, why: str) -> None:
        if self.active:
            self.world.reached("controller resigned")
            self.world.note("%s resigns: %s", self.name, why)
        self.image = None
        self._acked.clear()
        self._granted.clear()
        self._sent.clear()
        self._dropped.clear()
        self._done()

    def _tick(self) -> None:
        self.wake()
        self.after(RECONCILE_MS + self.world.between(0, 20), self._tick)

    # -- one reconciliation at a time ----------------------------------------------

    def wake(self) -> None:
        """Reconcile, now or after the reconciliation that is under way."""
        if self._busy:
            self._again = True
            return
        self._busy = True
        self._again = False
        if self.image is None:
            self._campaign()
        else:
            self._reconcile()

    def _done(self) -> None:
        self._busy = False
        if self._again:
            self.after(1, self.wake)

    def _retry(self) -> None:
        self._again = True
        self._busy = False
        self.after(self.world.between(2, 10), self.wake)

    def _campaign(self) -> None:
        session = self.session
        paths = [CONTROLLER, CONTROLLER_EPOCH]
        session.read(paths, lambda read: self._seen(session, read))

    def _seen(self, session: Session, read: Read | None) -> None:
        if read is None or session is not self.session:
            self._retry()
            return
        holder, epoch = read[CONTROLLER], read[CONTROLLER_EPOCH]
        if holder is not None and holder.owner != self.session.number:
            self._done()
            return
        if holder is not None and epoch is not None and epoch.value[1] == self.session.number:
            self._won(epoch.value[0], epoch.version)
            return
        number = epoch.value[0] + 1 if epoch is not None else 1
        version = epoch.version + 1 if epoch is not None else 0
        value = (number, self.session.number)
        ops: list[Op] = [Create(CONTROLLER, self.name, ephemeral=True)]
        if epoch is None:
            ops.append(Create(CONTROLLER_EPOCH, value))
        else:
            ops.append(Set(CONTROLLER_EPOCH, value, epoch.version))

        def answered(outcome: Outcome) -> None:
            if outcome.error is None and session is self.session:
                self._won(number, version)
            else:
                self._retry()

        session.multi(ops, answered)

    def _won(self, epoch: int, version: int) -> None:
        self.world.reached("controller elected")
        self.world.note("%s is active, epoch %d", self.name, epoch)
        self.epoch_version = version
        self.image = ClusterImage(controller_epoch=epoch)
        self.configure()
        self._reconcile()

    def configure(self) -> None:
        """Use the configs in force."""
        if self.image is not None:
            self.image.policy = ClusterPolicy(self.cluster.min_insync)

    def _reconcile(self) -> None:
        self.session.read([topic_path(TOPIC), STATE, INTENT, *self._paths], self._decide)

    def _decide(self, read: Read | None) -> None:
        image = self.image
        if image is None:
            self._done()
        elif read is None:
            self._retry()
        else:
            first = not image.topics
            self._take_partition(image, read)
            live = {
                node.value.id: node.value
                for path in self._paths
                if (node := read[path]) is not None
            }
            members = self._members(image, read, live)
            if first:
                image.apply(members)
            decisions = on_broker_change(image, live).decisions
            self._write(image, decisions, lambda: self._met(image, members, read[INTENT]))

    def _take_partition(self, image: ClusterImage, read: Read) -> None:
        topic, state = read[topic_path(TOPIC)], read[STATE]
        changes: list[Change] = []
        if topic is not None:
            changes.append(TopicSet(TOPIC, topic.value, topic.version, topic.modified))
        if state is not None:
            changes.append(StateSet(TOPIC, PARTITION, state.value, state.version, state.modified))
        image.apply(changes)

    def _members(
        self, image: ClusterImage, read: Read, live: dict[int, BrokerRegistration]
    ) -> list[Change]:
        gone: list[Change] = [BrokerDown(b) for b in image.brokers if b not in live]
        for broker, registration in live.items():
            node = read[broker_id_path(broker)]
            notified = self.rules.r9_incarnation and node is not None
            gone.append(BrokerUp(registration, node.created if notified and node else 0))
        return gone

    def _met(self, image: ClusterImage, members: list[Change], intent: Znode | None) -> None:
        """Go on when the change of the live brokers is published: look at the whole image."""
        image.apply(members)
        decisions = (
            on_controller_failover(image)
            or self._wanted_move(image)
            or self._wanted_unclean_election(image)
        )
        self._write(image, decisions, lambda: self._move(image, intent))

    def _wanted_move(self, image: ClusterImage) -> list[StateDecision]:
        """Move leadership where an operator wants it."""
        target, self.wanted_leader = self.wanted_leader, NO_LEADER
        partition = image.partition(NAME)
        if target == NO_LEADER or partition is None or partition.state is None:
            return []
        state = partition.state
        misplaced = misplaced_members(image.brokers, image.topics[TOPIC], PARTITION, state)
        chosen = elect(
            ElectionKind.REASSIGN,
            (target,),
            state.isr,
            image.live,
            leader=state.leader,
            misplaced=misplaced,
        )
        if chosen.leader == state.leader:
            return []
        self.world.reached("leadership moved by an operator")
        after = type(state)(
            chosen.leader,
            state.leader_epoch + 1,
            chosen.isr,
            image.controller_epoch,
            directory_epochs=kept_epochs(state.directory_epochs, chosen.isr, {}),
        )
        return [StateDecision(*NAME, state, after, partition.version, chosen.reason)]

    def _wanted_unclean_election(self, image: ClusterImage) -> list[StateDecision]:
        """Elect uncleanly where an operator wants it, once every broker is back."""
        if not self.wants_unclean or image.live != {*self.cluster.everyone}:
            return []
        self.wants_unclean = False
        return elect_unclean(image, [NAME])

    def _move(self, image: ClusterImage, intent: Znode | None) -> None:
        """Take a reassignment one write further, and look again at once (rule R13)."""
        movement = next_movement(image, intent, self.rules) if self.image is image else None
        if movement is None:
            self._publish(image)
            return
        self.world.note("%s writes %s", self.name, movement.change)

        def written(outcome: Outcome) -> None:
            if self.image is not image:
                self._done()
            elif outcome.error is None:
                self.world.reached(f"reassignment: {movement.kind}")
                image.apply(movement.changes(outcome.zxid))
                self._dropped |= {*movement.drops}
                self._again = True
                self._publish(image)
            elif outcome.failed == 0:
                self._resign("another controller was elected")
            else:
                self._retry()

        self.session.multi(movement.operations(self.epoch_version), written)

    # -- writing ---------------------------------------------------------------------

    def _write(
        self, image: ClusterImage, decisions: list[StateDecision], then: Callable[[], None]
    ) -> None:
        """Write at most one decision, as there is one partition; go on when it is published."""
        if self.image is not image:
            self._done()
            return
        if not decisions:
            then()
            return
        decision = decisions[0]
        write = (
            Create(STATE, decision.after)
            if decision.before is None
            else Set(STATE, decision.after, decision.version)
        )
        ops: list[Op] = [Check(CONTROLLER_EPOCH, self.epoch_version), write]
        self.world.note("%s writes %s", self.name, decision.after)
        self.session.multi(ops, lambda outcome: self._written(image, decision, outcome, then))

    def _written(
        self,
        image: ClusterImage,
        decision: StateDecision,
        outcome: Outcome,
        then: Callable[[], None],
    ) -> None:
        if self.image is not image:
            self._done()
        elif outcome.error is None:
            version = decision.version + 1
            image.apply([StateSet(*NAME, decision.after, version, outcome.zxid)])
            self._count(decision)
            then()
        elif outcome.failed == 0:
            self.world.reached("zombie controller fenced")
            self._resign("another controller was elected")
        elif outcome.error is ZkError.SESSION_EXPIRED:
            self._resign("its session expired")
        else:
            self._settle(image, decision, then)

    def _settle(
        self, image: ClusterImage, decision: StateDecision, then: Callable[[], None]
    ) -> None:
        """After a conflict or an unknown outcome, read again and decide again (rule R7)."""

        def settled(read: Read | None) -> None:
            node = read[STATE] if read is not None else None
            if self.image is not image or node is None:
                self._retry()
                return
            image.apply([StateSet(*NAME, node.value, node.version, node.modified)])
            if node.value == decision.after:
                self.world.reached("controller's write of unknown outcome adopted")
                then()
            else:
                self._retry()

        self.session.sync_and_read([STATE], settled)

    def _count(self, decision: StateDecision) -> None:
        ordered = self.world.rules.r17_directories and decision.reason is ElectionReason.UNCLEAN
        self.world.reached(f"election: {decision.reason}{', ordered' if ordered else ''}")
        if decision.after.leader == NO_LEADER:
            self.world.reached("no leader, ISR kept")

    # -- grants ----------------------------------------------------------------------

    def _publish(self, image: ClusterImage) -> None:
        for broker in image.brokers:
            self._tell(image, broker)
        self._done()

    def _tell(self, image: ClusterImage, broker: int) -> None:
        partition = image.partition(NAME)
        if partition is not None and broker in partition.replicas:
            self._dropped.discard(broker)
            self._grant(image, broker)
        elif self.cluster.reassigns:
            self._stop(image, broker)

    def _stop(self, image: ClusterImage, broker: int) -> None:
        """Have a broker let go of a replica that is not assigned to it, until it has.

        A controller that did not drop it itself knows only that it should not be there.
        """
        partition, registration = image.partition(NAME), image.brokers.get(broker)
        if self.image is not image or partition is None or registration is None:
            return
        if partition.state is None:
            return
        epoch, incarnation = partition.state.leader_epoch, registration.incarnation
        need = (incarnation, epoch, partition.version)
        if self._acked.get(broker) == need or (broker, need) in self._sent:
            return
        stop = Stop(image.controller_epoch, incarnation, epoch, broker in self._dropped)
        self._send(image, broker, need, BrokerProcess.on_stop, stop)

    def _grant(self, image: ClusterImage, broker: int) -> None:
        """Send a broker its role until it has acknowledged it (rule R8)."""
        partition, registration = image.partition(NAME), image.brokers.get(broker)
        if self.image is not image or partition is None or registration is None:
            return
        state = partition.state
        if state is None:
            return
        need = (registration.incarnation, state.leader_epoch, partition.version)
        if self._acked.get(broker) == need or (broker, need) in self._sent:
            return
        row = PartitionRow(
            PARTITION,
            state.leader,
            state.leader_epoch,
            state.isr,
            partition.replicas,
            partition.version,
            state.eligible,
            image.topics[TOPIC].assignment.adding.get(PARTITION, ()),
            directory_epochs=state.directory_epochs,
        )
        is_init = self._granted.get(broker) != registration.incarnation
        grant = Grant(image.controller_epoch, registration.incarnation, is_init, row)
        self._send(image, broker, need, BrokerProcess.on_grant, grant)

    def _send(
        self,
        image: ClusterImage,
        broker: int,
        need: Need,
        handler: Callable[[BrokerProcess, Q, Answer[int]], None],
        order: Q,
    ) -> None:
        """Send an order, and once more if it is not acknowledged in time (rule R8)."""
        self._sent.add((broker, need))
        self.cluster.network.call(
            self,
            self.cluster.brokers[broker],
            handler,
            order,
            lambda code: self._answered(image, broker, need, code),
        )
        if self.rules.r8_level_triggered:
            self.after(RESEND_MS, self._resend, image, broker, need)

    def _resend(self, image: ClusterImage, broker: int, need: Need) -> None:
        self._sent.discard((broker, need))
        if self._acked.get(broker) != need:
            self._tell(image, broker)

    def _answered(self, image: ClusterImage, broker: int, need: Need, code: int) -> None:
        if self.image is not image:
            return
        if code == StaleControllerEpoch.code:
            self._resign("a broker knows a later controller")
        elif code == FencedLeaderEpoch.code:
            self.wake()
        elif code == NO_ERROR:
            self._granted[broker] = need[0]
            self._acked[broker] = need

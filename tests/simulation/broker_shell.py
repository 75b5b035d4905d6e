"""A simulated broker process: registration, grants, produce requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline_client.errors import LeadlineError, StaleControllerEpoch, StaleIncarnation
from leadline_common.directories import FIRST_DIRECTORY_EPOCH, next_directories
from leadline_common.rpc import NO_ERROR, PartitionRow
from leadline_common.znodes import (
    BrokerRegistration,
    PartitionState,
    broker_epoch_path,
    broker_id_path,
)
from tests.simulation.disk import Disk
from tests.simulation.messages import Grant, ProduceReply, Stop
from tests.simulation.network import Answer
from tests.simulation.replica_shell import STATE, ReplicaShell
from tests.simulation.world import Process
from tests.simulation.zookeeper import (
    Check,
    Create,
    Delete,
    Op,
    Outcome,
    Read,
    Session,
    Set,
    ZkError,
    Znode,
)

if TYPE_CHECKING:
    from tests.simulation.checks import Checks
    from tests.simulation.cluster import Cluster

TICK_MS = 15.0
PRODUCE_TIMEOUT_MS = 150.0
NO_INCARNATION = -1


class BrokerProcess(Process):
    """One run of a broker; it starts fenced and takes roles only by grants (rule R9)."""

    def __init__(self, cluster: Cluster, broker_id: int, disk: Disk) -> None:
        super().__init__(cluster.world, f"broker {broker_id}")
        self.cluster = cluster
        self.checks: Checks = cluster.checks
        self.broker_id = broker_id
        self.disk = disk
        self.incarnation = NO_INCARNATION
        self.directory_epoch = FIRST_DIRECTORY_EPOCH
        self.granted = False
        disk.recover(fsync=self.world.rules.r4_durable_ends)
        self.shell = ReplicaShell(self)
        self.session: Session
        self._token = 0
        self._connect()
        self.after(TICK_MS, self._tick)

    def _tick(self) -> None:
        self.shell.tick()
        if self.world.chance(0.2):
            self.disk.high_watermark = self.shell.replica.state.high_watermark
        self.after(TICK_MS, self._tick)

    def kill(self) -> None:
        """End at once; the session lives on for its timeout."""
        super().kill()
        if self.session.connected:
            self.session.disconnect()

    # -- registration --------------------------------------------------------------

    def _connect(self) -> None:
        self.session = self.cluster.zookeeper.connect(self)
        self.session.on_expired = self._expired
        self._look()

    def _expired(self) -> None:
        """Fence every replica and start again in a new incarnation."""
        self.world.reached("session of a live broker expired")
        self.granted = False
        self.incarnation = NO_INCARNATION
        self.shell.step_down()
        self._connect()

    def _look(self) -> None:
        me, session = self.broker_id, self.session
        paths = [broker_epoch_path(me), broker_id_path(me), STATE]
        session.sync_and_read(paths, lambda read: self._found(session, read))

    def _found(self, session: Session, read: Read | None) -> None:
        if session is not self.session:
            return
        if read is None:
            self.after(self.world.between(5, 20), self._look)
            return
        registered = read[broker_id_path(self.broker_id)]
        if registered is not None and registered.owner == self.session.number:
            self._registered(registered.value)
        else:
            self._register(read, registered)

    def _register(self, read: Read, old: Znode | None) -> None:
        """Register as a new incarnation, in place of an old session's registration."""
        me, session = self.broker_id, self.session
        incarnation, epochs, ops = self._next_incarnation(read[broker_epoch_path(me)])
        if old is not None:
            self.world.reached("registered over an old session")
            ops.append(Delete(broker_id_path(me), old.created))
        value = BrokerRegistration(
            me, "host", me, "url", None, incarnation, directory_epoch=epochs[self.disk.directory_id]
        )
        ops.append(Create(broker_id_path(me), value, ephemeral=True))

        def answered(outcome: Outcome) -> None:
            if session is not self.session:
                self.world.reached("late registration answer")
            elif outcome.error is None:
                self._registered(value)
                state = read[STATE]
                if not self.world.rules.r9_incarnation and state is not None:
                    self._resume(state.value, state.version)
            elif outcome.error is not ZkError.SESSION_EXPIRED:
                self.after(self.world.between(2, 15), self._look)

        session.multi(ops, answered)

    def _next_incarnation(self, epoch: Znode | None) -> tuple[int, dict[str, int], list[Op]]:
        """Return the incarnation, the epochs of the directories, and what writes them."""
        path = broker_epoch_path(self.broker_id)
        known: dict[str, int] = {} if epoch is None else epoch.value
        epochs = next_directories(known, [self.disk.directory_id])
        if not self.world.rules.r17_directories:
            epochs = dict.fromkeys(epochs, FIRST_DIRECTORY_EPOCH)
        if epoch is None:
            return 0, epochs, [Create(path, epochs)]
        if self.world.rules.r9_incarnation:
            return epoch.version + 1, epochs, [Set(path, epochs, epoch.version)]
        return epoch.version, epochs, [Check(path, epoch.version)]

    def _registered(self, registration: BrokerRegistration) -> None:
        self.world.note(
            "broker %d registered, incarnation %d, directory %d",
            self.broker_id,
            registration.incarnation,
            registration.directory_epoch,
        )
        self.incarnation = registration.incarnation
        self.directory_epoch = self.disk.directory_epoch = registration.directory_epoch

    def _resume(self, state: PartitionState, version: int) -> None:
        """Take the old role from ZooKeeper at once, as Replication V3 does and rule R9 forbids."""
        self.granted = True
        row = PartitionRow(
            0,
            state.leader,
            state.leader_epoch,
            state.isr,
            self.cluster.assignment,
            version,
            state.eligible,
            directory_epochs=state.directory_epochs,
        )
        self.shell.grant(row)

    # -- requests --------------------------------------------------------------------

    def on_grant(self, grant: Grant, answer: Answer[int]) -> None:
        """Take a role that a controller grants; fenced by incarnation and controller epoch."""
        if grant.controller_epoch < self.disk.controller_epoch:
            self.world.reached("stale controller refused")
            answer(StaleControllerEpoch.code)
            return
        fenced = self.world.rules.r9_incarnation and not (self.granted or grant.is_init)
        if grant.incarnation != self.incarnation or fenced:
            self.world.reached("grant for another incarnation refused")
            answer(StaleIncarnation.code)
            return
        self.disk.controller_epoch = grant.controller_epoch
        self.granted = True
        answer(self.shell.grant(grant.row))

    def on_stop(self, stop: Stop, answer: Answer[int]) -> None:
        """Let go of the replica: it was reassigned, or is not assigned here."""
        if stop.controller_epoch < self.disk.controller_epoch:
            answer(StaleControllerEpoch.code)
        elif stop.incarnation != self.incarnation:
            answer(StaleIncarnation.code)
        else:
            self.disk.controller_epoch = stop.controller_epoch
            self.granted = True
            answer(self.shell.stop(stop))

    def on_produce(self, value: int, answer: Answer[ProduceReply]) -> None:
        """Append one record with acks=all, and answer when it is committed."""
        replica = self.shell.replica
        try:
            replica.leading().check_append(all_replicas=True)
        except LeadlineError as refusal:
            self.world.reached(f"produce refused: {type(refusal).__name__}")
            answer(ProduceReply(refused=True, leader=replica.state.leader))
            return
        offset = self.disk.log.log_end_offset
        self.shell.append([(replica.state.leader_epoch, value)])
        self._token += 1
        token = self._token

        def done(code: int) -> None:
            if code == NO_ERROR:
                self.checks.on_acknowledged(self, offset, value)
                answer(ProduceReply(offset))
            else:
                answer(ProduceReply())

        self.shell.acks[token] = done
        self.shell.appended(offset)
        self.shell.run(replica.leading().park(offset + 1, token))
        self.after(PRODUCE_TIMEOUT_MS, self._time_out, token)

    def _time_out(self, token: int) -> None:
        if self.shell.acks.pop(token, None) is not None:
            self.shell.replica.unpark(token)

"""What must hold: at each step as far as that is cheap, and at the end after healing.

`LOSSES` are what a user would notice. The other kinds are broken promises of the
protocol that come before a loss; they are looked for only with every rule on,
so that a rule that is switched off must show a real loss to be caught.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline_broker.domain.replica import Replica
from leadline_client.wire import NO_LEADER
from leadline_common.directories import membership_epoch
from leadline_common.znodes import PartitionState
from tests.simulation.disk import Record, SimulatedLog
from tests.simulation.replica_shell import STATE
from tests.simulation.zookeeper import Znode

if TYPE_CHECKING:
    from tests.simulation.broker_shell import BrokerProcess
    from tests.simulation.cluster import Cluster

LOST = "acknowledged record lost"
TWO_RECORDS = "two records of one epoch and offset"
EPOCH_FELL = "leader epochs fall along a log"
DIVERGED = "replicas differ below the high watermark"
STUCK = "no progress after healing"
ANOMALY = "anomaly in the history"
LOSSES = frozenset({LOST, TWO_RECORDS, EPOCH_FELL, DIVERGED, STUCK, ANOMALY})

TWO_LEADERS = "one epoch led twice"
BAD_WATERMARK = "high watermark out of bounds"
BAD_STATE = "published state against the rules"
NOT_IN_SYNC = "in-sync or eligible replica lacks committed records"


class Violation(Exception):
    """A promise was broken."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Checks:
    """What was ever committed, acknowledged, led and written, to compare with."""

    def __init__(self, *, losses_only: bool) -> None:
        self.losses_only = losses_only
        self.committed: list[Record] = []
        self.acknowledged: dict[int, int] = {}
        self._written: dict[tuple[int, int], int] = {}
        self._led: dict[int, BrokerProcess] = {}
        self._published: PartitionState | None = None
        self._watermarks: dict[BrokerProcess, tuple[int, int]] = {}
        self._cluster: Cluster

    def watch(self, cluster: Cluster) -> None:
        """Check this cluster."""
        self._cluster = cluster
        cluster.zookeeper.on_write = self.on_write

    def fail(self, kind: str, message: str) -> None:
        """Report a violation, if violations of this kind are looked for.

        Raises:
            Violation: always, but for early signs when only losses count.

        """
        if kind in LOSSES or not self.losses_only:
            raise Violation(kind, message)

    # -- at each step ---------------------------------------------------------------

    def on_append(self, process: BrokerProcess, end: int, records: list[Record]) -> None:
        """(epoch, offset) names one record for ever (rule R1); epochs rise along a log."""
        if records[0][0] < process.disk.log.epochs.latest:
            self.fail(EPOCH_FELL, f"{process.name} appends {records} at {end}")
        for offset, (epoch, value) in enumerate(records, end):
            if self._written.setdefault((epoch, offset), value) != value:
                known = self._written[epoch, offset]
                text = f"{process.name} writes {value} at {(epoch, offset)}, where {known} was"
                self.fail(TWO_RECORDS, text)

    def on_replica(self, process: BrokerProcess, replica: Replica) -> None:
        """The high watermark is monotonic, within the log, and below it all replicas agree."""
        state = replica.state
        mark = (state.leader_epoch, state.high_watermark)
        before = self._watermarks.get(process, (-1, 0))
        if mark == before:
            return
        if mark[0] == before[0] and mark[1] < before[1]:
            self.fail(BAD_WATERMARK, f"{process.name} fell from {before} to {mark}")
        if mark[1] > state.log.log_end_offset:
            self.fail(BAD_WATERMARK, f"{process.name} at {mark} beyond its log")
        self._watermarks[process] = mark
        if mark[1] > before[1]:
            self._commit(process, before[1], mark[1])

    def _commit(self, process: BrokerProcess, start: int, end: int) -> None:
        mine = process.disk.log.records[start:end]
        known = self.committed[start:end]
        if mine[: len(known)] != known:
            self.fail(DIVERGED, f"{process.name} has {mine} from {start}, committed was {known}")
        if end > len(self.committed):
            self.committed.extend(mine[len(known) :])
            self._check_in_sync(f"{process.name} commits up to {end}")

    def _check_in_sync(self, why: str) -> None:
        if self._published is None or self.losses_only:
            return
        epochs = self._published.directory_epochs
        for broker in (*self._published.isr, *self._published.eligible):
            disk = self._cluster.disks[broker]
            if disk.directory_epoch != membership_epoch(epochs, broker):
                continue  # The member's own disk is not there (rule R17).
            log = disk.log
            if log.durable_end_offset < len(self.committed):
                text = f"{why}, broker {broker} has {log.durable_end_offset} durable"
                self.fail(NOT_IN_SYNC, f"{text} of {len(self.committed)}")

    def on_truncated(self, process: BrokerProcess | None, end: int) -> None:
        """No in-sync or eligible replica gives up what is committed."""
        if end < len(self.committed):
            self._check_in_sync(f"{process.name if process else 'a power cut'} cuts to {end}")

    def on_leader(self, process: BrokerProcess, epoch: int) -> None:
        """One leader per epoch; it holds every acknowledged record."""
        if self._led.setdefault(epoch, process) is not process:
            self.fail(TWO_LEADERS, f"epoch {epoch} by {process.name} again")
        process.world.note("%s leads epoch %d", process.name, epoch)
        if epoch == max(self._led):
            self.check_kept(process.disk.log, f"{process.name}, leader of epoch {epoch},")

    def on_acknowledged(self, process: BrokerProcess, offset: int, value: int) -> None:
        """What is acknowledged is committed."""
        process.world.sometimes["acknowledged"] += 1
        self.acknowledged[offset] = value
        if len(self.committed) <= offset or self.committed[offset][1] != value:
            self.fail(DIVERGED, f"{process.name} acknowledged {value} at {offset}, not committed")

    def on_write(self, path: str, node: Znode) -> None:
        """Leader epochs rise; the leader is in the ISR, the ISR in the assignment."""
        if path != STATE:
            return
        state, before = node.value, self._published
        self._published = state
        if before is not None and state.leader_epoch < before.leader_epoch:
            self.fail(BAD_STATE, f"the epoch falls: {before} to {state}")
        same_epoch = before is not None and state.leader_epoch == before.leader_epoch
        if before is not None and same_epoch and state.leader != before.leader:
            self.fail(BAD_STATE, f"two leaders in one epoch: {before} to {state}")
        members = set(state.isr)
        if not members or not members <= set(self._cluster.assignment):
            self.fail(BAD_STATE, f"{state}")
        if state.leader != NO_LEADER and state.leader not in members:
            self.fail(BAD_STATE, f"the leader is not in sync: {state}")
        ordered = self._cluster.unclean_ordered  # `on_leader` checks that nothing is lost.
        if before is not None and not ordered and not members & {*before.isr, *before.eligible}:
            self.fail(BAD_STATE, f"unclean: {before} to {state}")
        if state.eligible:
            self._cluster.world.reached("eligible replicas recorded")
        if before is None or (members, state.eligible) != (set(before.isr), before.eligible):
            self._check_in_sync(f"ISR {state.isr}, eligible {state.eligible} published")

    # -- at the end -----------------------------------------------------------------

    def check_kept(self, log: SimulatedLog, whose: str) -> None:
        """Every acknowledged record is at its offset."""
        records = log.records
        for offset, value in self.acknowledged.items():
            if offset >= len(records) or records[offset][1] != value:
                found = records[offset] if offset < len(records) else f"the end {len(records)}"
                self.fail(LOST, f"{whose} has {found} at {offset} instead of {value}")

    def check_end(self) -> None:
        """After healing: all replicas hold the same log, with every acknowledged record in it."""
        for broker in self._cluster.assignment:
            disk = self._cluster.disks[broker]
            self.check_kept(disk.log, f"broker {broker}")
            if disk.log.records[: len(self.committed)] != self.committed:
                self.fail(DIVERGED, f"broker {broker} differs from what was committed")

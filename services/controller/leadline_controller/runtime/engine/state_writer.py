"""The only writer of partition states: decisions in, conditional multis out.

Method: decisions become multis of at most `zookeeper.multi.max.ops` operations,
sent one after another without waiting (pipelined). Each multi

1. checks the version of `/controller_epoch` (rule R11),
2. checks the incarnation of every broker that it makes a leader (rule R9), so
   that a state never names a leader that registered after the decision,
3. sets or creates states at the versions that the decisions were made from,
4. creates one audit entry with a row for each of them.

Versions come from the image: the failure path reads nothing. Only where ZooKeeper
refuses a multi are that multi's partitions read, decided anew and retried (rule
R7: a state that already is what was wanted needs no decision any more).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common import znodes
from leadline_common.clock import Clock
from leadline_common.leader_election import LeadershipTerm, TermEnded
from leadline_common.zk.errors import BadVersion, MultiFailed, NodeExists, NoNode
from leadline_common.zk.ops import CheckOp, CreateOp, MultiResults, Op, SetOp, Stat
from leadline_common.znodes import AuditEntry, PartitionState, StateChange
from leadline_controller.domain.cluster import NO_NODE, ClusterImage, StateSet
from leadline_controller.domain.failover import StateDecision
from leadline_controller.domain.history import NOTICED_AT
from leadline_controller.runtime.engine.guard import Guard
from leadline_controller.runtime.ports import Store

_log = logging.getLogger(__name__)

MAX_ATTEMPTS = 8
"""How often one multi is decided anew before it is left to the next reconciliation."""

Decide: TypeAlias = Callable[[Sequence[TopicPartition]], list[StateDecision]]
"""Decides for these partitions from the image as it then is."""


class StaleView(Exception):
    """A broker that was to lead has registered anew: read who is live before deciding on."""


class Why(msgspec.Struct, frozen=True):
    """What goes into the audit entry beside the rows.

    `noticed_at` is when the news came that is answered here, in Unix ms: what lies between
    that and the entry's own time is how long it took to decide. 0 where it is not known.
    """

    cause: str
    actor: str
    kind: str
    reason: str = ""
    noticed_at: int = 0


class Writer:
    """Writes under one term of office.

    `on_written` is told of each multi's states as soon as it succeeds, after the
    image has taken them in. `guard` is that of the request being handled.
    """

    def __init__(
        self,
        store: Store,
        image: ClusterImage,
        term: LeadershipTerm,
        clock: Clock,
        *,
        max_ops: int,
        on_written: Callable[[list[StateSet]], None],
    ) -> None:
        self._store = store
        self._image = image
        self._clock = clock
        self._max_ops = max_ops
        self._on_written = on_written
        self._check = CheckOp(znodes.CONTROLLER_EPOCH, term.epoch_version)
        self._rooted: set[str] = set()
        self.guard: Guard | None = None

    def rooted(self, topic: str) -> None:
        """Note that the parent of a topic's partition nodes exists."""
        self._rooted.add(topic)

    async def commit(self, ops: Sequence[Op], entry: AuditEntry) -> MultiResults:
        """Apply `ops` under the epoch check and with an audit entry; return the results of `ops`.

        Raises:
            TermEnded: the check failed, or the lease has run out.
            MultiFailed: an operation was refused (its index counts within `ops`).

        """
        self._check_lease()
        try:
            results = await self._send([self._check, *ops, audit_op(entry)])
        except MultiFailed as failure:
            raise self._refusal(failure, 1) from failure
        return MultiResults(results[1 : 1 + len(ops)], results.zxid)

    async def fenced(self, ops: Sequence[Op], entry: AuditEntry | None = None) -> None:
        """Apply any number of operations in multis under the epoch check, pipelined.

        Each multi is all or nothing, and carries `entry`; the whole is not. Only
        the outbox itself is tidied without an entry.

        Raises:
            TermEnded: the check failed, or the lease has run out.
            MultiFailed: an operation was refused.

        """
        self._check_lease()
        told: list[Op] = [] if entry is None else [audit_op(entry)]
        room = max(1, self._max_ops - 2 - len(told))
        answers = [
            self._send([self._check, *ops[start : start + room], *told])
            for start in range(0, len(ops), room)
        ]
        for outcome in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(outcome, MultiFailed):
                raise self._refusal(outcome, 1)
            if isinstance(outcome, BaseException):
                raise outcome

    async def write(
        self, decisions: list[StateDecision], why: Why, decide: Decide
    ) -> list[StateDecision]:
        """Write decisions, and return those that were written, some perhaps decided anew.

        Raises:
            TermEnded: as for `commit`.
            StaleView: the brokers are not those that were decided with.

        """
        batches = [_Batch(chunk) for chunk in self._chunks(decisions)]
        try:
            for batch in batches:
                self._submit(batch, why)
            return await self._finish_all(batches, why, decide)
        finally:  # after a failure the rest is left to the reconciliation, but never unheard
            answers = [batch.answer for batch in batches if batch.answer is not None]
            await asyncio.gather(*answers, return_exceptions=True)

    def leader_checks(self, decisions: Sequence[StateDecision]) -> list[CheckOp]:
        """Return checks that each leader is still the incarnation that was decided with (R9)."""
        brokers = self._image.brokers
        leaders = {decision.after.leader for decision in decisions} - {NO_LEADER}
        return [
            CheckOp(znodes.broker_epoch_path(leader), brokers[leader].incarnation)
            for leader in sorted(leaders & brokers.keys())
        ]

    # -- within ----------------------------------------------------------------

    def _send(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        """Submit a multi; it leaves the mark of the request being handled, after all else."""
        guard = self.guard
        if guard is None or guard.mark is None:
            return self._store.submit(ops)
        answer = self._store.submit([*ops, guard.mark.op])
        guard.sent(answer)
        return answer

    def _check_lease(self) -> None:
        if not self._store.lease_valid():
            raise TermEnded("the lease on the ZooKeeper session has run out")

    def _chunks(self, decisions: list[StateDecision]) -> Iterator[list[StateDecision]]:
        """Split so that each chunk fits a multi with its checks and its audit entry."""
        room = max(3, self._max_ops - 3 - len(self._image.brokers))
        chunk: list[StateDecision] = []
        cost = 0
        rooted = set(self._rooted)
        for decision in decisions:
            more = 1
            if decision.version == NO_NODE:
                more = 2 if decision.topic in rooted else 3
                rooted.add(decision.topic)
            if cost + more > room:
                yield chunk
                chunk, cost = [], 0
            chunk.append(decision)
            cost += more
        if chunk:
            yield chunk

    def _submit(self, batch: _Batch, why: Why) -> None:
        self._check_lease()
        batch.checks = [self._check, *self.leader_checks(batch.decisions)]
        ops = [*batch.checks, *self._state_ops(batch)]
        ops.append(audit_op(self._entry(batch.decisions, why)))
        batch.answer = self._send(ops)

    def _state_ops(self, batch: _Batch) -> Iterator[Op]:
        values: dict[object, bytes] = {}
        for decision in batch.decisions:
            data = _encoded(decision.after, values)
            path = znodes.state_path(decision.topic, decision.partition)
            if decision.version != NO_NODE:
                yield SetOp(path, data, decision.version)
                continue
            parents = (
                znodes.partitions_path(decision.topic),
                znodes.partition_path(decision.topic, decision.partition),
            )
            for parent in parents[1:] if decision.topic in self._rooted else parents:
                if parent not in batch.existing:
                    yield CreateOp(parent)
            self._rooted.add(decision.topic)
            yield CreateOp(path, data)

    def _entry(self, decisions: list[StateDecision], why: Why) -> AuditEntry:
        return AuditEntry(
            time=self._clock.wall_ms(),
            cause=why.cause,
            actor=why.actor,
            kind=why.kind,
            reason=why.reason,
            after={NOTICED_AT: why.noticed_at} if why.noticed_at else None,
            changes=tuple(map(audit_row, decisions)),
        )

    async def _finish_all(
        self, batches: list[_Batch], why: Why, decide: Decide
    ) -> list[StateDecision]:
        written: list[StateDecision] = []
        stale: StaleView | None = None
        for batch in batches:
            try:
                written += await self._finish(batch, why, decide)
            except StaleView as moved:  # the others are in flight already: examine them all
                stale = moved
        if stale is not None:
            raise stale
        return written

    async def _finish(self, batch: _Batch, why: Why, decide: Decide) -> list[StateDecision]:
        """Await a multi; on a refusal read its partitions, decide anew, and try it alone."""
        names = [TopicPartition(d.topic, d.partition) for d in batch.decisions]
        for _ in range(MAX_ATTEMPTS):
            try:
                results = await batch.pending()
            except MultiFailed as failure:
                problem = self._refusal(failure, len(batch.checks))
                if not isinstance(problem.error, BadVersion | NodeExists | NoNode):
                    raise problem from failure
                decisions = await self._decide_anew(names, decide)
                if not decisions:
                    return []
                batch = _Batch(decisions)
                await self._look_for_parents(batch)
                if not batch.decisions:
                    return []
                self._submit(batch, why)
            else:
                self._take_in(batch, results)
                return batch.decisions
        return []

    def _refusal(self, failure: MultiFailed, checks: int) -> MultiFailed:
        """Tell what a refused multi means by the operation that was refused."""
        if failure.index == 0:
            raise TermEnded("another controller has taken over") from failure
        if failure.index < checks:
            raise StaleView(failure.error.path) from failure
        return MultiFailed(failure.index - checks, failure.error)

    async def _decide_anew(
        self, names: list[TopicPartition], decide: Decide
    ) -> list[StateDecision]:
        """Take in what ZooKeeper says of these partitions, tell the brokers, and decide again.

        A state that is gone, or that cannot be read, is left out: it would be
        refused for ever, and the rest of its multi with it.
        """
        found = await self._store.read_states(names)
        news = self._image.apply(found)
        self._on_written([change for change in news if isinstance(change, StateSet)])
        readable = {(change.topic, change.partition) for change in found}
        decisions = decide(names)
        possible = [
            d for d in decisions if d.version == NO_NODE or (d.topic, d.partition) in readable
        ]
        if len(possible) < len(decisions):
            missing = len(decisions) - len(possible)
            _log.error("%d states are not there to be written, or cannot be read", missing)
        return possible

    async def _look_for_parents(self, batch: _Batch) -> None:
        """Find out which nodes exist already under partitions that have no state.

        A state node that exists after all is one that cannot be read: its
        decision leaves the batch.
        """
        parents: dict[str, str] = {}
        for decision in batch.decisions:
            if decision.version == NO_NODE:
                parents[znodes.partitions_path(decision.topic)] = decision.topic
                parents[znodes.partition_path(decision.topic, decision.partition)] = ""
                parents[znodes.state_path(decision.topic, decision.partition)] = ""
        found = await self._store.read_nodes(list(parents))
        for (path, topic), node in zip(parents.items(), found, strict=True):
            if node is not None:
                batch.existing.add(path)
            if topic:
                self._rooted.discard(topic)
        batch.decisions = [
            d
            for d in batch.decisions
            if d.version != NO_NODE or znodes.state_path(d.topic, d.partition) not in batch.existing
        ]

    def _take_in(self, batch: _Batch, results: MultiResults) -> None:
        """Apply what was written to the image."""
        stats = (result for result in results if isinstance(result, Stat))
        written = []
        for decision in batch.decisions:
            if decision.version == NO_NODE:
                version, zxid = 0, results.zxid
            else:
                stat = next(stats)
                version, zxid = stat.version, stat.mzxid
            written.append(
                StateSet(decision.topic, decision.partition, decision.after, version, zxid)
            )
        self._image.apply(written)
        self._on_written(written)


class _Batch:
    """One multi under way. `existing` are parents that need not be created."""

    __slots__ = ("answer", "checks", "decisions", "existing")

    def __init__(self, decisions: list[StateDecision]) -> None:
        self.decisions = decisions
        self.checks: list[CheckOp] = []
        self.existing: set[str] = set()
        self.answer: asyncio.Future[MultiResults] | None = None

    async def pending(self) -> MultiResults:
        """Await the answer."""
        if self.answer is None:
            raise RuntimeError("a batch is awaited before it is submitted")
        return await self.answer


def _encoded(state: PartitionState, values: dict[object, bytes]) -> bytes:
    """Encode a state, once for all that are alike."""
    if state.extra:
        return znodes.encode_state(state)
    key = (state.leader, state.leader_epoch, state.isr, state.controller_epoch, state.eligible)
    if key not in values:
        values[key] = znodes.encode_state(state)
    return values[key]


def audit_row(decision: StateDecision) -> StateChange:
    """Return the row of an audit entry about a state that is written."""
    before, after = decision.before, decision.after
    return StateChange(
        decision.topic,
        decision.partition,
        decision.reason,
        (before.leader, before.leader_epoch, before.isr) if before else None,
        (after.leader, after.leader_epoch, after.isr),
        decision.version + 1,
    )


def audit_op(entry: AuditEntry) -> CreateOp:
    """Return the operation that leaves an entry in the audit outbox."""
    return CreateOp(znodes.AUDIT_ENTRY_PREFIX, znodes.encode_audit(entry), sequence=True)

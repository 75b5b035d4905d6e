"""The only writer of partition states: decisions in, conditional multis out.

Decisions become multis of at most `zookeeper.multi.max.ops` operations, sent one
after another without waiting (pipelined). Each multi

1. checks the version of `/controller_epoch` (rule R11),
2. checks the incarnation of every broker that it makes a leader (rule R9), so
   that a state never names a leader that registered after the decision,
3. sets or creates states at the versions that the decisions were made from,
4. creates one audit entry with a row for each of them.

Versions come from the image: the failure path reads nothing. Only if ZooKeeper
refuses a multi, the writer reads the partitions of that multi, decides again and
retries (rule R7: a state that is as wanted already needs no decision any more).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec
import structlog

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common import znodes
from leadline_common.audit_outbox import audit_op
from leadline_common.clock import Clock
from leadline_common.leader_election import LeadershipTerm, TermEnded
from leadline_common.long_lived import LongLived
from leadline_common.slices import in_turns
from leadline_common.zk.errors import BadVersion, MultiFailed, NodeExists, NoNode, NotConnected
from leadline_common.zk.ops import (
    ANY_VERSION,
    CheckOp,
    CreateOp,
    DeleteOp,
    MultiResults,
    Op,
    SetOp,
    Stat,
)
from leadline_common.znodes import AuditEntry, PartitionState, StateChange
from leadline_controller.domain.cluster import NO_NODE, ClusterImage, StateSet
from leadline_controller.domain.failover import StateDecision
from leadline_controller.runtime.engine.guard import Guard
from leadline_controller.runtime.ports import ControllerStore

logger = structlog.get_logger(__name__)

MAX_ATTEMPTS = 8
"""How often a conditional write is decided again because others wrote in between."""

Decide: TypeAlias = Callable[[Sequence[TopicPartition]], list[StateDecision]]
"""Decides for these partitions from the image as it then is."""


class StaleImage(Exception):
    """A broker that was to lead has registered again: read the live brokers before deciding."""


@dataclass(eq=False)
class StateWriter:
    """Writes under the epoch of one leadership term.

    `on_written` gets the states of each multi as soon as it succeeds and the image has
    applied them, and the brokers that led these partitions until then (None: not known, because
    the states were read). `on_found` gets states that were read, before the image applies them,
    and `on_decided` the decisions of each multi that succeeds, whatever happens to the others.
    `guard` is the guard of the request being handled. `sent` counts the multis of the term,
    `long_lived` the states that the image got.
    """

    store: ControllerStore
    image: ClusterImage
    term: LeadershipTerm
    clock: Clock
    max_ops: int
    on_written: Callable[[list[StateSet], Sequence[int] | None], None]
    on_found: Callable[[Sequence[StateSet]], Awaitable[None]] | None = field(
        default=None, init=False
    )
    on_decided: Callable[[Sequence[StateDecision]], None] | None = field(default=None, init=False)
    guard: Guard | None = field(default=None, init=False)
    sent: int = field(default=0, init=False)
    long_lived: LongLived = field(default_factory=LongLived, init=False)
    _with_parent: set[str] = field(default_factory=set, init=False)
    _not_sent: set[int] = field(default_factory=set, init=False)
    """The numbers, by `sent`, of the multis that a lost connection kept from being sent."""

    def __post_init__(self) -> None:
        self._check = CheckOp(znodes.CONTROLLER_EPOCH, self.term.epoch_version)

    async def deletions(self, paths: Sequence[str]) -> list[Op]:
        """Return the operations that delete those of these nodes that exist."""
        found = await self.store.read_nodes(paths)
        existing = (path for path, node in zip(paths, found, strict=True) if node is not None)
        return [DeleteOp(path, ANY_VERSION) for path in existing]

    def parent_exists(self, topic: str) -> None:
        """Note that the parent node of a topic's partitions exists."""
        self._with_parent.add(topic)

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

    async def commit_all(self, ops: Sequence[Op], entry: AuditEntry | None = None) -> None:
        """Apply any number of operations in multis under the epoch check, pipelined.

        Each multi is atomic and carries `entry`; the multis together are not. Only the
        maintenance of the outbox and of idempotency records goes without an entry.

        Raises:
            TermEnded: the check failed, or the lease has run out.
            MultiFailed: an operation was refused.

        """
        self._check_lease()
        audit: list[Op] = [] if entry is None else [audit_op(entry)]
        room = max(1, self.max_ops - 2 - len(audit))
        answers = [
            self._send([self._check, *ops[start : start + room], *audit])
            for start in range(0, len(ops), room)
        ]
        for outcome in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(outcome, MultiFailed):
                raise self._refusal(outcome, 1)
            if isinstance(outcome, BaseException):
                raise outcome

    async def write(
        self, decisions: list[StateDecision], entry: AuditEntry, decide: Decide
    ) -> list[StateDecision]:
        """Write decisions, and return those that were written; some may have been decided again.

        Each multi carries `entry` with its own time and its own rows.

        Raises:
            TermEnded: as for `commit`.
            StaleImage: the live brokers are not those that were decided with.

        """
        batches: list[_Batch] = []
        try:
            async for chunk in in_turns(self._chunks(decisions)):
                batches.append(self._submit(chunk, entry))  # noqa: PERF401  # `finally` needs each
            return await self._finish_all(batches, entry, decide)
        finally:  # After a failure the reconciliation does the rest, but every answer is awaited.
            await asyncio.gather(*(batch.answer for batch in batches), return_exceptions=True)

    def leader_checks(self, decisions: Sequence[StateDecision]) -> list[CheckOp]:
        """Return checks that each leader is still the incarnation that was decided with (R9)."""
        brokers = self.image.brokers
        leaders = {decision.after.leader for decision in decisions} - {NO_LEADER}
        return [
            CheckOp(znodes.broker_epoch_path(leader), brokers[leader].incarnation)
            for leader in sorted(leaders & brokers.keys())
        ]

    # -- within ----------------------------------------------------------------

    def _send(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        """Submit a multi; its last operation is the mark of the request being handled."""
        guard = self.guard
        self.sent += 1
        if guard is None or guard.mark is None:
            answer = self.store.submit(ops)
        else:
            answer = self.store.submit([*ops, guard.mark.op])
            guard.sent(answer)
        answer.add_done_callback(partial(self._answered, self.sent))
        return answer

    def _answered(self, number: int, answer: asyncio.Future[MultiResults]) -> None:
        if not answer.cancelled() and isinstance(answer.exception(), NotConnected):
            self._not_sent.add(number)

    def has_sent_since(self, number: int) -> bool:
        """Tell whether ZooKeeper may have got a multi since `sent` was `number`."""
        self._not_sent = {one for one in self._not_sent if one > number}
        return self.sent - number > len(self._not_sent)

    def _check_lease(self) -> None:
        if not self.store.lease_valid():
            raise TermEnded("the lease on the ZooKeeper session has run out")

    def _chunks(self, decisions: list[StateDecision]) -> Iterator[list[StateDecision]]:
        """Split so that each chunk fits a multi with its checks and its audit entry."""
        room = max(3, self.max_ops - 3 - len(self.image.brokers))
        chunk: list[StateDecision] = []
        cost = 0
        with_parent = set(self._with_parent)
        for decision in decisions:
            more = 1
            if decision.version == NO_NODE:
                more = 2 if decision.topic in with_parent else 3
                with_parent.add(decision.topic)
            if cost + more > room:
                yield chunk
                chunk, cost = [], 0
            chunk.append(decision)
            cost += more
        if chunk:
            yield chunk

    def _submit(
        self, decisions: list[StateDecision], entry: AuditEntry, existing: Set[str] = frozenset()
    ) -> _Batch:
        """Submit one multi; `existing` are the parent nodes that need not be created."""
        self._check_lease()
        checks = [self._check, *self.leader_checks(decisions)]
        rows = tuple(map(audit_row, decisions))
        entry = msgspec.structs.replace(entry, time=self.clock.wall_ms(), changes=rows)
        ops = [*checks, *self._state_ops(decisions, existing), audit_op(entry)]
        return _Batch(decisions, len(checks), self._send(ops))

    def _state_ops(self, decisions: list[StateDecision], existing: Set[str]) -> Iterator[Op]:
        values: dict[object, bytes] = {}
        for decision in decisions:
            data = _encoded(decision.after, values)
            path = znodes.state_path(decision.topic, decision.partition)
            if decision.version != NO_NODE:
                yield SetOp(path, data, decision.version)
                continue
            parents = (
                znodes.partitions_path(decision.topic),
                znodes.partition_path(decision.topic, decision.partition),
            )
            for parent in parents[1:] if decision.topic in self._with_parent else parents:
                if parent not in existing:
                    yield CreateOp(parent)
            self._with_parent.add(decision.topic)
            yield CreateOp(path, data)

    async def _finish_all(
        self, batches: list[_Batch], entry: AuditEntry, decide: Decide
    ) -> list[StateDecision]:
        written: list[StateDecision] = []
        stale: StaleImage | None = None
        async for batch in in_turns(batches):
            try:
                written += await self._finish(batch, entry, decide)
            except StaleImage as error:  # The others are in flight already: examine them all.
                stale = error
        if stale is not None:
            raise stale
        return written

    async def _finish(
        self, batch: _Batch, entry: AuditEntry, decide: Decide
    ) -> list[StateDecision]:
        """Await a multi; if it is refused, read its partitions, decide again and retry it."""
        topic_partitions = [TopicPartition(d.topic, d.partition) for d in batch.decisions]
        for _ in range(MAX_ATTEMPTS):
            try:
                results = await batch.answer
            except MultiFailed as failure:
                problem = self._refusal(failure, batch.checks)
                if not isinstance(problem.error, BadVersion | NodeExists | NoNode):
                    raise problem from failure
                decisions = await self._decide_again(topic_partitions, decide)
                existing = await self._find_existing(decisions)
                decisions = [d for d in decisions if not _is_unreadable(d, existing)]
                if not decisions:
                    return []
                batch = self._submit(decisions, entry, existing)
            else:
                self._apply(batch, results)
                return batch.decisions
        return []

    def _refusal(self, failure: MultiFailed, checks: int) -> MultiFailed:
        """Return or raise what a refused multi means, by the operation that was refused."""
        if failure.index == 0:
            raise TermEnded("another controller was elected") from failure
        if failure.index < checks:
            raise StaleImage(failure.error.path) from failure
        return MultiFailed(failure.index - checks, failure.error)

    async def _decide_again(
        self, topic_partitions: list[TopicPartition], decide: Decide
    ) -> list[StateDecision]:
        """Read and apply the states of these partitions, publish them, and decide again.

        A state that is gone or unreadable is left out: ZooKeeper would refuse it each time,
        and the rest of its multi with it.
        """
        found = await self.store.read_states(topic_partitions)
        if self.on_found is not None:
            await self.on_found(found)
        applied = self.image.apply(found)
        self.on_written([change for change in applied if isinstance(change, StateSet)], None)
        readable = {(change.topic, change.partition) for change in found}
        decisions = decide(topic_partitions)
        possible = [
            d for d in decisions if d.version == NO_NODE or (d.topic, d.partition) in readable
        ]
        if len(possible) < len(decisions):
            logger.error("partition states missing", count=len(decisions) - len(possible))
        return possible

    async def _find_existing(self, decisions: list[StateDecision]) -> set[str]:
        """Return which nodes of partitions without a known state exist already."""
        parents: dict[str, str] = {}
        for decision in decisions:
            if decision.version == NO_NODE:
                parents[znodes.partitions_path(decision.topic)] = decision.topic
                parents[znodes.partition_path(decision.topic, decision.partition)] = ""
                parents[znodes.state_path(decision.topic, decision.partition)] = ""
        found = await self.store.read_nodes(list(parents))
        self._with_parent -= set(parents.values())
        return {path for path, node in zip(parents, found, strict=True) if node is not None}

    def _apply(self, batch: _Batch, results: MultiResults) -> None:
        """Apply what was written to the image, and publish it."""
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
        self.image.apply(written)
        if self.on_decided is not None:
            self.on_decided(batch.decisions)
        self.long_lived.add(len(written))
        self.long_lived.keep_from_collector()
        self.on_written(written, [decision.former_leader for decision in batch.decisions])


class _Batch(NamedTuple):
    """One multi in flight; `checks` is the number of its first operations that are checks."""

    decisions: list[StateDecision]
    checks: int
    answer: asyncio.Future[MultiResults]


def _is_unreadable(decision: StateDecision, existing: Set[str]) -> bool:
    """Return whether a state node exists that was not found among the readable states."""
    path = znodes.state_path(decision.topic, decision.partition)
    return decision.version == NO_NODE and path in existing


def _encoded(state: PartitionState, values: dict[object, bytes]) -> bytes:
    """Encode a state; equal states are encoded once."""
    if state.extra or state.directory_epochs:
        return znodes.encode_state(state)
    key = (state.leader, state.leader_epoch, state.isr, state.controller_epoch, state.eligible)
    if key not in values:
        values[key] = znodes.encode_state(state)
    return values[key]


def audit_row(decision: StateDecision) -> StateChange:
    """Return the row of an audit entry about one written state."""
    before, after = decision.before, decision.after
    return StateChange(
        decision.topic,
        decision.partition,
        decision.reason,
        (before.leader, before.leader_epoch, before.isr) if before else None,
        (after.leader, after.leader_epoch, after.isr),
        decision.version + 1,
    )

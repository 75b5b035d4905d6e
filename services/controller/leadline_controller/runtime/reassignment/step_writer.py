"""Writes the steps of reassignments: one transaction a topic, side by side (rule R13).

Each transaction checks the controller epoch (R11) and the incarnations of leaders
(R9), and carries, with its audit entry, the topic's node, the states, and the
intents that it finishes: whatever happens to this controller, the next one finds a
state to go on from. Only when it is written are replicas told to go. The versions
come from the image: nothing is read but after a refusal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.elections import ElectionReason
from leadline_common.leader_election import TermEnded
from leadline_common.zk.errors import MultiFailed, RequestTooLarge
from leadline_common.zk.ops import CheckOp, DeleteOp, Op, OpResult, SetOp, Stat
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.cluster import Change, StateSet, TopicSet
from leadline_controller.domain.reassignment.publication import TopicChange, publish_actions
from leadline_controller.domain.reassignment.queue import DueAction, ReassignmentQueue
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.state_writer import StaleView, audit_row
from leadline_controller.runtime.reassignment.intents import IntentNodes

_log = logging.getLogger(__name__)

PARTITIONS_AT_ONCE = 200
"""Partitions of one topic in one transaction; with their audit rows far below jute.maxbuffer."""


class StepWriter:
    """Writes what is due, and takes reassignments off the agenda as they are finished."""

    def __init__(self, desk: EventContext, intents: IntentNodes, agenda: ReassignmentQueue) -> None:
        self._desk = desk
        self._agenda = agenda
        self._intents = intents
        # A partition takes up to two operations; the rest are checks, nodes and the audit entry.
        spare = desk.office.settings.zookeeper_multi_max_ops - len(desk.image.brokers) - 4
        self._room = max(1, min(PARTITIONS_AT_ONCE, spare // 2))

    async def write(self, due: Sequence[DueAction]) -> bool:
        """Write what is due, as much of each topic as fits; return whether anything was written.

        Where ZooKeeper has something else than was expected nothing is written: that
        is read, to be decided upon anew.

        Raises:
            TermEnded: another controller has taken over.
            StaleView: the brokers are not those that were decided with.
            ConnectionLoss: the outcome of some writes is unknown.

        """
        by_topic: dict[str, list[DueAction]] = {}
        for one in due:
            rows = by_topic.setdefault(one.topic_partition.topic, [])
            if len(rows) < self._room:
                rows.append(one)
        epoch = self._desk.image.controller_epoch
        changes = [
            publish_actions(self._desk.image.topics[topic], rows, epoch)
            for topic, rows in by_topic.items()
        ]
        with self._desk.delivery.metadata_held():
            outcomes = await asyncio.gather(
                *(self._write_topic(change) for change in changes), return_exceptions=True
            )
        _raise_gravest(outcomes)
        return True in outcomes

    async def _write_topic(self, change: TopicChange) -> bool:
        """Write one topic's change; False when it was refused, and has to be decided anew."""
        ops = self._ops(change)
        try:
            results = await self._desk.writer.commit(ops, self._entry(change))
        except RequestTooLarge as problem:
            self._room = max(1, self._room // 2)
            _log.error("a step of %s is too large for ZooKeeper: %s", change.topic, problem)
            return False
        except MultiFailed as failure:
            await self._examine(change, ops[failure.index], failure)
            return False
        self._take_in(change, results)
        return True

    def _ops(self, change: TopicChange) -> list[Op]:
        image = self._desk.image
        ops: list[Op] = [*self._desk.writer.leader_checks(change.decisions)]
        if change.assignment is not None:
            path = znodes.topic_path(change.topic)
            data = znodes.encode_topic(change.assignment)
            ops.append(SetOp(path, data, image.topics[change.topic].version))
        for decision in change.decisions:
            path = znodes.state_path(change.topic, decision.partition)
            ops.append(SetOp(path, znodes.encode_state(decision.after), decision.version))
        return ops + self._intents.delete_ops(change.finished)

    def _entry(self, change: TopicChange) -> AuditEntry:
        entry = self._desk.entry(
            "reassignment_step",
            {"topic": change.topic, "finished": [name.partition for name in change.finished]},
            reason=", ".join(f"{n}x {action}" for action, n in sorted(change.counts.items())),
            before=change.before,
            after=change.after,
        )
        return msgspec.structs.replace(entry, changes=tuple(map(audit_row, change.decisions)))

    def _take_in(self, change: TopicChange, results: Sequence[OpResult]) -> None:
        """Apply what was written to the image, tell the replicas, and let the dropped ones go."""
        stats = (result for result in results if isinstance(result, Stat))
        news: list[Change] = []
        if change.assignment is not None:
            stat = next(stats)
            news.append(TopicSet(change.topic, change.assignment, stat.version, stat.mzxid))
        states = [
            StateSet(d.topic, d.partition, d.after, stat.version, stat.mzxid)
            for d, stat in zip(change.decisions, stats, strict=True)
        ]
        self._desk.image.apply([*news, *states])
        self._intents.deleted(change.finished)
        self._desk.tell(states)
        self._desk.delivery.drop(change.topic, change.drops, self._desk.cause)
        for name in change.finished:
            self._agenda.drop(name)
        self._count(change)

    def _count(self, change: TopicChange) -> None:
        metrics = self._desk.office.metrics
        for action, number in change.counts.items():
            metrics.reassignment_steps.labels(action).inc(number)
        moved = sum(d.reason is ElectionReason.REASSIGNED for d in change.decisions)
        if moved:
            metrics.elections.labels(ElectionReason.REASSIGNED.value).inc(moved)

    async def _examine(self, change: TopicChange, refused: Op, failure: MultiFailed) -> None:
        """Read what ZooKeeper has instead of what was expected (rule R7)."""
        if isinstance(refused, CheckOp):
            raise StaleView(refused.path) from failure
        _log.info("a step of %s was refused: %s", change.topic, failure)
        if isinstance(refused, DeleteOp):
            self._intents.distrust(change.topic)
        known = {change.topic: self._desk.image.topics[change.topic].zxid}
        store = self._desk.office.store
        if self._desk.image.apply(await store.read_topics([change.topic], known)):
            self._desk.delivery.metadata()
        names = [TopicPartition(change.topic, d.partition) for d in change.decisions]
        self._desk.adopt(await store.read_states(names))


def _raise_gravest(outcomes: Sequence[bool | BaseException]) -> None:
    """Raise the failure, if there is one, that says most about what has happened."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for kind in (TermEnded, asyncio.CancelledError, StaleView):
        for failure in failures:
            if isinstance(failure, kind):
                raise failure
    if failures:
        raise failures[0]

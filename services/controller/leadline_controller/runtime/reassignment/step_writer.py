"""Writes the steps of reassignments: one transaction per topic, in parallel (rule R13).

Each transaction checks the controller epoch (R11) and the incarnations of leaders (R9).
Together with its audit entry it writes the topic's node and the states, and deletes the
intents that it completes. Whatever happens to this controller, the next one finds a state
to go on from. Replicas are deleted only after the write. The versions come from the
image: nothing is read unless ZooKeeper refuses a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.leader_election import TermEnded
from leadline_common.slices import in_turns, parts
from leadline_common.zk.errors import MultiFailed, RequestTooLarge
from leadline_common.zk.ops import CheckOp, DeleteOp, Op, OpResult, SetOp, Stat
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.cluster import Change, ClusterImage, StateSet, TopicSet
from leadline_controller.domain.reassignment.publication import TopicChange, publish_actions
from leadline_controller.domain.reassignment.queue import DueAction, ReassignmentQueue
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.external_changes import ExternalChanges
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.engine.publishing import AuditLog, StatePublisher
from leadline_controller.runtime.engine.state_writer import (
    StaleImage,
    StateWriter,
    audit_row,
)
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.reassignment.intents import IntentNodes

logger = structlog.get_logger(__name__)

MAX_PARTITIONS = 200
"""Partitions of one topic in one transaction; with their audit rows far below jute.maxbuffer."""
BEGUN_AT_ONCE: Final = 600
"""What is written in one turn of the event loop, in steps: each takes about 10 µs."""
TOPIC_COST: Final = 5
"""What a transaction costs besides its steps, in steps."""


@dataclass(eq=False)
class StepWriter:
    """Writes due steps, and removes completed reassignments from the queue."""

    store: ControllerStore
    image: ClusterImage
    writer: StateWriter
    publisher: StatePublisher
    dispatcher: BrokerDispatcher
    audit: AuditLog
    metrics: ControllerMetrics
    intents: IntentNodes
    reassignments: ReassignmentQueue
    external: ExternalChanges

    def __post_init__(self) -> None:
        # A partition takes up to two operations; the rest are checks, nodes and the audit entry.
        spare = self.writer.max_ops - len(self.image.brokers) - 4
        self._room = max(1, min(MAX_PARTITIONS, spare // 2))

    async def write(self, due: Sequence[DueAction]) -> bool:
        """Write due steps, as many of each topic as fit; return whether anything was written.

        A refused transaction writes nothing. Its nodes are read, and the next call decides
        again.

        Raises:
            TermEnded: another controller was elected.
            StaleImage: the live brokers are not those that were decided with.
            ConnectionLoss: the outcome of some writes is unknown.

        """
        with self.dispatcher.metadata_held():
            outcomes = await self._write_topics(self._by_topic(due))
        _raise_first(outcomes)
        return True in outcomes

    def _by_topic(self, due: Iterable[DueAction]) -> dict[str, list[DueAction]]:
        by_topic: dict[str, list[DueAction]] = {}
        for step in due:
            rows = by_topic.setdefault(step.topic_partition.topic, [])
            if len(rows) < self._room:
                rows.append(step)
        return by_topic

    async def _write_topics(
        self, by_topic: dict[str, list[DueAction]]
    ) -> Sequence[bool | BaseException]:
        """Write the steps of all topics, some in each turn of the loop; return the outcomes.

        The steps of a topic stay true until it is their turn. Only the handler of an event changes
        the image, and this is part of one: meanwhile it applies the outcomes of other topics.
        """
        writes: list[asyncio.Task[bool]] = []
        try:
            async for some in in_turns(parts(by_topic.items(), _cost, BEGUN_AT_ONCE)):
                writes += [asyncio.create_task(self._write_topic(*topic)) for topic in some]
        except asyncio.CancelledError:
            for write in writes:
                write.cancel()
            await asyncio.gather(*writes, return_exceptions=True)
            raise
        return await asyncio.gather(*writes, return_exceptions=True)

    async def _write_topic(self, name: str, due: Sequence[DueAction]) -> bool:
        """Write steps of one topic; return False if ZooKeeper refused them."""
        change = publish_actions(self.image.topics[name], due, self.image.controller_epoch)
        ops = self._ops(change)
        try:
            results = await self.writer.commit(ops, self._entry(change))
        except RequestTooLarge as problem:
            self._room = max(1, self._room // 2)
            logger.error("step too large for ZooKeeper", topic=change.topic, error=str(problem))
            return False
        except MultiFailed as failure:
            await self._read_after(failure, change, ops[failure.index])
            return False
        self._apply(change, results)
        return True

    def _ops(self, change: TopicChange) -> list[Op]:
        ops: list[Op] = [*self.writer.leader_checks(change.decisions)]
        if change.assignment is not None:
            path = znodes.topic_path(change.topic)
            data = znodes.encode_topic(change.assignment)
            ops.append(SetOp(path, data, self.image.topics[change.topic].version))
        for decision in change.decisions:
            path = znodes.state_path(change.topic, decision.partition)
            ops.append(SetOp(path, znodes.encode_state(decision.after), decision.version))
        return ops + self.intents.delete_ops(change.finished)

    def _entry(self, change: TopicChange) -> AuditEntry:
        entry = self.audit.entry(
            "reassignment_step",
            {"topic": change.topic, "finished": [one.partition for one in change.finished]},
            reason=", ".join(f"{n}x {action}" for action, n in sorted(change.counts.items())),
            before=change.before,
            after=change.after,
        )
        return msgspec.structs.replace(entry, changes=tuple(map(audit_row, change.decisions)))

    def _apply(self, change: TopicChange, results: Sequence[OpResult]) -> None:
        """Apply what was written to the image, and send it to the replicas."""
        stats = (result for result in results if isinstance(result, Stat))
        written: list[Change] = []
        if change.assignment is not None:
            stat = next(stats)
            written.append(TopicSet(change.topic, change.assignment, stat.version, stat.mzxid))
        states = [
            StateSet(d.topic, d.partition, d.after, stat.version, stat.mzxid)
            for d, stat in zip(change.decisions, stats, strict=True)
        ]
        self.image.apply([*written, *states])
        self.intents.deleted(change.finished)
        self.dispatcher.send_roles(states)
        self.dispatcher.delete_reassigned(change.topic, change.drops)
        for topic_partition in change.finished:
            self.reassignments.drop(topic_partition)
        for action, number in change.counts.items():
            self.metrics.reassignment_steps.labels(action).inc(number)
        self.metrics.count_elections(change.decisions)

    async def _read_after(self, failure: MultiFailed, change: TopicChange, refused: Op) -> None:
        """Read the nodes that are not as expected (rule R7)."""
        if isinstance(refused, CheckOp):
            raise StaleImage(refused.path) from failure
        logger.info("step refused; reading again", topic=change.topic, error=str(failure))
        if isinstance(refused, DeleteOp):
            self.intents.invalidate(change.topic)
        known = {change.topic: self.image.topics[change.topic].zxid}
        found = await self.store.read_topics([change.topic], known)
        await self.external.record_topics(found)
        self.publisher.apply_topics(found)
        topic_partitions = [TopicPartition(change.topic, d.partition) for d in change.decisions]
        states = await self.store.read_states(topic_partitions)
        await self.external.record_states(states)
        self.publisher.apply_read(states)


def _cost(topic: tuple[str, list[DueAction]]) -> int:
    return TOPIC_COST + len(topic[1])


def _raise_first(outcomes: Sequence[bool | BaseException]) -> None:
    """Raise the most important failure, if there is one."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for kind in (TermEnded, asyncio.CancelledError, StaleImage):
        for failure in failures:
            if isinstance(failure, kind):
                raise failure
    if failures:
        raise failures[0]

"""The reassignment agent (Replication V3, section F; KIP-435): moves partitions step by step.

It wakes up when something has happened that a reassignment may wait for (an ISR change,
a broker, a config, a new intent), and periodically. It then asks the reassignment queue
which steps are due within the limits, and writes them. Writing is a change too, so it
wakes up again until nothing is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
import structlog

from leadline_client.errors import NotFound, StaleVersion
from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.cause import current_cause
from leadline_common.partition_intents import is_partition
from leadline_common.settings.fields import INT32_MAX
from leadline_common.slices import in_turns, slices
from leadline_common.tasks import Intent, request_number
from leadline_common.zk.errors import MultiFailed, NotEmpty
from leadline_controller.domain.cluster import Change, ClusterImage, StateSet, TopicGone
from leadline_controller.domain.reassignment.batches import ReassignmentLimits
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.reassignment.requests import current_replicas
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import Reply
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import MAX_ATTEMPTS, StateWriter
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.reassignment.events import (
    CancelReassignment,
    IntentsChanged,
    StepsDue,
)
from leadline_controller.runtime.reassignment.intents import FoundIntents, IntentNodes
from leadline_controller.runtime.reassignment.step_writer import StepWriter

logger = structlog.get_logger(__name__)

REFUSED = "reassignment_refused"
RETRY_PAUSE_S = 0.1
"""How long to wait before a refused write is decided again."""


@dataclass(eq=False)
class ReassignmentAgent(EventHandler):
    """Executes the reassignments in `reassignments`, which follow from the intents."""

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    configs: DynamicConfigs
    writer: StateWriter
    audit: AuditLog
    reassignments: ReassignmentQueue
    intents: IntentNodes
    steps: StepWriter
    _is_retrying: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._wake_up_after_event = self.queue.after_event(self._wake_up)
        self.image.subscribe(self._on_image_changed)
        self.reassignments.subscribe(self._wake_up_after_event)
        self.configs.subscribe(self._wake_up_after_event)

    @property
    def limits(self) -> ReassignmentLimits:
        """The limits on movements in force."""
        settings = self.configs.current()
        return ReassignmentLimits(
            _limit(settings.reassignment_max_concurrent_replica_movements),
            _limit(settings.reassignment_max_concurrent_partition_movements),
            _limit(settings.reassignment_max_concurrent_leader_movements),
        )

    async def on_elected(self) -> None:
        """Resume every reassignment after its last written step."""
        self.run_in_background(self._wake_up_periodically(), "reassignment-clock")
        await self._read(everything=True)
        self.queue.trigger(StepsDue, current_cause())

    async def reconcile(self) -> None:
        """Read all intents, and examine every reassignment again."""
        await self._read(everything=True)
        self.reassignments.mark_all_changed()

    async def _wake_up_periodically(self) -> None:
        while True:
            interval_ms = self.configs.current().reassignment_agent_interval_ms
            await asyncio.sleep(interval_ms / 1000)
            self.reassignments.mark_all_changed()
            self.queue.trigger(StepsDue)

    # -- changes ---------------------------------------------------------------

    def _on_image_changed(self, changes: Sequence[Change]) -> None:
        """Note which reassignments the changes concern."""
        if not len(self.reassignments):
            return
        self.reassignments.mark_changed(
            TopicPartition(change.topic, change.partition)
            for change in changes
            if isinstance(change, StateSet)
        )
        if any(isinstance(change, TopicGone) for change in changes):
            self.intents.read_soon()
        self._wake_up_after_event()

    def _wake_up(self) -> None:
        if not self._is_retrying and self.reassignments.has_changes(self.image, self.limits):
            self.queue.trigger(StepsDue)

    # -- intents ---------------------------------------------------------------

    @IntentsChanged.handler
    async def on_partitions_reassigned(self) -> None:
        """Read the intents that somebody has written (Replication V3, section F)."""
        await self._read(everything=False)

    async def _read(self, *, everything: bool) -> None:
        """Read the intents that are not known yet, or with `everything` all of them."""
        found = await self._read_valid(everything=everything)
        await self.add_reassigned_partitions(found)
        await self._drop_obsolete()
        if everything:
            await self._undo_orphans()

    async def _read_valid(self, *, everything: bool) -> FoundIntents:
        """Read intents, apply them, and refuse those that cannot be executed."""
        found = await self.intents.read(everything=everything)
        refused = found.invalid | await self._unknown_brokers(found)
        changed = {
            one: row
            for one, row in found.changed.items()
            if (one.topic, str(one.partition)) not in refused
        }
        valid = FoundIntents(changed, found.vanished)
        self._apply(valid)
        for (topic, name), reason in refused.items():
            await self._refuse(topic, name, reason)
        return valid

    async def _unknown_brokers(self, found: FoundIntents) -> dict[tuple[str, str], str]:
        """Return the intents of operators that name brokers that never registered."""
        by_hand = {one: row[0] for one, row in found.changed.items() if not row[0].task}
        ever = await self.store.brokers_ever() if by_hand else frozenset[int]()
        refused = {}
        for one, intent in by_hand.items():
            current = current_replicas(self.image, one)
            # A cancellation leads to the start.
            named = {*intent.target, *intent.start}
            unknown = sorted(named - ever - set(named if current is None else current))
            if unknown:
                key = one.topic, str(one.partition)
                refused[key] = f"brokers {unknown} never registered"
        return refused

    async def _refuse(self, topic: str, name: str, reason: str) -> None:
        """Delete an intent that cannot be executed, and record the reason in the audit."""
        logger.error("intent refused", topic=topic, name=name, reason=reason)
        resource: dict[str, Any] = {"topic": topic}
        if is_partition(name):
            resource["partition"] = int(name)
        entry = self.audit.entry(REFUSED, resource, outcome="refused", reason=reason)
        try:
            await self.writer.commit(self.intents.discard_ops(topic, name), entry)
        except MultiFailed as failure:
            logger.warning("intent not deleted", error=str(failure))
            self.intents.forget(topic, name)
            # As long as the node itself has children, only reconciliations try again.
            if failure.index > 0 or not isinstance(failure.error, NotEmpty):
                self.intents.invalidate(topic)
            return
        self.intents.forget(topic, name)
        if is_partition(name):
            self.reassignments.drop(TopicPartition(topic, int(name)))

    async def add_reassigned_partitions(self, found: FoundIntents) -> None:
        """Complete new intents (Replication V3, section F).

        An intent that an operator wrote gets its start list and the current topic's id: it is
        not meant for a later topic of that name.
        """
        incomplete = {}
        for topic_partition, (intent, _) in found.changed.items():
            current = current_replicas(self.image, topic_partition)
            if not intent.start and current is not None:
                topic_id = intent.topic_id or self.image.topics[topic_partition.topic].topic_id
                incomplete[topic_partition] = msgspec.structs.replace(
                    intent, start=current, topic_id=topic_id
                )
        if incomplete:
            await self.write_intents(incomplete, "reassignment_found")

    async def write_intents(self, intents: Mapping[TopicPartition, Intent], kind: str) -> bool:
        """Write intents, in as many transactions as necessary.

        Returns False if somebody has changed one of them; all intents are read again then.
        """
        for some in self._parts(list(intents)):
            part = {one: intents[one] for one in some}
            ops, entry = self.intents.write_ops(part), self._entry(kind, part)
            try:
                results = await self.writer.commit(ops, entry)
            except MultiFailed as failure:
                await self._read_after(failure)
                return False
            self._apply(self.intents.written(part, results))
        return True

    async def _read_after(self, failure: MultiFailed) -> None:
        logger.warning("intents have changed; reading again", error=str(failure))
        await self._read_valid(everything=True)

    def _apply(self, found: FoundIntents) -> None:
        for topic_partition in found.vanished:
            self.reassignments.drop(topic_partition)
        for topic_partition, (intent, version) in found.changed.items():
            self.reassignments.put(topic_partition, intent, version, request_of(intent))

    async def _drop_obsolete(self) -> None:
        """Delete the intents for topics and partitions that no longer exist."""
        obsolete = await self._obsolete()
        if not obsolete:
            return
        # The image may not know a topic yet that was just written into ZooKeeper.
        nodes = await self.store.read_nodes([znodes.topic_path(topic) for topic in obsolete])
        for (topic, topic_partitions), node in zip(obsolete.items(), nodes, strict=True):
            if node is None or topic in self.image.topics:
                await self._delete_intents(topic, topic_partitions)
            elif topic in self.image.deleted_at:
                self.intents.read_soon()

    async def _obsolete(self) -> dict[str, list[TopicPartition]]:
        found: dict[str, list[TopicPartition]] = {}
        entries = list(self.reassignments)
        async for some in slices(entries):  # Only handlers of events change them and the image.
            for entry in some:
                topic_name, number = entry.topic_partition
                topic, meant = self.image.topics.get(topic_name), entry.intent.topic_id
                is_other = topic is not None and meant not in ("", topic.topic_id)
                if topic is None or is_other or number not in topic.partitions:
                    found.setdefault(topic_name, []).append(entry.topic_partition)
        return found

    async def _delete_intents(self, topic: str, topic_partitions: Sequence[TopicPartition]) -> None:
        for part in self._parts(topic_partitions):
            entry = self.audit.entry(
                "reassignment_dropped",
                {"topic": topic, "partitions": [one.partition for one in part]},
                reason="there is no such partition any more",
            )
            try:
                await self.writer.commit(self.intents.delete_ops(part), entry)
            except MultiFailed as failure:
                await self._read_after(failure)
                self.intents.read_soon()
                return
            self.removed(part)

    def _parts(
        self, topic_partitions: Sequence[TopicPartition]
    ) -> Iterator[Sequence[TopicPartition]]:
        """Yield partitions in groups whose intents fit into one transaction each."""
        room = max(1, self.writer.max_ops // 2 - 2)
        for start in range(0, len(topic_partitions), room):
            yield topic_partitions[start : start + room]

    def removed(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Note that the intents for these partitions were deleted."""
        self.intents.deleted(topic_partitions)
        for topic_partition in topic_partitions:
            self.reassignments.drop(topic_partition)

    async def _undo_orphans(self) -> None:
        """Undo the steps in progress whose intents somebody has deleted."""
        undo = {}
        moving = (
            (topic.topic_id, TopicPartition(topic.name, number))
            for topic in list(self.image.topics.values())
            if not topic.deleting
            for number in {*topic.assignment.adding, *topic.assignment.removing}
        )
        async for some in slices(moving):
            for topic_id, one in some:
                current = current_replicas(self.image, one)
                if one not in self.reassignments and current:
                    undo[one] = Intent(current, current, cancelled=True, topic_id=topic_id)
        if undo:
            logger.warning("undoing steps without an intent", partitions=len(undo))
            await self.write_intents(undo, "reassignment_orphaned")

    def _entry(self, kind: str, intents: Mapping[TopicPartition, Intent]) -> znodes.AuditEntry:
        topics: dict[str, dict[str, object]] = {}
        for topic_partition, intent in intents.items():
            rows = topics.setdefault(topic_partition.topic, {})
            rows[str(topic_partition.partition)] = {"start": intent.start, "target": intent.target}
        tasks = sorted({intent.task for intent in intents.values() if intent.task})
        return self.audit.entry(kind, {"tasks": tasks}, after=topics)

    @CancelReassignment.handler
    async def on_cancel(self, event: CancelReassignment, reply: Reply[tuple[int, ...]]) -> None:
        """Return one partition to its start list.

        Raises:
            NotFound: it is not being reassigned.
            StaleVersion: others keep writing its intent.

        """
        topic_partition = event.topic_partition
        label = f"{topic_partition.topic}-{topic_partition.partition}"
        if topic_partition in self.reassignments and not await self.cancel([topic_partition]):
            raise StaleVersion(f"the intent for {label} is being written by others: ask again")
        entry = self.reassignments.get(topic_partition)
        if entry is None:
            raise NotFound(f"{label} is not being reassigned")
        reply.settle(entry.intent.start)

    async def cancel(self, topic_partitions: Sequence[TopicPartition]) -> bool:
        """Return partitions to their start lists.

        An intent that somebody has changed is read and cancelled as it is then. Returns False
        if it keeps changing.
        """
        for _ in range(MAX_ATTEMPTS):
            back = {
                one: msgspec.structs.replace(entry.intent, cancelled=True)
                for one in topic_partitions
                if (entry := self.reassignments.get(one)) is not None and not entry.intent.cancelled
            }
            if not back or await self.write_intents(back, "reassignment_cancelled"):
                return True
        return False

    # -- steps -----------------------------------------------------------------

    async def refresh(self) -> None:
        """Update the reassignments that have changed, some in each turn of the loop.

        All of them have when a broker has, and at each interval. 100,000 take 7 s.
        """
        async for _ in in_turns(count()):
            if not self.reassignments.refresh_some(self.image, self.limits):
                return

    @StepsDue.handler
    async def on_steps_due(self) -> None:
        """Write the due steps (Replication V3, section F); the next event writes what follows."""
        self._is_retrying = False
        await self.refresh()
        due = self.reassignments.due(self.image, self.limits)
        if not due:
            return
        written = await self.steps.write(due)
        self._is_retrying = not written
        if written:
            self.queue.trigger(StepsDue, current_cause())
        else:
            self.queue.trigger_later(RETRY_PAUSE_S, StepsDue)


def request_of(intent: Intent) -> int:
    """Return the number of an intent's request; intents without a task come first (-1)."""
    return request_number(intent.task)


def _limit(value: int) -> int | None:
    """Return a limit; None for the default, which means no limit."""
    return None if value >= INT32_MAX else value

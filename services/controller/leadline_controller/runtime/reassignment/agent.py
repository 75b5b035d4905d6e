"""The reassignment agent (seed 1 F, seed 5): brings each partition to its target, step by step.

It wakes up when something has happened that a reassignment may wait for (an ISR
change, a broker, a setting, a new intent), and now and then. Once awake it asks the
agenda what is due within the limits, and has that written. The writing is news
itself, so that it wakes up again until nothing is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import msgspec

from leadline_client.errors import NotFound, StaleVersion
from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.settings.fields import INT32_MAX
from leadline_common.tasks import Intent
from leadline_common.zk.errors import MultiFailed
from leadline_common.zk.ops import Op
from leadline_controller.domain.cluster import StateSet
from leadline_controller.domain.reassignment.batches import ReassignmentLimits
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.reassignment.requests import current_replicas
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.engine.state_writer import MAX_ATTEMPTS
from leadline_controller.runtime.reassignment.events import (
    AgentWakes,
    CancelReassignment,
    IntentsChanged,
)
from leadline_controller.runtime.reassignment.intents import FoundIntents, IntentNodes
from leadline_controller.runtime.reassignment.step_writer import StepWriter

_log = logging.getLogger(__name__)

LOOK_PAUSE_S = 0.2
"""The shortest time between two looks for intents by hand: own writes set the watches off."""
RETRY_PAUSE_S = 0.1
"""How long to wait after a write was refused, before deciding anew."""


class ReassignmentAgent(EventHandler):
    """The reassignments under way, one for each intent."""

    def __init__(self, desk: EventContext) -> None:
        self._desk = desk
        self._image = desk.image
        self.agenda = ReassignmentQueue()
        self._intents = IntentNodes(desk.office.store, self._look_soon)
        self._steps = StepWriter(desk, self._intents, self.agenda)
        self._is_resting = False
        self._timers: dict[type[events.Hint], asyncio.TimerHandle] = {}
        self._clock: asyncio.Task[None] | None = None
        desk.listeners.append(self._on_states)

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {
            IntentsChanged: self.on_partitions_reassigned,
            AgentWakes: self.on_wakeup,
            CancelReassignment: self.on_cancel,
        }

    @property
    def limits(self) -> ReassignmentLimits:
        """The limits on movements, as they are set now."""
        settings = self._desk.configs.current()
        return ReassignmentLimits(
            _limit(settings.reassignment_max_concurrent_replica_movements),
            _limit(settings.reassignment_max_concurrent_partition_movements),
            _limit(settings.reassignment_max_concurrent_leader_movements),
        )

    async def take_over(self, cause: str) -> None:
        """Resume every reassignment where its last write has left it."""
        self._clock = asyncio.create_task(self._tick(), name="reassignment-clock")
        await self.look(everything=True)
        self._desk.hint(AgentWakes, cause)

    async def reconcile(self, _event: events.Reconcile) -> None:
        """Look for what was changed by hand, and think about every reassignment again."""
        await self.look(everything=True)
        self.agenda.mark_all_changed()

    def follow_up(self) -> None:
        """Wake up if what was handled is news for a reassignment."""
        if not self._is_resting and self.agenda.has_changes(self._image, self.limits):
            self._desk.hint(AgentWakes)
        if not self._image.deleted_at.keys().isdisjoint(self.agenda.topics()):
            self._look_soon()

    async def close(self) -> None:
        """End what runs beside the queue."""
        for timer in self._timers.values():
            timer.cancel()
        if self._clock is not None:
            self._clock.cancel()
            await asyncio.gather(self._clock, return_exceptions=True)

    async def _tick(self) -> None:
        """Wake up now and then, whatever was heard."""
        while True:
            await asyncio.sleep(self._desk.configs.current().reassignment_agent_interval_ms / 1000)
            self.agenda.mark_all_changed()
            self._desk.hint(AgentWakes)

    # -- intents ---------------------------------------------------------------

    async def on_partitions_reassigned(self, _event: IntentsChanged) -> None:
        """Take up the intents that somebody has written (seed 1 F)."""
        await self.look(everything=False)

    async def look(self, *, everything: bool) -> None:
        """Read intents that are not known yet, or with `everything` all of them."""
        found = await self._intents.look(everything=everything)
        self._take_in(found)
        await self.add_reassigned_partitions(found)
        await self._drop_meaningless()
        if everything:
            await self._undo_orphans()

    async def add_reassigned_partitions(self, found: FoundIntents) -> None:
        """Take up intents (seed 1 F).

        One that was written by hand gets its start list, and the id of the topic that is
        there: it is not meant for a later one of that name.
        """
        unstarted = {}
        for name, (intent, _) in found.changed.items():
            current = current_replicas(self._image, name)
            if not intent.start and current is not None:
                topic_id = intent.topic_id or self._image.topics[name.topic].topic_id
                unstarted[name] = msgspec.structs.replace(intent, start=current, topic_id=topic_id)
        if unstarted:
            await self.write_intents(unstarted, "reassignment_found")

    async def write_intents(self, intents: Mapping[TopicPartition, Intent], kind: str) -> bool:
        """Write intents, in as many transactions as it takes.

        False where ZooKeeper has something that was not expected: it is read then.
        """
        names = list(intents)
        room = max(1, self._desk.office.settings.zookeeper_multi_max_ops // 2 - 2)
        for start in range(0, len(names), room):
            part = {name: intents[name] for name in names[start : start + room]}
            ops, entry = self._intents.write_ops(part), self._entry(kind, part)
            try:
                results = await self._desk.writer.commit(ops, entry)
            except MultiFailed as failure:
                _log.warning("intents could not be written: %s", failure)
                self._take_in(await self._intents.look(everything=True))
                return False
            versions = self._intents.written(part, results)
            for name, intent in part.items():
                self.agenda.put(name, intent, versions[name], request_of(intent))
        return True

    def _take_in(self, found: FoundIntents) -> None:
        for name in found.vanished:
            self.agenda.drop(name)
        for name, (intent, version) in found.changed.items():
            self.agenda.put(name, intent, version, request_of(intent))

    async def _drop_meaningless(self) -> None:
        """Remove the intents of topics and partitions that there are no more."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for name in self._meaningless():
            by_topic.setdefault(name.topic, []).append(name)
        if not by_topic:
            return
        # A topic that was written by hand a moment ago may not be known yet.
        nodes = await self._desk.office.store.read_nodes([znodes.topic_path(t) for t in by_topic])
        for (topic, names), node in zip(by_topic.items(), nodes, strict=True):
            if node is None or topic in self._image.topics:
                await self._remove(topic, names)

    def _meaningless(self) -> list[TopicPartition]:
        found = []
        for topic_name in self.agenda.topics():
            topic = self._image.topics.get(topic_name)
            for name in self.agenda.of_topic(topic_name):
                entry = self.agenda.get(name)
                meant = entry.intent.topic_id if entry else ""
                is_other = topic is not None and meant not in ("", topic.topic_id)
                if topic is None or is_other or name.partition not in topic.partitions:
                    found.append(name)
        return found

    async def _remove(self, topic: str, names: Sequence[TopicPartition]) -> None:
        entry = self._desk.entry(
            "reassignment_dropped",
            {"topic": topic, "partitions": [name.partition for name in names]},
            reason="there is no such partition any more",
        )
        try:
            await self._desk.writer.commit(self._intents.delete_ops(names), entry)
        except MultiFailed as failure:
            _log.warning("intents could not be removed: %s", failure)
            self._take_in(await self._intents.look(everything=True))
            return
        self.removed(names)

    def removal_ops(self, names: Sequence[TopicPartition]) -> list[Op]:
        """Return what ends the reassignments of partitions of one topic that are about to go."""
        return self._intents.delete_ops(names)

    def removed(self, names: Sequence[TopicPartition]) -> None:
        """Note that partitions have gone, and `removal_ops` were carried out."""
        self._intents.deleted(names)
        for name in names:
            self.agenda.drop(name)

    async def _undo_orphans(self) -> None:
        """Have steps undone whose intents somebody has removed in the middle."""
        undo = {}
        for topic in self._image.topics.values():
            for number in {*topic.assignment.adding, *topic.assignment.removing}:
                name = TopicPartition(topic.name, number)
                current = current_replicas(self._image, name)
                if name not in self.agenda and current and not topic.deleting:
                    undo[name] = Intent(current, current, cancelled=True, topic_id=topic.topic_id)
        if undo:
            _log.warning("%d steps are undone: their intents were removed", len(undo))
            await self.write_intents(undo, "reassignment_orphaned")

    def _entry(self, kind: str, intents: Mapping[TopicPartition, Intent]) -> znodes.AuditEntry:
        topics: dict[str, dict[str, object]] = {}
        for name, intent in intents.items():
            rows = topics.setdefault(name.topic, {})
            rows[str(name.partition)] = {"start": intent.start, "target": intent.target}
        tasks = sorted({intent.task for intent in intents.values() if intent.task})
        return self._desk.entry(kind, {"tasks": tasks}, after=topics)

    async def on_cancel(self, event: CancelReassignment) -> None:
        """Send one partition back to its start list.

        Raises:
            NotFound: it is not being reassigned.
            StaleVersion: others keep writing its intent.

        """
        where = f"{event.name.topic}-{event.name.partition}"
        if event.name in self.agenda and not await self.cancel([event.name]):
            raise StaleVersion(f"the intent for {where} is being written by others: ask again")
        entry = self.agenda.get(event.name)
        if entry is None:
            raise NotFound(f"{where} is not being reassigned")
        event.settle(entry.intent.start)

    async def cancel(self, names: Sequence[TopicPartition]) -> bool:
        """Send partitions back to their start lists, those that are not on their way already.

        An intent that somebody has edited is read, and cancelled as it then is; False
        where it is edited again and again.
        """
        for _ in range(MAX_ATTEMPTS):
            back = {
                name: msgspec.structs.replace(entry.intent, cancelled=True)
                for name in names
                if (entry := self.agenda.get(name)) is not None and not entry.intent.cancelled
            }
            if not back or await self.write_intents(back, "reassignment_cancelled"):
                return True
        return False

    # -- steps -----------------------------------------------------------------

    async def on_wakeup(self, event: AgentWakes) -> None:
        """Write what is due (seed 1 F); what is due after that comes with the next wake-up."""
        self._is_resting = False
        due = self.agenda.due(self._image, self.limits)
        if not due:
            return
        written = await self._steps.write(due)
        self._is_resting = not written
        if written:
            self._desk.hint(AgentWakes, event.cause)
        else:
            self.hint_in(RETRY_PAUSE_S, AgentWakes)

    def _on_states(self, states: Sequence[StateSet]) -> None:
        """Note which reassignments a state is news for."""
        if len(self.agenda):
            self.agenda.mark_changed(
                TopicPartition(state.topic, state.partition) for state in states
            )

    def _look_soon(self) -> None:
        self.hint_in(LOOK_PAUSE_S, IntentsChanged)

    def hint_in(self, pause_s: float, kind: type[events.Hint]) -> None:
        """Post a hint after a pause; one of a kind at a time."""
        timer = self._timers.get(kind)
        if timer is None or timer.when() <= asyncio.get_running_loop().time():
            loop = asyncio.get_running_loop()
            self._timers[kind] = loop.call_later(pause_s, self._desk.hint, kind)


def request_of(intent: Intent) -> int:
    """Return the place of an intent in the order of requests; those by hand come first."""
    return int(intent.task) if intent.task.isdecimal() else -1


def _limit(value: int) -> int | None:
    """Return a limit, or None for the default, which is none."""
    return None if value >= INT32_MAX else value

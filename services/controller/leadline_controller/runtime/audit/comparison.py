"""Comparing the cluster with the audit after an election.

While no controller is active, nobody notices what operators change in ZooKeeper. So the
new controller compares what it has loaded with the present as the audit has it, and
records the differences (actor `external`). When they were made is not known. Past states
from the last entry of the previous controller on are therefore not certain.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import structlog

from leadline_common import znodes
from leadline_common.cause import current_cause
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.external_changes import Differences, differences
from leadline_controller.domain.history import TOPIC_DELETED, PastCluster
from leadline_controller.runtime.audit.replication import BATCH, AuditReplicator
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import ControllerEvent
from leadline_controller.runtime.engine.external_changes import ExternalChanges
from leadline_controller.runtime.ports import ControllerStore

logger = structlog.get_logger(__name__)

CATCH_UP_S = 30.0
"""How long one attempt waits for the history to have all entries."""
SERVED_S = 30.0
"""How long it waits for the brokers to have what the election gave them."""


@dataclass(frozen=True, slots=True)
class HistoryRead(ControllerEvent):
    """The history is complete up to the election; `since` is the last entry of a controller."""

    past: PastCluster
    since: int


@dataclass(eq=False)
class HistoryComparison(EventHandler):
    """Compares once in a term; without a history there is nothing to compare with."""

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    external: ExternalChanges
    replicator: AuditReplicator | None
    dispatcher: BrokerDispatcher

    async def on_elected(self) -> None:
        """Read the history beside the queue: it may be long."""
        if self.replicator is not None:
            self.run_in_background(self._read(self.replicator), "history-comparison")

    async def _read(self, replicator: AuditReplicator) -> None:
        cause = current_cause()
        await self._brokers_served()
        while not await replicator.catch_up(CATCH_UP_S):
            logger.info("comparison waits for the history")
        try:
            past = await replicator.history.past(time_ms=None, zxid=None)
            since = await replicator.history.last_before_election()
        except Exception:  # Any database may be behind it; the history must never end a term.
            logger.exception("history not compared")
            return
        self.queue.post(HistoryRead(past, since), cause)

    async def _brokers_served(self) -> None:
        """Let the brokers be told their roles first: reading the past takes as much of a core."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVED_S):
                await self.dispatcher.until(self.dispatcher.idle)

    @HistoryRead.handler
    async def on_history_read(self, event: HistoryRead) -> None:
        """Apply the entries since, compare, and record what was changed by others."""
        past, outbox = event.past, self.store.outbox
        head, _ = await outbox.extent()
        while records := await outbox.read(past.audit_id + 1, BATCH):
            for record in records:
                past.apply(record)
        if past.audit_id + 1 < head:
            logger.info("history read again: entries were trimmed meanwhile")
            await self.on_elected()
            return
        if not past.complete:
            logger.info("history not compared: it is not complete", reason=past.reason)
            return
        found = await self._confirmed(differences(past, self.image))
        if found:
            await self.external.record_differences(found, event.since)

    async def _confirmed(self, found: Differences) -> Differences:
        """Leave out topics that are there: their creation by this controller is still unknown."""
        gone = [one for one in found.changes if one.kind == TOPIC_DELETED]
        paths = [znodes.topic_path(one.resource["topic"]) for one in gone]
        nodes = await self.store.read_nodes(paths)
        unconfirmed = [
            one
            for one, node in zip(gone, nodes, strict=True)
            if node is not None and one.resource["topic"] not in self.image.topics
        ]
        changes = [one for one in found.changes if one not in unconfirmed]
        return msgspec.structs.replace(found, changes=changes)

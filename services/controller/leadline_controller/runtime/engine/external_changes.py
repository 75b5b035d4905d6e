"""Recording what others have changed in ZooKeeper, in the audit, with the actor `external`.

Whatever Leadline writes has its audit entry in the same transaction. So a node that no
entry has the transaction of was written by somebody else. This also tells an operator's
edit from a write of this controller whose answer was lost (rule R7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from leadline_common.zk.errors import RequestTooLarge
from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.domain.cluster import Change, ClusterImage, StateSet
from leadline_controller.domain.external_changes import (
    CONFIGS_CHANGED,
    STATES_CHANGED,
    Differences,
    ExternalChange,
    changed_states,
    state_row,
    suspicious_states,
    topic_changes,
    topic_gone,
)
from leadline_controller.domain.history import (
    EXTERNAL,
    TOPIC_DELETION_ORDERED,
    UNAUDITED_CHANGES,
    UNKNOWN,
)
from leadline_controller.domain.state import Tombstone
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import Outbox

logger = structlog.get_logger(__name__)

MAX_ROWS = 500
"""The most states in one entry."""


@dataclass(eq=False)
class ExternalChanges:
    """Records the changes that others made; call it before the image applies what was read."""

    outbox: Outbox
    image: ClusterImage
    writer: StateWriter
    audit: AuditLog
    _seen_tombstones: set[int] = field(default_factory=set, init=False)

    async def record_topics(self, changes: Sequence[Change]) -> None:
        """Record how topics and their configs were changed by others."""
        await self._record_unaudited(topic_changes(self.image, changes))

    async def record_gone(self, name: str) -> None:
        """Record that a topic's node is gone, unless that was ordered."""
        topic = self.image.topics[name]
        if not topic.deleting:
            await self._record(topic_gone(name, topic.topic_id))

    async def record_deletion(self, tombstone: Tombstone) -> None:
        """Record a tombstone that others wrote, unless its topic is known to be deleted."""
        topic = self.image.topics[tombstone.topic]
        if tombstone.zxid in self._seen_tombstones:
            return
        self._seen_tombstones.add(tombstone.zxid)
        audited = await self.outbox.audited([tombstone.zxid])
        if not audited.lacks(tombstone.zxid):
            return
        resource = {"topic": topic.name, "topic_id": topic.topic_id}
        await self._record(ExternalChange(TOPIC_DELETION_ORDERED, resource, None, None))

    def forget_tombstones(self, present: Iterable[Tombstone]) -> None:
        """Forget the tombstones that are not `present` any more."""
        self._seen_tombstones &= {tombstone.zxid for tombstone in present}

    async def record_configs(
        self,
        resource: Mapping[str, Any],
        before: Mapping[str, str],
        after: Mapping[str, str],
        zxid: int,
    ) -> None:
        """Record configs of the cluster or of a broker; `zxid` is 0 if their node is gone."""
        await self._record_unaudited(
            [ExternalChange(CONFIGS_CHANGED, resource, before, after, zxid)]
        )

    async def record_states(self, states: Iterable[StateSet], *, everything: bool = False) -> None:
        """Record states that others wrote.

        Without `everything`, an edit of the ISR alone is taken for the leader's: then nothing
        has to be read after a change that leaders report. A state whose entry may have been
        trimmed since is taken for the leader's, too: many thousands can change at once.
        """
        choose = changed_states if everything else suspicious_states
        found = choose(self.image, states)
        if not found:
            return
        audited = await self.outbox.audited({change.zxid for change in found})
        rows = [state_row(self.image, c) for c in found if audited.lacks(c.zxid)]
        await self._record_states(rows)

    async def record_differences(self, found: Differences, since: int) -> None:
        """Record what was changed while no controller was active.

        From the audit entry `since` on, a past state of the cluster is not certain.
        """
        logger.warning("changed by others", topics=len(found.changes), states=len(found.states))
        reason = "ZooKeeper was changed by others while no controller was active"
        after = {"since": since, "changes": len(found.changes) + len(found.states)}
        await self._record(ExternalChange(UNAUDITED_CHANGES, {}, None, after, 0, reason))
        for change in found.changes:
            await self._record(change)
        await self._record_states(found.states)

    # -- within ----------------------------------------------------------------

    async def _record_unaudited(self, changes: Sequence[ExternalChange]) -> None:
        zxids = {change.zxid for change in changes} - {0}
        audited = (await self.outbox.audited(zxids)).zxids if zxids else frozenset[int]()
        for change in changes:
            if change.zxid not in audited:
                await self._record(change)

    async def _record_states(self, rows: Sequence[StateChange]) -> None:
        for start in range(0, len(rows), MAX_ROWS):
            part = tuple(rows[start : start + MAX_ROWS])
            entry = self.audit.entry(STATES_CHANGED, {}, actor=EXTERNAL)
            await self._commit(msgspec.structs.replace(entry, changes=part))

    async def _record(self, change: ExternalChange) -> None:
        logger.warning("changed by others", kind=change.kind, **change.resource)
        entry = self.audit.entry(
            change.kind,
            change.resource,
            actor=EXTERNAL,
            reason=change.reason,
            before=change.before,
            after=change.after,
        )
        try:
            await self._commit(entry)
        except RequestTooLarge as problem:
            reason = f"the change is too large for the audit: {problem}"
            short = msgspec.structs.replace(
                entry, outcome=UNKNOWN, reason=reason, before=None, after=None
            )
            await self._commit(short)

    async def _commit(self, entry: AuditEntry) -> None:
        await self.writer.commit([], entry)

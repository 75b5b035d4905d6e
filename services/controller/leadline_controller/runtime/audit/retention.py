"""Taking audit entries out of the outbox once they are stored; the active controller's duty."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from leadline_common import znodes
from leadline_common.zk.errors import MultiFailed
from leadline_common.zk.ops import ANY_VERSION, DeleteOp
from leadline_controller.domain.history import trimmable
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler

_log = logging.getLogger(__name__)

MOST_AT_ONCE = 5_000
"""Entries deleted in one go, so that a long backlog holds up nobody."""


class OutboxRetention(EventHandler):
    """Keeps the outbox short; see `domain.history.trimmable` for what may go."""

    def __init__(self, desk: EventContext) -> None:
        self._desk = desk

    async def reconcile(self, _event: events.Reconcile) -> None:
        """Delete what every reader has stored, but for the newest."""
        settings, outbox = self._desk.configs.current(), self._desk.office.store.outbox
        keep, limit = settings.audit_outbox_keep_entries, settings.audit_outbox_max_entries
        head, present = await outbox.extent()
        if present <= keep:
            return
        gone = trimmable(
            await outbox.readers(), oldest=head - present, head=head, keep=keep, limit=limit
        )
        try:
            await self._delete(gone[:MOST_AT_ONCE])
        except MultiFailed as failure:
            _log.warning("an audit entry has been removed by somebody else: %s", failure)
            there = [audit_id for audit_id in await outbox.ids() if audit_id < gone.stop]
            await self._delete(there[:MOST_AT_ONCE])

    async def _delete(self, ids: Sequence[int]) -> None:
        await self._desk.writer.fenced(
            [DeleteOp(znodes.audit_path(audit_id), ANY_VERSION) for audit_id in ids]
        )

"""Deleting audit entries from the outbox once they are stored; done by the active controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from leadline_common import znodes
from leadline_common.zk.errors import MultiFailed
from leadline_common.zk.ops import ANY_VERSION, DeleteOp
from leadline_controller.domain.history import trimmable
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import Outbox

logger = structlog.get_logger(__name__)

MAX_DELETIONS = 5_000
"""The most entries deleted in one reconciliation, so that a backlog delays no event for long."""


@dataclass(eq=False)
class OutboxRetention(EventHandler):
    """Trims the outbox; `domain.history.trimmable` defines what may be deleted."""

    outbox: Outbox
    configs: DynamicConfigs
    writer: StateWriter
    present: int = field(default=0, init=False)
    """The number of entries in the outbox at the last reconciliation, before it trimmed them."""

    async def reconcile(self) -> None:
        """Delete what every reader has stored, except for the newest entries."""
        settings, outbox = self.configs.current(), self.outbox
        keep, limit = settings.audit_outbox_keep_entries, settings.audit_outbox_max_entries
        head, present = await outbox.extent()
        self.present = present
        if present <= keep:
            return
        stored = trimmable(
            await outbox.readers(), oldest=head - present, head=head, keep=keep, limit=limit
        )
        try:
            await self._delete(stored[:MAX_DELETIONS])
        except MultiFailed as failure:
            logger.warning("audit entry deleted by somebody else", error=str(failure))
            remaining = [audit_id for audit_id in await outbox.ids() if audit_id < stored.stop]
            await self._delete(remaining[:MAX_DELETIONS])

    async def _delete(self, ids: Sequence[int]) -> None:
        await self.writer.commit_all(
            [DeleteOp(znodes.audit_path(audit_id), ANY_VERSION) for audit_id in ids]
        )

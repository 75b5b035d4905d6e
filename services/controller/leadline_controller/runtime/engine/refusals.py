"""The audit of requests that changed nothing: recorded one by one, or only counted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import structlog

from leadline_common.access.caller import current_actor
from leadline_common.clock import Clock
from leadline_common.leader_election import TermEnded
from leadline_common.plain_json import encodable_text
from leadline_common.refusals import INTERVAL_MS, CountedRefusals, RefusalKey, RefusalSampler
from leadline_common.znodes import AuditEntry
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import ControllerRequest, Trigger
from leadline_controller.runtime.engine.publishing import AuditLog

logger = structlog.get_logger(__name__)

MAX_REASON = 2_000
"""Characters of a recorded reason; a message may quote what the request contained."""
_WORD_STARTS = re.compile(r"(?<!^)(?=[A-Z])")


class RefusalsCounted(Trigger):
    """An interval has ended in which refusals were counted: record their numbers."""


@dataclass(eq=False)
class RefusalAudit(EventHandler):
    """Records refused requests and dry runs.

    It never fails a request, and ends a term only if another controller was elected.
    """

    audit: AuditLog
    queue: EventQueue
    clock: Clock
    sampler: RefusalSampler = field(default_factory=RefusalSampler)

    async def record(
        self, request: ControllerRequest[Any], outcome: str, reason: str = "", code: int = 0
    ) -> None:
        """Record a request that has changed nothing, or count it.

        Raises:
            TermEnded: another controller was elected.

        """
        kind = _WORD_STARTS.sub("_", type(request).__name__).lower()
        if not self.sampler.admit(RefusalKey(kind, outcome, code), self.clock.monotonic_ms()):
            self.queue.trigger_later(INTERVAL_MS / 1000, RefusalsCounted)
            return
        reason = encodable_text(reason[:MAX_REASON])
        try:
            entry = self.audit.entry(
                kind, request.resource, actor=current_actor(), outcome=outcome, reason=reason
            )
        except Exception:  # the resource is computed from the request
            logger.exception("refused request has no resource", kind=kind)
            entry = self.audit.entry(
                kind, {}, actor=current_actor(), outcome=outcome, reason=reason
            )
        await self._write(entry)

    @RefusalsCounted.handler
    async def on_counted(self) -> None:
        """Record what was counted, in one entry for each kind of request and code.

        Raises:
            TermEnded: another controller was elected.

        """
        for counted in self.sampler.take(self.clock.monotonic_ms()):
            await self._write(self._summary(counted))

    def _summary(self, counted: CountedRefusals) -> AuditEntry:
        (kind, outcome, code), count, since_ms = counted
        since = self.clock.wall_ms() - (self.clock.monotonic_ms() - since_ms)
        reason = f"{count} more requests like this were not recorded one by one"
        after = {"count": count, "error_code": code, "since": since}
        return self.audit.entry(
            kind, {}, actor=current_actor(), outcome=outcome, reason=reason, after=after
        )

    async def _write(self, entry: AuditEntry) -> None:
        try:
            await self.audit.record(entry)
        except TermEnded:
            raise
        except Exception as error:  # not even a fault of the audit may end the term
            logger.info(
                "audit entry not written", kind=entry.kind, outcome=entry.outcome, error=repr(error)
            )

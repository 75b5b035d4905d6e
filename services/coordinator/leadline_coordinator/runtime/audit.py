"""What the audit is told of groups: what operators did to them, and what was refused.

What consumers do by themselves, joining, committing, leaving, is no change of the
cluster: it happens all the time, and is in the logs and metrics.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from leadline_client.errors import LeadlineError
from leadline_common.cause import current_cause, new_cause
from leadline_common.leader_election import TermEnded
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.records import Partition
from leadline_coordinator.runtime.context import CoordinatorContext

_log = logging.getLogger(__name__)

OPERATOR: Final = "operator"
MOST_TOLD: Final = 400
"""Offsets that an entry names: it is in one transaction with them."""


def entry_about(
    context: CoordinatorContext,
    kind: str,
    group: str,
    *,
    actor: str = OPERATOR,
    member: str | None = None,
    **members: Any,
) -> AuditEntry:
    """Return an entry about a group; `members` are those of `AuditEntry`."""
    about = {"group": group} | ({} if member is None else {"member": member})
    cause, now_ms = current_cause() or new_cause(), context.clock.wall_ms()
    return AuditEntry(now_ms, cause, actor, kind, resource=about, **members)


def offsets_by_topic(offsets: Mapping[Partition, int | None]) -> dict[str, Any]:
    """Return offsets as an entry shows them: the first ones, and how many there are."""
    topics: dict[str, dict[str, int | None]] = {}
    for topic, number in sorted(offsets)[:MOST_TOLD]:
        topics.setdefault(topic, {})[str(number)] = offsets[topic, number]
    return {"offsets": topics, "total": len(offsets)}


async def tell(context: CoordinatorContext, entry: AuditEntry) -> None:
    """Write an entry about what has changed nothing in ZooKeeper; do without if need be."""
    try:
        await context.store.tell(context.term, entry)
    except (TermEnded, ZkError) as problem:
        _log.info("the audit is not told of %s: %s", entry.kind, problem)


@asynccontextmanager
async def refusals_told(context: CoordinatorContext, kind: str, group: str) -> AsyncIterator[None]:
    """Tell of a request of an operator that is refused within the block."""
    try:
        yield
    except LeadlineError as refusal:
        if refusal.outcome == "refused":
            told = entry_about(context, kind, group, outcome="refused", reason=refusal.message)
            await tell(context, told)
        raise

"""Audit entries about groups: what operators did to them, and what was refused.

Consumers that join, commit or leave do not change the cluster, and do so all the time.
They appear in logs and metrics instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from leadline_client.errors import LeadlineError
from leadline_client.wire import TopicPartition
from leadline_common.access.caller import current_actor
from leadline_common.cause import current_cause, new_cause
from leadline_common.leader_election import TermEnded
from leadline_common.refusals import RefusalKey
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import AuditEntry
from leadline_coordinator.runtime.context import CoordinatorContext

logger = structlog.get_logger(__name__)

MAX_OFFSETS: Final = 400
"""Offsets that an entry lists: it is written in one transaction with them."""


def group_entry(
    context: CoordinatorContext,
    kind: str,
    group: str,
    *,
    actor: str = "",
    member: str | None = None,
    **members: Any,
) -> AuditEntry:
    """Return an audit entry about a group; `members` are members of `AuditEntry`.

    Without an `actor`, it is whoever sent the request.
    """
    resource = {"group": group} | ({} if member is None else {"member": member})
    cause, now_ms = current_cause() or new_cause(), context.clock.wall_ms()
    return AuditEntry(now_ms, cause, actor or current_actor(), kind, resource=resource, **members)


def offsets_by_topic(offsets: Mapping[TopicPartition, int | None]) -> dict[str, Any]:
    """Return offsets in the form of an entry: the first `MAX_OFFSETS`, and the total."""
    topics: dict[str, dict[str, int | None]] = {}
    for topic_partition in sorted(offsets)[:MAX_OFFSETS]:
        partitions = topics.setdefault(topic_partition.topic, {})
        partitions[str(topic_partition.partition)] = offsets[topic_partition]
    return {"offsets": topics, "total": len(offsets)}


async def write_audit(context: CoordinatorContext, entry: AuditEntry) -> None:
    """Write an entry that belongs to no write; a failure is only logged."""
    try:
        await context.store.groups.write_audit(context.term, entry)
    except (TermEnded, ZkError) as problem:
        logger.info("could not write an audit entry", kind=entry.kind, reason=str(problem))


def is_recorded(context: CoordinatorContext, kind: str, outcome: str, code: int = 0) -> bool:
    """Return whether to record a request that changed nothing; otherwise it is counted."""
    key = RefusalKey(kind, outcome, code)
    return context.refusals.admit(key, context.clock.monotonic_ms())


@asynccontextmanager
async def refusals_audited(
    context: CoordinatorContext, kind: str, group: str
) -> AsyncIterator[None]:
    """Write or count an audit entry if an operator's request is refused within the block."""
    try:
        yield
    except LeadlineError as refusal:
        is_refusal = refusal.outcome == "refused"
        if is_refusal and is_recorded(context, kind, "refused", refusal.code):
            reason = refusal.message
            entry = group_entry(context, kind, group, outcome="refused", reason=reason)
            await write_audit(context, entry)
        raise


async def write_counted_refusals(context: CoordinatorContext) -> None:
    """Write what was counted since the last call, in one entry for each kind and code."""
    now_ms, wall_ms = context.clock.monotonic_ms(), context.clock.wall_ms()
    for (kind, outcome, code), number, since_ms in context.refusals.take(now_ms):
        entry = AuditEntry(
            wall_ms,
            new_cause(),
            current_actor(),
            kind,
            outcome,
            f"{number} more requests like this were not recorded one by one",
            after={"count": number, "error_code": code, "since": wall_ms - (now_ms - since_ms)},
        )
        await write_audit(context, entry)

"""The audit API, served from this controller's history database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict

import msgspec

from leadline_client.errors import NotFound
from leadline_common.access.caller import require_on_cluster
from leadline_common.access.rights import Action
from leadline_common.api import audit as models
from leadline_common.api.metadata import MetadataRow
from leadline_common.api.tasks import PastTask, PastTasks
from leadline_common.audit_export import encode_lines, exported, exported_change
from leadline_controller.domain.history import (
    AuditQuery,
    AuditRecord,
    PartitionChange,
    PastCluster,
    TaskRecord,
)
from leadline_controller.runtime.service import ControllerService

_EXPORT_PAGE = 500


class AuditEndpoints:
    """Implements `leadline_common.api.audit.AuditAdministration`."""

    _controller: ControllerService

    async def audit(
        self, wanted: models.AuditFilter, cursor: int | None, order: str, page_size: int
    ) -> models.AuditPage:
        """Return a page of entries."""
        history = await self._controller.history()
        found = await history.find(
            _query(wanted), cursor=cursor, newest_first=order == "newest", limit=page_size + 1
        )
        page = found[:page_size]
        return models.AuditPage(
            entries=[_entry(record, models.CHANGES_SHOWN) for record in page],
            next_cursor=str(page[-1].id) if len(found) > page_size else None,
        )

    async def audit_entry(self, audit_id: int) -> models.AuditEntryBody:
        """Return one entry with all its changes."""
        history = await self._controller.history()
        found = await history.find(AuditQuery(), cursor=audit_id - 1, newest_first=False, limit=1)
        if not found or found[0].id != audit_id:
            raise NotFound(f"audit entry {audit_id} does not exist")
        return _entry(found[0], len(found[0].entry.changes))

    async def export_audit(
        self, after: int, before: int | None = None, limit: int | None = None
    ) -> models.Export:
        """Export up to `limit` entries between two ids, both exclusive, as lines of JSON."""
        history = await self._controller.history()
        oldest, head = await history.ids()
        last = head if before is None else min(head, before - 1)

        async def lines() -> AsyncIterator[bytes]:
            cursor, left = after, limit
            while cursor < last and left != 0:
                wanted = _EXPORT_PAGE if left is None else min(left, _EXPORT_PAGE)
                found = await history.find(
                    AuditQuery(), cursor=cursor, newest_first=False, limit=wanted
                )
                page = [record for record in found if record.id <= last]
                if not page:
                    return
                yield encode_lines(exported(r.id, r.zxid, r.entry) for r in page)
                cursor = page[-1].id
                left = None if left is None else left - len(page)

        return models.Export(lines(), head, oldest)

    async def partition_history(
        self, topic: str, partition: int, after: int, page_size: int
    ) -> models.PartitionHistory:
        """Return the changes of a partition."""
        history = await self._controller.history()
        found = await history.partition_history(
            topic, partition, after_id=after, limit=page_size + 1
        )
        page = found[:page_size]
        return models.PartitionHistory(
            topic=topic,
            partition=partition,
            changes=[_event(change) for change in page],
            next_cursor=str(page[-1].audit_id) if len(found) > page_size else None,
        )

    async def past_tasks(self, limit: int) -> PastTasks:
        """Return the latest tasks, including finished ones."""
        history = await self._controller.history()
        found = await history.tasks(limit)
        return PastTasks(tasks=[_task(record) for record in found])

    async def past_cluster(self, at: int | None, version: int | None) -> models.PastClusterBody:
        """Return the cluster at a past time or version."""
        require_on_cluster(Action.MONITOR)
        history = await self._controller.history()
        past = await history.past(time_ms=at, zxid=version)
        if past.audit_id < 0:
            raise NotFound("the history does not go back that far")
        return _past(past)


def _task(record: TaskRecord) -> PastTask:
    known = msgspec.structs.asdict(record)
    return PastTask.model_validate(known | {"finished_at": record.finished_at or None})


def _query(wanted: models.AuditFilter) -> AuditQuery:
    members = asdict(wanted)
    return AuditQuery(since_ms=members.pop("since"), until_ms=members.pop("until"), **members)


def _entry(record: AuditRecord, changes_shown: int) -> models.AuditEntryBody:
    entry = record.entry
    shown = msgspec.structs.replace(entry, changes=entry.changes[:changes_shown])
    members = msgspec.to_builtins(exported(record.id, record.zxid, shown))
    return models.AuditEntryBody(**members, changes_total=len(entry.changes))


def _event(found: PartitionChange) -> models.PartitionEvent:
    entry = msgspec.structs.asdict(found)
    change = msgspec.to_builtins(exported_change(entry.pop("change")))
    why = entry.pop("entry_reason")
    return models.PartitionEvent.model_validate(entry | change | {"why": why})


def _past(past: PastCluster) -> models.PastClusterBody:
    return models.PastClusterBody(
        version=past.zxid,
        time=past.time,
        audit_id=past.audit_id,
        controller=past.controller,
        brokers=past.brokers,
        topics={
            name: models.PastTopicBody(
                topic_id=topic.topic_id,
                partitions=[
                    MetadataRow(number, p.leader, p.leader_epoch, list(p.isr), list(p.replicas))
                    for number, p in sorted(topic.partitions.items())
                ],
            )
            for name, topic in past.topics.items()
        },
        complete=past.complete,
        reason=past.reason or None,
    )

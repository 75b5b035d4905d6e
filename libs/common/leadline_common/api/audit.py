"""The audit: what changed, when, by whom, why; and the cluster as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from leadline_client.errors import HistoryUnavailable, InvalidRequest, NoController, NotFound
from leadline_common.api.models import example
from leadline_common.api.past import PastCluster, PastTasks
from leadline_common.api.routes import TopicName, answering_administration
from leadline_common.audit_export import HEAD_HEADER, OLDEST_HEADER
from leadline_common.http.errors import error_responses
from leadline_common.http.ndjson import documented_lines, lines_answer
from leadline_common.settings.fields import INT32_MAX, INT64_MAX

TAG = "audit"
TAGS = ({"name": TAG, "description": "What changed, when, by whom and why; the past."},)

_ROLES = {"leader": 2, "leader_epoch": 6, "isr": [2, 3]}
_BEFORE = {"leader": 1, "leader_epoch": 5, "isr": [1, 2, 3]}
_CHANGE = {
    "topic": "orders",
    "partition": 0,
    "reason": "isr",
    "before": _BEFORE,
    "after": _ROLES,
    "state_version": 9,
}
_ENTRY = {
    "id": 5120,
    "zxid": 8589934601,
    "time": 1767225600000,
    "cause": "broker-1-4-gone",
    "actor": "controller-1",
    "kind": "broker_change",
    "outcome": "done",
    "reason": "failed [1]",
    "resource": {},
    "before": None,
    "after": None,
    "zk": {},
    "changes": [_CHANGE],
    "changes_total": 1,
}
MAX_PAGE = 1_000
CHANGES_SHOWN = 100


class Roles(BaseModel):
    """Leader (-1: none), leader epoch and ISR of a partition."""

    leader: int
    leader_epoch: int
    isr: list[int]


class AuditChange(BaseModel):
    """What an entry changed of one partition; `before` is null where the state was created."""

    topic: str
    partition: int
    reason: str
    before: Roles | None
    after: Roles
    state_version: int = Field(description="Data version of the state node after the change")


class AuditEntry(BaseModel):
    """One entry. `time` in Unix ms; `zxid` is the ZooKeeper transaction of the change."""

    model_config = example(_ENTRY)

    id: int = Field(description="Counts entries without gaps")
    zxid: int
    time: int
    cause: str = Field(description="Travels from the request through log lines to this entry")
    actor: str
    kind: str
    outcome: str
    reason: str
    resource: dict[str, Any]
    before: Any
    after: Any
    zk: dict[str, int] = Field(description="Other paths written, with their new data versions")
    changes: list[AuditChange] = Field(description=f"The first {CHANGES_SHOWN} of them")
    changes_total: int


class AuditPage(BaseModel):
    """Entries in the order wanted; `next_cursor` gives the page after, and is null at the end."""

    model_config = example({"entries": [_ENTRY], "next_cursor": "5120"})

    entries: list[AuditEntry]
    next_cursor: str | None


class PartitionEvent(BaseModel):
    """One change of a partition's leader or ISR, with its reason and cause."""

    audit_id: int
    zxid: int
    time: int
    cause: str
    actor: str
    kind: str
    reason: str
    why: str = Field(description="What the entry says of the whole event")
    before: Roles | None
    after: Roles
    state_version: int


class PartitionHistory(BaseModel):
    """Every change of a partition, oldest first."""

    model_config = example(
        {
            "topic": "orders",
            "partition": 0,
            "changes": [
                {
                    "audit_id": 5120,
                    "zxid": 8589934601,
                    "time": 1767225600000,
                    "cause": "broker-1-4-gone",
                    "actor": "controller-1",
                    "kind": "broker_change",
                    "reason": "isr",
                    "why": "failed [1]",
                    "before": _BEFORE,
                    "after": _ROLES,
                    "state_version": 9,
                }
            ],
            "next_cursor": None,
        }
    )

    topic: str
    partition: int
    changes: list[PartitionEvent]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted, as query parameters; all that are given must match."""

    actor: Annotated[str | None, Query(description="Who did it", examples=["operator"])] = None
    kind: Annotated[str | None, Query(description="What kind of change")] = None
    cause: Annotated[str | None, Query(description="The cause id of a request or event")] = None
    outcome: Annotated[str | None, Query(description="`done`, `refused`, `dry_run`, …")] = None
    topic: Annotated[str | None, Query(description="Entries about, or changing, a topic")] = None
    partition: Annotated[
        int | None, Query(ge=0, le=INT32_MAX, description="Of that topic, which must be named")
    ] = None
    broker: Annotated[
        int | None, Query(ge=0, le=INT32_MAX, description="Entries about a broker")
    ] = None
    group: Annotated[str | None, Query(description="Entries about a consumer group")] = None
    config: Annotated[str | None, Query(description="`cluster`: entries about its settings")] = None
    since: Annotated[
        int | None, Query(ge=0, le=INT64_MAX, description="From this Unix time on, in ms")
    ] = None
    until: Annotated[
        int | None, Query(ge=0, le=INT64_MAX, description="Before this Unix time, in ms")
    ] = None

    def __post_init__(self) -> None:
        """Refuse a partition of no topic.

        Raises:
            InvalidRequest: the topic is not named.

        """
        if self.partition is not None and self.topic is None:
            raise InvalidRequest("partition: name its topic, too")


@dataclass(frozen=True, slots=True)
class Export:
    """An export under way: NDJSON bytes, the newest and the oldest id that are stored."""

    lines: AsyncIterator[bytes]
    head: int
    oldest: int


class AuditAdministration(Protocol):
    """What a controller answers of the past."""

    async def past_tasks(self, limit: int) -> PastTasks:
        """Return the latest tasks, those that are long over too."""

    async def audit(
        self, wanted: AuditFilter, cursor: int | None, order: str, page_size: int
    ) -> AuditPage:
        """Return a page of entries."""

    async def audit_entry(self, audit_id: int) -> AuditEntry:
        """Return one entry with all its changes."""

    async def export_audit(
        self, after: int, before: int | None = None, limit: int | None = None
    ) -> Export:
        """Return the entries between two ids, at most so many of them, as lines."""

    async def partition_history(
        self, topic: str, partition: int, after: int, page_size: int
    ) -> PartitionHistory:
        """Return the changes of a partition."""

    async def past_cluster(self, at: int | None, version: int | None) -> PastCluster:
        """Return the cluster as it was."""


Answering = Annotated[AuditAdministration, Depends(answering_administration)]
Cursor = Annotated[
    str | None,
    Query(pattern=r"^\d{1,18}$", description="`next_cursor` of the page before", max_length=18),
]
PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Entries in a page, at most")]
_ERRORS = error_responses(NoController, HistoryUnavailable)
AfterId = Annotated[int, Query(ge=-1, le=INT64_MAX, description="Only entries beyond this id")]
EXPORTED = documented_lines(
    '{"id":5120,"zxid":8589934601,"time":1767225600000,"cause":"broker-1-4-gone", …}\n',
    "One entry on each line, in order of ids",
    {
        HEAD_HEADER: {
            "description": "The newest id that is stored; -1 for none",
            "schema": {"type": "integer"},
        },
        OLDEST_HEADER: {
            "description": "The oldest id that is still stored",
            "schema": {"type": "integer"},
        },
    },
)


def export_answer(request: Request, export: Export) -> Response:
    """Answer with the lines of an export."""
    headers = {HEAD_HEADER: str(export.head), OLDEST_HEADER: str(export.oldest)}
    return lines_answer(request, export.lines, headers)


def add_routes(router: APIRouter) -> None:
    """Add the routes of this area."""
    _add_entries(router)
    _add_export(router)
    _add_past(router)


def _add_entries(router: APIRouter) -> None:
    @router.get("/audit", tags=[TAG], summary="What changed, and why?", responses=_ERRORS)
    async def read_audit(
        answering: Answering,
        wanted: Annotated[AuditFilter, Depends()],
        order: Annotated[Literal["newest", "oldest"], Query(description="Which come first")] = (
            "newest"
        ),
        cursor: Cursor = None,
        page_size: PageSize = 100,
    ) -> AuditPage:
        """List audit entries, page by page.

        The answer holds everything that was written before the request, also where it
        was another controller's doing. Refused and dry-run requests are entries too.
        """
        place = None if cursor is None else int(cursor)
        return await answering.audit(wanted, place, order, page_size)


def _add_export(router: APIRouter) -> None:
    @router.get(
        "/audit/export",
        tags=[TAG],
        summary="The whole audit, for other programs",
        response_class=StreamingResponse,
        responses=EXPORTED | _ERRORS,
    )
    async def export_audit(request: Request, answering: Answering, after: AfterId = -1) -> Response:
        """Stream every entry beyond an id, each with all its changes, as lines of JSON.

        An interrupted export goes on with `after` set to the last id received.
        """
        return export_answer(request, await answering.export_audit(after))

    @router.get(
        "/audit/{audit_id}",
        tags=[TAG],
        summary="One audit entry, whole",
        responses=_ERRORS | error_responses(NotFound),
    )
    async def read_audit_entry(
        answering: Answering,
        audit_id: Annotated[
            int, Path(ge=0, le=INT32_MAX, description="The entry's id", examples=[0])
        ],
    ) -> AuditEntry:
        """Read an entry with all its changes, not only the first ones."""
        return await answering.audit_entry(audit_id)


def _add_past(router: APIRouter) -> None:
    @router.get("/tasks/history", tags=[TAG], summary="Every task so far", responses=_ERRORS)
    async def read_past_tasks(
        answering: Answering,
        limit: Annotated[int, Query(ge=1, le=10_000, description="How many, the newest")] = 100,
    ) -> PastTasks:
        """List tasks from the history, newest first: also those that the cluster has forgotten."""
        return await answering.past_tasks(limit)

    @router.get(
        "/topics/{topic}/partitions/{partition}/history",
        tags=[TAG],
        summary="Why did this partition's leader change?",
        responses=_ERRORS,
    )
    async def read_partition_history(
        answering: Answering,
        topic: TopicName,
        partition: Annotated[
            int, Path(ge=0, le=INT32_MAX, description="The partition's number", examples=[0])
        ],
        cursor: Cursor = None,
        page_size: PageSize = MAX_PAGE,
    ) -> PartitionHistory:
        """List every change of a partition's leader and ISR, oldest first.

        Each names its reason (`isr`, `preferred`, `unclean`, …), its cause, what was
        before and after, and the version of the state node. The history of a deleted
        topic stays readable; a partition that never was has none.
        """
        after = -1 if cursor is None else int(cursor)
        return await answering.partition_history(topic, partition, after, page_size)

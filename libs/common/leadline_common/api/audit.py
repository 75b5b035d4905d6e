"""The audit: every change with its time, actor and reason, and the past of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from fastapi import Depends, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from leadline_client.errors import HistoryUnavailable, InvalidRequest, NotFound
from leadline_common.api.metadata import MetadataTopic
from leadline_common.api.models import PartitionItem, example
from leadline_common.api.routes import (
    Limit,
    TopicName,
    add_declared_routes,
    get_administration,
    read_errors,
    route,
)
from leadline_common.api.tasks import PastTasks
from leadline_common.audit_export import HEAD_HEADER, OLDEST_HEADER
from leadline_common.http.ndjson import ndjson_documentation, ndjson_response
from leadline_common.http.router import ServiceRouter
from leadline_common.settings.fields import INT32_MAX, INT64_MAX

TAG = "audit"

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


class AuditChange(PartitionItem):
    """The change of one partition; `before` is null if the partition was created."""

    reason: str
    before: Roles | None
    after: Roles
    state_version: int = Field(description="Data version of the state node after the change")


class AuditEntryBody(BaseModel):
    """An audit entry. `time` in Unix ms; `zxid` is the ZooKeeper transaction of the change."""

    model_config = example(_ENTRY)

    id: int = Field(description="Counts entries without gaps")
    zxid: int
    time: int
    cause: str = Field(description="The cause id of the request, also in log lines")
    actor: str
    kind: str
    outcome: str
    reason: str
    resource: dict[str, Any]
    before: Any
    after: Any
    zk: dict[str, int] = Field(description="Other znodes written, with their new data versions")
    changes: list[AuditChange] = Field(description=f"The first {CHANGES_SHOWN} of them")
    changes_total: int


class AuditPage(BaseModel):
    """A page of audit entries; `next_cursor` is null on the last page."""

    model_config = example({"entries": [_ENTRY], "next_cursor": "5120"})

    entries: list[AuditEntryBody]
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
    why: str = Field(description="The reason of the whole audit entry")
    before: Roles | None
    after: Roles
    state_version: int


class PartitionHistory(PartitionItem):
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

    changes: list[PartitionEvent]
    next_cursor: str | None


class PastTopicBody(MetadataTopic):
    """A past topic; rows as in the metadata: [partition, leader, leader epoch, ISR, replicas]."""


class PastClusterBody(BaseModel):
    """The cluster after the last transaction up to the requested time or version."""

    model_config = example(
        {
            "version": 8589934601,
            "time": 1767225600000,
            "audit_id": 5120,
            "controller": 1,
            "brokers": [2, 3],
            "topics": {
                "orders": {
                    "topic_id": "b1946ac92492d2347c6235b4d2611184",
                    "partitions": [[0, 2, 6, [2, 3], [1, 2, 3]]],
                }
            },
            "complete": True,
            "reason": None,
        }
    )

    version: int = Field(description="The zxid of that ZooKeeper transaction")
    time: int = Field(description="Its time, in Unix ms")
    audit_id: int
    controller: int | None
    brokers: list[int] | None = Field(description="Live brokers; null if they are not known")
    topics: dict[str, PastTopicBody]
    complete: bool = Field(
        description="False if audit entries are missing (`history_gap`), and with them changes, "
        "or if ZooKeeper was changed by others at an unknown time"
    )
    reason: str | None = Field(description="Why it is not complete; null if it is")


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects audit entries by query parameters; an entry must match all that are given."""

    actor: Annotated[
        str | None, Query(description="Who made the change", examples=["operator"])
    ] = None
    kind: Annotated[str | None, Query(description="The kind of change")] = None
    cause: Annotated[str | None, Query(description="The cause id of a request or event")] = None
    outcome: Annotated[str | None, Query(description="`done`, `refused`, `dry_run`, …")] = None
    topic: Annotated[str | None, Query(description="Entries about a topic, or changing it")] = None
    partition: Annotated[
        int | None, Query(ge=0, le=INT32_MAX, description="A partition; requires `topic`")
    ] = None
    broker: Annotated[
        int | None, Query(ge=0, le=INT32_MAX, description="Entries about a broker")
    ] = None
    group: Annotated[str | None, Query(description="Entries about a consumer group")] = None
    config: Annotated[
        str | None, Query(description="`cluster`: entries about the cluster's settings")
    ] = None
    since: Annotated[
        int | None, Query(ge=0, le=INT64_MAX, description="The earliest time, in Unix ms")
    ] = None
    until: Annotated[
        int | None,
        Query(
            ge=0, le=INT64_MAX, description="The time before which entries were written, Unix ms"
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check that a partition comes with its topic.

        Raises:
            InvalidRequest: there is a partition and no topic.

        """
        if self.partition is not None and self.topic is None:
            raise InvalidRequest("partition: requires the topic as well")


@dataclass(frozen=True, slots=True)
class Export:
    """A running export: NDJSON bytes, and the newest and the oldest stored id."""

    lines: AsyncIterator[bytes]
    head: int
    oldest: int


AuditId = Annotated[int, Path(ge=0, le=INT32_MAX, description="The entry's id", examples=[0])]


class AuditAdministration(Protocol):
    """What a controller answers about the audit and the past."""

    @route(
        "GET /tasks/history",
        "List past tasks",
        HistoryUnavailable,
        name="read_past_tasks",
        defaults={"limit": 100},
    )
    async def past_tasks(self, limit: Limit) -> PastTasks:
        """List tasks from the audit, newest first, including those no longer in ZooKeeper."""

    async def audit(
        self, wanted: AuditFilter, cursor: int | None, order: str, page_size: int
    ) -> AuditPage:
        """Return a page of audit entries."""

    @route(
        "GET /audit/{audit_id}",
        "Get an audit entry",
        HistoryUnavailable,
        NotFound,
        name="read_audit_entry",
    )
    async def audit_entry(self, audit_id: AuditId) -> AuditEntryBody:
        """Return an audit entry with all its changes."""

    async def export_audit(
        self, after: int, before: int | None = None, limit: int | None = None
    ) -> Export:
        """Return at most `limit` entries between two ids, both exclusive, as lines."""

    async def partition_history(
        self, topic: str, partition: int, after: int, page_size: int
    ) -> PartitionHistory:
        """Return a page of the changes of a partition."""

    async def past_cluster(self, at: int | None, version: int | None) -> PastClusterBody:
        """Return the cluster at a time in Unix ms, or at a metadata version."""


Controller = Annotated[AuditAdministration, Depends(get_administration)]
Cursor = Annotated[
    str | None,
    Query(pattern=r"^\d{1,18}$", description="`next_cursor` of the previous page", max_length=18),
]
PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Maximum entries in a page")]
_ERRORS = read_errors(HistoryUnavailable)
AfterId = Annotated[
    int, Query(ge=-1, le=INT64_MAX, description="Only entries with a higher id than this")
]
EXPORTED = ndjson_documentation(
    '{"id":5120,"zxid":8589934601,"time":1767225600000,"cause":"broker-1-4-gone", …}\n',
    "One audit entry on each line, in order of ids",
    {
        HEAD_HEADER: "The newest stored id; -1 if there is none",
        OLDEST_HEADER: "The oldest id that is still stored",
    },
)


def export_answer(request: Request, export: Export) -> Response:
    """Return the response that streams an export."""
    headers = {HEAD_HEADER: str(export.head), OLDEST_HEADER: str(export.oldest)}
    return ndjson_response(request, export.lines, headers)


def add_routes(router: ServiceRouter) -> None:
    """Add the routes of the audit."""
    _add_entries(router)
    add_declared_routes(router, AuditAdministration, TAG)
    _add_past(router)


def _add_entries(router: ServiceRouter) -> None:
    @router.get("/audit", tags=[TAG], summary="List audit entries", responses=_ERRORS)
    async def read_audit(
        controller: Controller,
        wanted: Annotated[AuditFilter, Depends()],
        order: Annotated[
            Literal["newest", "oldest"], Query(description="Which entries come first")
        ] = "newest",
        cursor: Cursor = None,
        page_size: PageSize = 100,
    ) -> AuditPage:
        """List audit entries page by page.

        The answer includes every entry that any controller wrote before the request.
        Refused requests and dry runs have entries, too.
        """
        position = None if cursor is None else int(cursor)
        return await controller.audit(wanted, position, order, page_size)

    @router.get(
        "/audit/export",
        tags=[TAG],
        summary="Export the audit",
        response_class=StreamingResponse,
        responses=EXPORTED | _ERRORS,
    )
    async def export_audit(
        request: Request, controller: Controller, after: AfterId = -1
    ) -> Response:
        """Stream every audit entry after an id, with all its changes, as lines of JSON.

        To resume an interrupted export, set `after` to the last id received.
        """
        return export_answer(request, await controller.export_audit(after))


def _add_past(router: ServiceRouter) -> None:
    @router.get(
        "/topics/{topic}/partitions/{partition}/history",
        tags=[TAG],
        summary="List the leader and ISR changes of a partition",
        responses=_ERRORS,
    )
    async def read_partition_history(
        controller: Controller,
        topic: TopicName,
        partition: Annotated[
            int, Path(ge=0, le=INT32_MAX, description="The partition's number", examples=[0])
        ],
        cursor: Cursor = None,
        page_size: PageSize = MAX_PAGE,
    ) -> PartitionHistory:
        """List every change of a partition's leader and ISR, oldest first.

        Each change has its reason (`isr`, `preferred`, `unclean`, …), its cause, the state
        before and after, and the version of the state node. The history of a deleted topic
        stays readable; that of a partition that never existed is empty.
        """
        after = -1 if cursor is None else int(cursor)
        return await controller.partition_history(topic, partition, after, page_size)

"""The cluster as tables, for programs: Spark, spreadsheets, whatever reads lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from leadline_client.errors import HistoryUnavailable, NoController
from leadline_common.api.audit import EXPORTED, AfterId, Export, export_answer
from leadline_common.api.models import example
from leadline_common.api.routes import answering_administration
from leadline_common.export_tables import MAX_ENTRIES, VERSION_HEADER, StateTable
from leadline_common.http.errors import error_responses
from leadline_common.http.ndjson import documented_lines, lines_answer
from leadline_common.settings.fields import INT64_MAX

TAG = "export"
TAGS = ({"name": TAG, "description": "The cluster as tables: one JSON object on each line."},)


class AuditHead(BaseModel):
    """How far the audit reaches; -1 and null where nothing is stored."""

    model_config = example({"oldest": 0, "head": 5120, "head_time": 1767225600000})

    oldest: int = Field(description="The oldest id that is stored: those before it are gone")
    head: int = Field(description="The newest id")
    head_time: int | None = Field(description="When that was written, in Unix ms")


@dataclass(frozen=True, slots=True)
class TableExport:
    """A table under way: NDJSON bytes, and the metadata version that all rows are of."""

    lines: AsyncIterator[bytes]
    version: int


class ExportAdministration(Protocol):
    """What a controller exports."""

    async def audit_head(self) -> AuditHead:
        """Tell how far the audit reaches."""

    async def export_audit(
        self, after: int, before: int | None = None, limit: int | None = None
    ) -> Export:
        """Return the entries between two ids, at most so many of them, as lines."""

    def export_table(self, table: StateTable) -> TableExport:
        """Return a table of the present."""


Answering = Annotated[ExportAdministration, Depends(answering_administration)]

_PARTITION_LINE = (
    '{"metadata_version":8589934601,"topic":"orders","topic_id":"b1946ac92492d2347c6235b4d2611184"'
    ',"partition":0,"leader":2,"leader_epoch":5,"isr":[2,3],"replicas":[1,2,3],"eligible":[],'
    '"min_insync_replicas":2}\n'
)


_VERSION = {
    VERSION_HEADER: {
        "description": "The metadata version that the rows are of",
        "schema": {"type": "integer"},
    }
}
_TABLE = documented_lines(_PARTITION_LINE, "One row on each line; no rows, no lines", _VERSION)


def add_routes(router: APIRouter) -> None:
    """Add the routes of this area."""
    _add_audit(router)
    _add_state(router)


def _add_audit(router: APIRouter) -> None:
    errors = error_responses(NoController, HistoryUnavailable)

    @router.get(
        "/export/audit/head", tags=[TAG], summary="How far the audit reaches", responses=errors
    )
    async def read_audit_head(answering: Answering) -> AuditHead:
        """Tell the oldest and the newest id: everything written before the request is counted.

        Entries are only ever added, and deleted from the oldest on. So ids from `oldest`
        to `head` are a snapshot that can be read in ranges, side by side; a reader that
        stands before `oldest` has missed entries.
        """
        return await answering.audit_head()

    @router.get(
        "/export/audit",
        tags=[TAG],
        summary="A range of the audit",
        response_class=StreamingResponse,
        responses=EXPORTED | errors,
    )
    async def export_audit_range(
        request: Request,
        answering: Answering,
        after: AfterId = -1,
        before: Annotated[
            int | None,
            Query(ge=0, le=INT64_MAX, description="Only entries before this id; null: to the head"),
        ] = None,
        limit: Annotated[
            int, Query(ge=1, le=MAX_ENTRIES, description="How many entries, the oldest")
        ] = MAX_ENTRIES,
    ) -> Response:
        """Send entries with all their changes, ascending, as `GET /v1/audit/export` does.

        The next range goes on with `after` set to the last id received.
        """
        return export_answer(request, await answering.export_audit(after, before, limit))


def _add_state(router: APIRouter) -> None:
    @router.get(
        "/export/{table}",
        tags=[TAG],
        summary="A table of the present",
        response_class=StreamingResponse,
        responses=_TABLE | error_responses(NoController),
    )
    async def export_table(
        request: Request,
        answering: Answering,
        table: Annotated[
            StateTable,
            Path(
                description="Which table; `groups` is to be had of the coordinator, which any "
                "broker names (`POST /v1/consult`)",
                examples=["partitions"],
            ),
        ],
    ) -> Response:
        """Send all rows of one snapshot, each with the `metadata_version` that it is of.

        `partitions` shows the example's members, and `brokers` and `reassignments` show
        those of `GET /v1/brokers` and `GET /v1/reassignments`; a broker's row also says
        whether it is `draining` or `stopping`.
        """
        export = answering.export_table(table)
        return lines_answer(request, export.lines, {VERSION_HEADER: str(export.version)})

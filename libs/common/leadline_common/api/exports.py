"""Exports of the cluster as tables in lines of JSON, for Spark and other programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from leadline_client.errors import HistoryUnavailable
from leadline_common.api.audit import EXPORTED, AfterId, AuditAdministration, export_answer
from leadline_common.api.models import example
from leadline_common.api.routes import add_declared_routes, get_administration, read_errors, route
from leadline_common.export_tables import MAX_ENTRIES, VERSION_HEADER, StateTable
from leadline_common.http.ndjson import ndjson_documentation, ndjson_response
from leadline_common.http.router import ServiceRouter
from leadline_common.settings.fields import INT64_MAX

TAG = "export"
TAGS = ({"name": TAG, "description": "The cluster as tables: one JSON object on each line."},)


class AuditHead(BaseModel):
    """The range of stored audit entries; -1 and null if there are none."""

    model_config = example({"oldest": 0, "head": 5120, "head_time": 1767225600000})

    oldest: int = Field(description="The oldest id that is still stored")
    head: int = Field(description="The newest id")
    head_time: int | None = Field(description="The time of the newest entry, in Unix ms")


@dataclass(frozen=True, slots=True)
class TableExport:
    """A running export of a table: NDJSON bytes, and the metadata version of all rows."""

    lines: AsyncIterator[bytes]
    version: int


class ExportAdministration(AuditAdministration, Protocol):
    """What a controller exports, besides the audit."""

    @route(
        "GET /export/audit/head",
        "Get the range of the audit",
        HistoryUnavailable,
        name="read_audit_head",
    )
    async def audit_head(self) -> AuditHead:
        """Return the oldest and the newest id, including everything written before the request.

        Entries are appended, and deleted from the oldest. So the ids from `oldest` to
        `head` are a snapshot, of which ranges can be read in parallel. A reader whose
        position is before `oldest` has missed entries.
        """

    async def export_table(self, table: StateTable) -> TableExport:
        """Return a table of the current state."""


Controller = Annotated[ExportAdministration, Depends(get_administration)]

_PARTITION_LINE = (
    '{"metadata_version":8589934601,"topic":"orders","topic_id":"b1946ac92492d2347c6235b4d2611184"'
    ',"partition":0,"leader":2,"leader_epoch":5,"isr":[2,3],"replicas":[1,2,3],"eligible":[],'
    '"min_insync_replicas":2}\n'
)


_TABLE = ndjson_documentation(
    _PARTITION_LINE,
    "One row on each line",
    {VERSION_HEADER: "The metadata version of the rows"},
)


def add_routes(router: ServiceRouter) -> None:
    """Add the routes of the exports."""
    add_declared_routes(router, ExportAdministration, TAG)
    _add_audit(router)
    _add_state(router)


def _add_audit(router: ServiceRouter) -> None:
    @router.get(
        "/export/audit",
        tags=[TAG],
        summary="Export a range of the audit",
        response_class=StreamingResponse,
        responses=EXPORTED | read_errors(HistoryUnavailable),
    )
    async def export_audit_range(
        request: Request,
        controller: Controller,
        after: AfterId = -1,
        before: Annotated[
            int | None,
            Query(ge=0, le=INT64_MAX, description="Only entries before this id; null: up to head"),
        ] = None,
        limit: Annotated[
            int, Query(ge=1, le=MAX_ENTRIES, description="Maximum number of entries")
        ] = MAX_ENTRIES,
    ) -> Response:
        """Stream audit entries with all their changes, ascending, as `GET /v1/audit/export`.

        For the next range, set `after` to the last id received.
        """
        return export_answer(request, await controller.export_audit(after, before, limit))


def _add_state(router: ServiceRouter) -> None:
    @router.get(
        "/export/{table}",
        tags=[TAG],
        summary="Export a table of the cluster",
        response_class=StreamingResponse,
        responses=_TABLE | read_errors(),
    )
    async def export_table(
        request: Request,
        controller: Controller,
        table: Annotated[
            StateTable,
            Path(
                description="The table. The coordinator exports the table `groups`; any broker "
                "returns its address (`POST /v1/consult`)",
                examples=["partitions"],
            ),
        ],
    ) -> Response:
        """Stream all rows of one snapshot, each with its `metadata_version`.

        Rows of `partitions` have the members of the example, and rows of `brokers` and
        `reassignments` those of `GET /v1/brokers` and `GET /v1/reassignments`. Rows of
        `brokers` also have `draining` and `stopping`.
        """
        export = await controller.export_table(table)
        return ndjson_response(request, export.lines, {VERSION_HEADER: str(export.version)})

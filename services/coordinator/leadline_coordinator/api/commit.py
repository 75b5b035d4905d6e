"""The route that commits offsets. Every consumer calls it every few seconds, so it is fast."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp

from leadline_common.access.caller import require
from leadline_common.access.rights import Action
from leadline_common.api.groups import COMMIT
from leadline_common.group_commits import (
    CommitAnswer,
    CommitRequest,
    CommittedRow,
    OffsetToCommit,
)
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import bulk_endpoint
from leadline_coordinator.runtime.offsets import CommitOutcome
from leadline_coordinator.runtime.service import CoordinatorService


def add_commit_route(
    app: ServiceApp, coordinator: CoordinatorService, gate: Callable[[ASGIApp], ASGIApp]
) -> None:
    """Add the route that commits offsets; `gate` forwards what a standby gets."""

    async def commit(request: CommitRequest, group: str) -> CommitAnswer:
        require(Action.READ, "topic", {one.topic for one in request.offsets})
        outcomes = await coordinator.offsets().commit(group, request)
        return CommitAnswer(tuple(map(_row, request.offsets, outcomes)))

    app.add_asgi_route(COMMIT, gate(bulk_endpoint(commit, CommitRequest)))


def _row(offset: OffsetToCommit, outcome: CommitOutcome) -> CommittedRow:
    refusal = outcome.refusal
    if refusal is None:
        return CommittedRow(offset.topic, offset.partition, superseded=outcome.superseded)
    return CommittedRow(offset.topic, offset.partition, refusal.code, refusal.message)

"""Health, readiness with reasons, and metrics: the routes that operators probe.

`/healthz` says that the process serves requests at all. `/readyz` says whether
it does its job, and if not, why not: each service brings checks that name what
is amiss, so that "not ready" never has to be guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from leadline_common.metrics import CONTENT_TYPE, Metrics

OPERATIONS = "operations"
"""The tag of these routes in OpenAPI."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something amiss: `serving` tells whether the service does its job in spite of it."""

    reason: str
    serving: bool = False


Check = Callable[[], Iterable[Problem]]
"""Looks at the service, without waiting, and returns what is amiss."""


class Alive(BaseModel):
    """The process serves requests."""

    alive: bool


class Ready(BaseModel):
    """Whether the service does its job; `degraded` is ready with something amiss."""

    ready: bool
    state: Literal["ready", "degraded", "not_ready"]
    reasons: list[str]


def assess(checks: Sequence[Check]) -> Ready:
    """Return the readiness that follows from what the checks find."""
    problems = [problem for check in checks for problem in check()]
    ready = all(problem.serving for problem in problems)
    state: Literal["ready", "degraded", "not_ready"] = "ready" if ready else "not_ready"
    if ready and problems:
        state = "degraded"
    return Ready(ready=ready, state=state, reasons=[problem.reason for problem in problems])


def health_routes(checks: Sequence[Check], metrics: Metrics) -> APIRouter:
    """Return the routes `/healthz`, `/readyz` and `/metrics`."""
    router = APIRouter(tags=[OPERATIONS])

    @router.get("/healthz", summary="Is the process alive?", responses=_example({"alive": True}))
    async def healthz() -> Alive:
        """Answer as soon as the process serves requests; says nothing of its work."""
        return Alive(alive=True)

    @router.get(
        "/readyz",
        summary="Does the service do its job?",
        response_model=Ready,
        responses=_example({"ready": True, "state": "ready", "reasons": []}) | _NOT_READY,
    )
    async def readyz() -> Response:
        """Answer 200 when ready or degraded and 503 when not, with the reasons."""
        found = assess(checks)
        return JSONResponse(found.model_dump(), status_code=200 if found.ready else 503)

    @router.get(
        "/metrics",
        summary="Metrics in Prometheus's text format",
        response_class=Response,
        responses={200: {"content": {CONTENT_TYPE: {"example": _METRICS_EXAMPLE}}}},
    )
    async def read_metrics() -> Response:
        """Answer every metric of this process."""
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    return router


def _example(value: Any) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {"application/json": {"example": value}}}}


_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {
        "model": Ready,
        "description": "Not ready",
        "content": {
            "application/json": {
                "example": {
                    "ready": False,
                    "state": "not_ready",
                    "reasons": ["no session with ZooKeeper"],
                }
            }
        },
    }
}
_METRICS_EXAMPLE = """# HELP leadline_http_requests_total Requests answered.
# TYPE leadline_http_requests_total counter
leadline_http_requests_total{method="GET",route="/healthz",status="200"} 1.0
"""

"""Liveness, readiness with reasons, and metrics.

`/healthz` shows that the process serves requests. `/readyz` shows whether the service works
and lists the problems that the service's checks find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from leadline_common.access.caller import current_caller
from leadline_common.access.rights import Action
from leadline_common.http.router import ServiceRouter
from leadline_common.metrics import CONTENT_TYPE, Metrics
from leadline_common.problems import Problem

OPERATIONS = "operations"
"""The tag of these routes in OpenAPI."""


Check = Callable[[], Iterable[Problem]]
"""Returns the problems of the service, without waiting."""


class Alive(BaseModel):
    """The process serves requests."""

    alive: bool


class Ready(BaseModel):
    """Whether the service works; `degraded` means ready in spite of problems."""

    ready: bool
    state: Literal["ready", "degraded", "not_ready"]
    reasons: list[str]


def assess(checks: Sequence[Check]) -> Ready:
    """Return the readiness that follows from the problems of all checks."""
    problems = [problem for check in checks for problem in check()]
    ready = all(problem.serving for problem in problems)
    state: Literal["ready", "degraded", "not_ready"] = "ready" if ready else "not_ready"
    if ready and problems:
        state = "degraded"
    return Ready(ready=ready, state=state, reasons=[problem.reason for problem in problems])


class Scraper:
    """Answers scrapes of the metrics, however many come at a time, with one computation each."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._running: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """Return all metrics; whoever asks while they are computed gets the same."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._render())
        return await asyncio.shield(self._running)

    async def _render(self) -> bytes:
        self._metrics.sample()
        return await asyncio.to_thread(self._metrics.format)


def health_routes(checks: Sequence[Check], metrics: Metrics) -> ServiceRouter:
    """Return the routes `/healthz`, `/readyz` and `/metrics`."""
    router = ServiceRouter(tags=[OPERATIONS], route_class=APIRoute)
    scraper = Scraper(metrics)

    @router.get("/healthz", summary="Check liveness", responses={200: _example({"alive": True})})
    async def healthz() -> Alive:
        """Return 200 once the process serves requests, whether the service is ready or not."""
        return Alive(alive=True)

    @router.get(
        "/readyz",
        summary="Check readiness",
        response_model=Ready,
        responses={
            200: _example({"ready": True, "state": "ready", "reasons": []}),
            503: {"model": Ready, "description": "Not ready", **_example(_NOT_READY)},
        },
    )
    async def readyz() -> Response:
        """Return 200 if the service is ready or degraded, else 503, with the reasons.

        In a cluster with authentication, only users get the reasons.
        """
        found = assess(checks)
        if not current_caller().access.allows(Action.CONNECT, "cluster"):
            found = found.model_copy(update={"reasons": []})
        return JSONResponse(found.model_dump(), status_code=200 if found.ready else 503)

    @router.get(
        "/metrics",
        summary="Get metrics",
        response_class=Response,
        responses={
            200: {
                "content": {
                    CONTENT_TYPE: {"schema": {"type": "string"}, "example": _METRICS_EXAMPLE}
                }
            }
        },
    )
    async def read_metrics() -> Response:
        """Return all metrics of this process in Prometheus's text format."""
        return Response(await scraper.text(), media_type=CONTENT_TYPE)

    return router


def _example(value: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"example": value}}}


_NO_SESSION = "no session with ZooKeeper: zk1:2181: socket connection error: Connection refused"
_NOT_READY = {"ready": False, "state": "not_ready", "reasons": [_NO_SESSION]}
_METRICS_EXAMPLE = """# HELP leadline_http_requests_total Requests answered.
# TYPE leadline_http_requests_total counter
leadline_http_requests_total{method="GET",route="/healthz",status="200"} 1.0
"""

"""A small service with which the HTTP modules are tested."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import httpx
import msgspec
from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from leadline_client.errors import (
    LeaderHint,
    NoController,
    NotLeader,
    RequestTimedOut,
    UnknownTopic,
)
from leadline_common.access.operations import CONNECT, Need
from leadline_common.cause import current_cause
from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.bulk import bulk_route
from leadline_common.http.errors import error_responses, read_only
from leadline_common.identity import ServiceIdentity
from leadline_common.problems import Problem
from tests.support.services.identities import served_to

CALLER = ServiceIdentity("broker", 2)
"""The service that sends the requests to the internal routes."""

ERRORS = {
    "not-leader": NotLeader("led elsewhere", leader=LeaderHint(2, "http://127.0.0.1:9", 7)),
    "timeout": RequestTimedOut("appended, not replicated"),
    "no-controller": NoController("none is active"),
    "unknown": UnknownTopic("there is no topic t", topic="t"),
}


class NewThing(BaseModel):
    """What is asked for."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "n"}]})

    name: str
    sizes: list[int] = []


class Thing(BaseModel):
    """What there is."""

    name: str
    cause: str


class BulkRow(msgspec.Struct, array_like=True, frozen=True):
    """One row."""

    partition: int
    leader: int


class BulkRequest(msgspec.Struct, frozen=True):
    """Many rows."""

    rows: list[BulkRow]
    note: str = ""


class BulkResponse(msgspec.Struct, frozen=True):
    """How many."""

    count: int
    cause: str


@dataclass
class Seen:
    """What reached the handlers."""

    bulk: list[BulkRequest] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False


def anybody(operation: str) -> Need:
    """Let everybody who may connect use every operation."""
    del operation
    return CONNECT


def build(seen: Seen | None = None, **options: Any) -> ServiceApp:
    """Return the service; what its handlers see goes into `seen`."""
    seen = seen or Seen()

    @asynccontextmanager
    async def lifespan(_: ServiceApp) -> AsyncIterator[None]:
        yield
        seen.closed = True

    app = create_app(
        title="Things",
        version="1.2.3",
        description="A service of things.",
        tags=[{"name": "things", "description": "Things."}],
        checks=[lambda: seen.problems],
        lifespan=lifespan,
        need_of=anybody,
        **options,
    )
    _add_things(app)
    _add_failures(app)
    _add_raw(app, seen)
    for encoding, name in (("json", "countRows"), ("msgpack", "countPackedRows")):
        _add_bulk(app, seen, encoding, name)
    return app


def _add_things(app: ServiceApp) -> None:
    @app.post(
        "/v1/things",
        tags=["things"],
        status_code=201,
        summary="Make a thing",
        responses=error_responses(UnknownTopic, NotLeader, NoController),
    )
    async def make_thing(thing: NewThing) -> Thing:
        """Make it."""
        return Thing(name=thing.name, cause=current_cause())

    @app.get("/v1/things/{number}", tags=["things"], summary="Show a thing")
    async def show_thing(
        number: Annotated[int, Path(ge=0, description="Which", examples=[7])],
        depth: Annotated[int, Query(le=3, description="How deep")] = 1,
    ) -> Thing:
        """Show it."""
        return Thing(name=str(number * depth), cause=current_cause())


def _add_failures(app: ServiceApp) -> None:
    @app.get("/v1/errors/{name}", include_in_schema=False)
    async def fail(name: str) -> None:
        raise ERRORS[name]

    @app.api_route("/v1/bug", methods=["GET", "POST", "DELETE"], include_in_schema=False)
    async def bug() -> None:
        raise RuntimeError("secret of the inside")

    @app.post("/v1/bug/in-a-read", include_in_schema=False)
    @read_only
    async def bug_in_a_read() -> None:
        raise RuntimeError("secret of the inside")

    @app.get("/v1/bug/half-way", include_in_schema=False)
    async def bug_half_way() -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"first"
            raise RuntimeError("secret of the inside")

        return StreamingResponse(chunks())


def _add_raw(app: ServiceApp, seen: Seen) -> None:
    @app.api_route("/v1/bodies", methods=["POST", "PUT", "GET"], include_in_schema=False)
    async def take(request: Request) -> Response:
        seen.bodies.append(await request.body())
        return Response(request.url.query, headers={"X-Kept": "yes"})

    @app.get("/v1/wait", include_in_schema=False)
    async def wait() -> Thing:
        seen.waiting.set()
        await seen.wake.wait()
        return Thing(name="woken", cause=current_cause())


def _add_bulk(app: ServiceApp, seen: Seen, encoding: Any, name: str) -> None:
    async def count(request: BulkRequest) -> BulkResponse | bytes:
        seen.bulk.append(request)
        if request.note == "prebuilt":
            return b"[1,2,3]"
        if request.note == "refuse":
            raise NoController("none is active")
        return BulkResponse(len(request.rows), current_cause())

    bulk_route(
        app,
        f"/v1/internal/{name}",
        count,
        BulkRequest,
        BulkResponse,
        name=name,
        summary="Count rows",
        description="Counts the rows.",
        encoding=encoding,
        errors=[NoController],
        max_body_bytes=100_000,
        request_example=BulkRequest([BulkRow(1, 2)]),
        response_example=BulkResponse(1, "c"),
        speaker=lambda _: CALLER,
        long_list="rows" if encoding == "json" else None,
    )


def client_of(app: ServiceApp) -> httpx.AsyncClient:
    """Return a client that calls the application in this process."""
    served = served_to(CALLER, app, app.internal_paths)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=served), base_url="http://service")

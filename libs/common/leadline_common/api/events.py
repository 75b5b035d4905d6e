"""The event stream: changes of the cluster, as server-sent events or as one response."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Literal, Protocol

from fastapi import Depends, Header, Query
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from leadline_client.errors import LeadlineError
from leadline_common.access.rights import Action
from leadline_common.api.metadata import DURATION, MetadataBroker, MetadataRow, milliseconds
from leadline_common.api.models import example
from leadline_common.api.routes import get_administration, read_errors
from leadline_common.http.access import Authentication
from leadline_common.http.errors import Responses
from leadline_common.http.forward import EVENT_STREAM
from leadline_common.http.router import ServiceRouter

TAG = "events"
PING_MS = 15_000
"""The interval of keep-alive comments on an idle stream."""

_ID = "b1946ac92492d2347c6235b4d2611184"
_CHANGED = {
    "type": "topic_changed",
    "topic": "orders",
    "topic_id": _ID,
    "configs": None,
    "partitions": [[0, 2, 6, [2, 3], [1, 2, 3]]],
    "removed": [],
}
_LINES = f"id: 1043\nevent: topic_changed\ndata: {json.dumps(_CHANGED)}\n\n"


class EventBody(BaseModel):
    """The current state of something that has changed; one event may cover several changes.

    `brokers`: the live brokers. `topic`: a new topic with its settings and all partitions.
    `topic_changed`: the differences since this reader's last event of the topic.
    `topic_deleted`: the topic is deleted, or its deletion has started. Partitions are rows
    as in the metadata: [partition, leader, leader epoch, ISR, replicas].
    """

    type: Literal["brokers", "topic", "topic_changed", "topic_deleted"]
    brokers: list[MetadataBroker] | None = None
    topic: str | None = None
    topic_id: str | None = None
    configs: dict[str, str] | None = Field(default=None, description="null if unchanged")
    partitions: list[MetadataRow] | None = None
    removed: list[int] | None = Field(default=None, description="Partitions that were removed")


class EventsBody(BaseModel):
    """The changes up to `version`; the next request asks for those after it."""

    model_config = example({"version": 1043, "events": [_CHANGED]})

    version: int
    events: list[EventBody]


class Reader(Protocol):
    """One reader's position in the event stream."""

    @property
    def version(self) -> int:
        """The metadata version that the reader has reached."""

    async def read(self, wait_ms: int) -> list[EventBody] | None:
        """Wait at most `wait_ms` for events, and return them; None at the end of the stream."""


class EventAdministration(Protocol):
    """What a controller answers about events."""

    def follow(self, after: int | None) -> Reader:
        """Return a reader of the events after a metadata version, or from now on."""


_BOTH_FORMATS: Responses = {
    200: {
        "description": "The changes, in the format that the request accepts",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}, "example": _LINES}},
    }
}


def add_routes(router: ServiceRouter) -> None:
    """Add the route of the event stream."""

    @router.get(
        "/events",
        tags=[TAG],
        summary="Stream cluster events",
        response_model=EventsBody,
        responses=_BOTH_FORMATS | read_errors(),
    )
    async def read_events(
        controller: Annotated[EventAdministration, Depends(get_administration)],
        request: Request,
        after: Annotated[
            int | None,
            Query(ge=0, description="Only changes after this version; without it, from now on"),
        ] = None,
        wait: Annotated[
            str,
            Query(pattern=DURATION, description="How long to wait for a change; at most 60 s"),
        ] = "0s",
        last_event_id: Annotated[
            str | None,
            Header(
                pattern=r"^\d{1,18}$",
                description="The last event received, to resume a stream; as `after`",
            ),
        ] = None,
    ) -> Response:
        """Follow changes of brokers, topics, leaders, in-sync replicas and settings.

        A request that accepts `text/event-stream` receives events as they happen. The id of
        the last event in each batch is the version to resume from, at any broker or
        controller; browsers resume automatically. Any other request receives the changes so
        far or, with `wait`, the next ones. An event holds the current state, so a late
        reader misses nothing, and several changes may arrive as one event.
        """
        reader = controller.follow(int(last_event_id) if last_event_id else after)
        if EVENT_STREAM in request.headers.get("accept", ""):
            headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            return StreamingResponse(
                _stream(reader, request), media_type=EVENT_STREAM, headers=headers
            )
        found = await reader.read(milliseconds(wait)) or []
        body = EventsBody(version=reader.version, events=found)
        return JSONResponse(body.model_dump())


async def _stream(reader: Reader, request: Request) -> AsyncIterator[bytes]:
    """Yield events, after the reader's version, with keep-alive comments in between.

    The stream ends when its reader may not follow it any more.
    """
    yield format_sse_event(id=str(reader.version), comment="following")
    while (found := await reader.read(PING_MS)) is not None:
        if not _may_follow(request):
            return
        last = len(found) - 1
        for index, event in enumerate(found):
            # Only the last event has an id: a reader that breaks off earlier gets the batch again.
            version = str(reader.version) if index == last else None
            data = event.model_dump_json(exclude_unset=True)
            yield format_sse_event(data_str=data, event=event.type, id=version)
        if not found:
            yield KEEPALIVE_COMMENT


def _may_follow(request: Request) -> bool:
    """Tell whether the sender of a request still has the right that its stream takes."""
    authentication: Authentication = request.app.authentication
    try:
        caller = authentication.caller_of(request.scope)
    except LeadlineError:
        return False
    return caller.access.allows(Action.MONITOR, "cluster")

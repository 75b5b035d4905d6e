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
from leadline_common.metadata_tags import MetadataTag

TAG = "events"
PING_MS = 15_000
"""The interval of keep-alive comments on an idle stream."""

_POSITION = r"^([0-9]{1,10}-)?[0-9]{1,18}$"
_UNKNOWN_EPOCH = -1

_ID = "b1946ac92492d2347c6235b4d2611184"
_CHANGED = {
    "type": "topic_changed",
    "topic": "orders",
    "topic_id": _ID,
    "configs": None,
    "partitions": [[0, 2, 6, [2, 3], [1, 2, 3]]],
    "removed": [],
}
_LINES = f"id: 7-1043\nevent: topic_changed\ndata: {json.dumps(_CHANGED)}\n\n"


class EventBody(BaseModel):
    """The current state of something that has changed; one event may cover several changes.

    `brokers`: the live brokers. `topics`: the names of all topics, for a reader who may know others
    that were deleted meanwhile. `topic`: a new topic with its settings and all partitions.
    `topic_changed`: the differences since this reader's last event of the topic.
    `topic_deleted`: the topic is deleted, or its deletion has started. Partitions are rows
    as in the metadata: [partition, leader, leader epoch, ISR, replicas].
    """

    type: Literal["brokers", "topics", "topic", "topic_changed", "topic_deleted"]
    brokers: list[MetadataBroker] | None = None
    topics: list[str] | None = None
    topic: str | None = None
    topic_id: str | None = None
    configs: dict[str, str] | None = Field(default=None, description="null if unchanged")
    partitions: list[MetadataRow] | None = None
    removed: list[int] | None = Field(default=None, description="Partitions that were removed")


class EventsBody(BaseModel):
    """The changes up to a metadata version; the next request asks for those after `position`."""

    model_config = example({"version": 1043, "position": "7-1043", "events": [_CHANGED]})

    version: int
    position: str = Field(
        description="The state that the events lead to: controller epoch and metadata version"
    )
    events: list[EventBody]


class Reader(Protocol):
    """One reader's position in the event stream."""

    @property
    def position(self) -> MetadataTag:
        """The state of the metadata that the reader has reached."""

    async def read(self, wait_ms: int) -> list[EventBody] | None:
        """Wait at most `wait_ms` for events, and return them; None at the end of the stream."""


class EventAdministration(Protocol):
    """What a controller answers about events."""

    def follow(self, after: MetadataTag | None) -> Reader:
        """Return a reader of the events after a state of the metadata, or from now on."""


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
            str | None,
            Query(
                pattern=_POSITION,
                description="Only changes after this position; without it, from now on",
                examples=["7-1043"],
            ),
        ] = None,
        wait: Annotated[
            str,
            Query(pattern=DURATION, description="How long to wait for a change; at most 60 s"),
        ] = "0s",
        last_event_id: Annotated[
            str | None,
            Header(
                pattern=_POSITION,
                description="The last event received, to resume a stream; as `after`",
            ),
        ] = None,
    ) -> Response:
        """Follow changes of brokers, topics, leaders, in-sync replicas and settings.

        A request that accepts `text/event-stream` receives events as they happen. The id of
        the last event in each batch is the position to resume from, at any broker or
        controller; browsers resume automatically. Any other request receives the changes so
        far or, with `wait`, the next ones. An event holds the current state, so a late
        reader misses nothing, and several changes may arrive as one event. A reader who
        comes from an earlier controller gets the whole state, with the names of all topics.
        """
        reader = controller.follow(_state_of(last_event_id or after))
        if EVENT_STREAM in request.headers.get("accept", ""):
            headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            return StreamingResponse(
                _stream(reader, request), media_type=EVENT_STREAM, headers=headers
            )
        found = await reader.read(milliseconds(wait)) or []
        position = reader.position
        body = EventsBody(version=position.version, position=_shown(position), events=found)
        return JSONResponse(body.model_dump())


def _state_of(position: str | None) -> MetadataTag | None:
    """Return the state that a reader has; a bare version may be of any controller."""
    if position is None:
        return None
    return MetadataTag.parse(position) or MetadataTag(_UNKNOWN_EPOCH, int(position))


def _shown(position: MetadataTag) -> str:
    """Return a position as requests state it, a bare version as it came."""
    is_bare = position.controller_epoch == _UNKNOWN_EPOCH
    return str(position.version) if is_bare else str(position)


async def _stream(reader: Reader, request: Request) -> AsyncIterator[bytes]:
    """Yield events, after the reader's position, with keep-alive comments in between.

    The stream ends when its reader may not follow it any more.
    """
    yield format_sse_event(id=_shown(reader.position), comment="following")
    while (found := await reader.read(PING_MS)) is not None:
        if not _may_follow(request):
            return
        last = len(found) - 1
        for index, event in enumerate(found):
            # Only the last event has an id: a reader that breaks off earlier gets the batch again.
            position = _shown(reader.position) if index == last else None
            data = event.model_dump_json(exclude_unset=True)
            yield format_sse_event(data_str=data, event=event.type, id=position)
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

"""The change feed: what changes in the cluster, as server-sent events or as one answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from leadline_client.errors import NoController
from leadline_common.api.metadata import DURATION, MetadataBroker, milliseconds
from leadline_common.api.models import example
from leadline_common.api.routes import answering_administration
from leadline_common.http.errors import error_responses
from leadline_common.http.forward import EVENT_STREAM

TAG = "events"
TAGS = ({"name": TAG, "description": "What changes, as it changes."},)
PING_MS = 15_000
"""How long a silent stream stays silent."""

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


class Event(BaseModel):
    """What is there now of what has changed; several changes may be one event.

    `brokers`: the live brokers. `topic`: a topic with its settings and all its
    partitions. `topic_changed`: what differs from what this reader was told.
    `topic_deleted`: it is gone, or on its way. Partitions are rows as in the metadata:
    [partition, leader, leader epoch, ISR, replicas].
    """

    type: Literal["brokers", "topic", "topic_changed", "topic_deleted"]
    brokers: list[MetadataBroker] | None = None
    topic: str | None = None
    topic_id: str | None = None
    configs: dict[str, str] | None = Field(default=None, description="null where unchanged")
    partitions: list[tuple[int, int, int, list[int], list[int]]] | None = None
    removed: list[int] | None = Field(default=None, description="Partitions that are no more")


class Events(BaseModel):
    """What has changed since a version, up to `version`: ask for what comes after it next."""

    model_config = example({"version": 1043, "events": [_CHANGED]})

    version: int
    events: list[Event]


class Reader(Protocol):
    """One reader's place in the feed."""

    @property
    def version(self) -> int:
        """The version up to which the reader was told."""

    async def read(self, wait_ms: int) -> list[Event] | None:
        """Return what is new, once there is something, after `wait_ms` at most; None at the end."""


class EventAdministration(Protocol):
    """What a controller answers about changes."""

    def follow(self, after: int | None) -> Reader:
        """Begin to follow from a version on, or from now on."""


Answering = Annotated[EventAdministration, Depends(answering_administration)]

_BOTH: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "What has changed, in the form that the request accepts",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}, "example": _LINES}},
    }
}


def add_routes(router: APIRouter) -> None:
    """Add the routes of this area."""

    @router.get(
        "/events",
        tags=[TAG],
        summary="What changes",
        response_model=Events,
        responses=_BOTH | error_responses(NoController),
    )
    async def read_events(
        answering: Answering,
        request: Request,
        after: Annotated[
            int | None,
            Query(ge=0, description="What changed after this version; without it, from now on"),
        ] = None,
        wait: Annotated[
            str,
            Query(pattern=DURATION, description="How long to wait for something; at most 60 s"),
        ] = "0s",
        last_event_id: Annotated[
            str | None,
            Header(pattern=r"^\d{1,18}$", description="Where a broken stream goes on, as `after`"),
        ] = None,
    ) -> Response:
        """Follow changes of brokers, topics, leaders, in-sync replicas and settings.

        A request that accepts `text/event-stream` gets events as they happen; the id of
        each batch's last one is the version to resume from, which browsers do by
        themselves, at any broker or controller. Any other request gets what there is, or,
        with `wait`, what comes first. An event says what is there now, so nothing is
        missed by coming late; what changed twice in between is told once.
        """
        reader = answering.follow(int(last_event_id) if last_event_id else after)
        if EVENT_STREAM in request.headers.get("accept", ""):
            headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            return StreamingResponse(_stream(reader), media_type=EVENT_STREAM, headers=headers)
        found = await reader.read(milliseconds(wait)) or []
        body = Events(version=reader.version, events=found)
        return JSONResponse(body.model_dump())


async def _stream(reader: Reader) -> AsyncIterator[bytes]:
    """Yield events; a reader learns where it stands at once, and that it is alive now and then."""
    yield format_sse_event(id=str(reader.version), comment="following")
    while (found := await reader.read(PING_MS)) is not None:
        last = len(found) - 1
        for index, event in enumerate(found):
            # Whoever is cut off within a batch gets all of it again.
            version = str(reader.version) if index == last else None
            data = event.model_dump_json(exclude_unset=True)
            yield format_sse_event(data_str=data, event=event.type, id=version)
        if not found:
            yield KEEPALIVE_COMMENT

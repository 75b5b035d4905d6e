"""The metadata document: who leads what, the same from any broker and any controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from leadline_client.errors import LeadlineError
from leadline_common.api.models import ControllerBody
from leadline_common.http.caching import Document
from leadline_common.http.errors import error_responses

Read = Callable[[int | None, int, list[str] | None], Awaitable[Document]]
"""Gives the document of some topics, or of all: (newer than, for at most ms, names)."""

_MAX_WAIT_MS = 60_000
DURATION = r"^\d{1,7}(ms|s)?$"


class MetadataBroker(BaseModel):
    """A live broker; `incarnation` rises with every start of it."""

    id: int
    url: str
    rack: str | None
    incarnation: int


class MetadataTopic(BaseModel):
    """A topic's id, and for each partition a row: [partition, leader, leader epoch, ISR, replicas].

    The leader is -1 where there is none; the first replica is the preferred leader.
    """

    topic_id: str
    partitions: list[tuple[int, int, int, list[int], list[int]]]


class Metadata(BaseModel):
    """One consistent snapshot of the cluster; `version` never goes backwards."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "cluster_id": "3f0c6cbe4e6b4f6f8a8e0f0d8f4b6f11",
                "version": 1042,
                "controller": {"id": 1, "url": "http://127.0.0.1:8081", "epoch": 3},
                "brokers": [
                    {"id": 1, "url": "http://127.0.0.1:9091", "rack": None, "incarnation": 1},
                    {"id": 2, "url": "http://127.0.0.1:9092", "rack": None, "incarnation": 1},
                ],
                "topics": {
                    "orders": {
                        "topic_id": "b1946ac92492d2347c6235b4d2611184",
                        "partitions": [[0, 1, 5, [1, 2], [1, 2]], [1, 2, 3, [2, 1], [2, 1]]],
                    }
                },
            }
        }
    )

    cluster_id: str
    version: int
    controller: ControllerBody | None
    brokers: list[MetadataBroker]
    topics: dict[str, MetadataTopic]


def metadata_routes(tag: str, read: Read, *errors: type[LeadlineError]) -> APIRouter:
    """Return the route of the document that `read` gives; `errors` are those that it raises."""
    router = APIRouter(prefix="/v1", tags=[tag])
    unchanged: dict[int | str, dict[str, Any]] = {
        304: {"description": "The caller has this version already (`If-None-Match`)"}
    }

    @router.get(
        "/metadata",
        summary="Who leads what",
        response_model=Metadata,
        responses=unchanged | error_responses(*errors),
    )
    async def read_metadata(
        request: Request,
        topics: Annotated[
            str | None,
            Query(description="Only these topics, separated by commas", examples=["orders"]),
        ] = None,
        after: Annotated[
            int | None, Query(ge=0, description="Wait for a version newer than this one")
        ] = None,
        wait: Annotated[
            str,
            Query(pattern=DURATION, description="How long to wait: `30s`, `500ms`; at most 60 s"),
        ] = "0s",
    ) -> Response:
        """Read one consistent snapshot, with a strong ETag.

        With `after`, the answer waits for a newer version, at most `wait`, and then is
        whatever is current. A topic that does not exist is absent. Any broker and any
        controller serves the same document, though not at the same instant.
        """
        names = topics.split(",") if topics is not None else None
        return (await read(after, milliseconds(wait), names)).answer(request)

    return router


def milliseconds(duration: str) -> int:
    """Return a duration in ms, as far as a request may wait."""
    number = int(duration.rstrip("ms"))
    return min(number if duration.endswith("ms") else 1000 * number, _MAX_WAIT_MS)

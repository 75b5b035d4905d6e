"""The metadata document: brokers, topics and leaders, the same at any broker or controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from leadline_client.errors import LeadlineError
from leadline_common.api.models import ControllerBody
from leadline_common.http.caching import Document
from leadline_common.http.errors import Responses, error_responses
from leadline_common.http.router import ServiceRouter

Read = Callable[[int | None, int, list[str] | None], Awaitable[Document]]
"""Returns the document: (newer than this version, after at most so many ms, topics or all)."""

_MAX_WAIT_MS = 60_000
DURATION = r"^\d{1,7}(ms|s)?$"


class MetadataBroker(BaseModel):
    """A live broker; `incarnation` rises with every start of the broker."""

    id: int
    url: str
    rack: str | None
    incarnation: int


class MetadataRow(NamedTuple):
    """The state of a partition, as an array: documents of many partitions stay small."""

    partition: Annotated[int, Field(description="The partition's number")]
    leader: Annotated[int, Field(description="The id of the leader, -1 if there is none")]
    leader_epoch: Annotated[int, Field(description="The leader epoch")]
    isr: Annotated[list[int], Field(description="The ids of the in-sync replicas")]
    replicas: Annotated[
        list[int], Field(description="The assigned replicas; the first is the preferred leader")
    ]


class MetadataTopic(BaseModel):
    """A topic's id, and its partitions as rows: [partition, leader, leader epoch, ISR, replicas].

    The leader is -1 if there is none; the first replica is the preferred leader.
    """

    topic_id: str
    partitions: list[MetadataRow]


class MetadataBody(BaseModel):
    """A consistent snapshot of the cluster; `version` never decreases."""

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


def metadata_routes(tag: str, read: Read, *errors: type[LeadlineError]) -> ServiceRouter:
    """Return the route that serves the document of `read`, which may raise `errors`."""
    router = ServiceRouter(prefix="/v1", tags=[tag])
    unchanged: Responses = {
        304: {"description": "Not modified: the caller has this version (`If-None-Match`)"}
    }

    @router.get(
        "/metadata",
        summary="Get cluster metadata",
        response_model=MetadataBody,
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
            Query(
                pattern=DURATION, description="How long to wait, as `30s` or `500ms`; at most 60 s"
            ),
        ] = "0s",
    ) -> Response:
        """Return a consistent snapshot of the cluster, with a strong ETag.

        With `after`, wait up to `wait` for a newer version, then return the current one.
        Topics that do not exist are left out. All brokers and controllers serve the same
        document, though not at the same instant.
        """
        names = topics.split(",") if topics is not None else None
        return (await read(after, milliseconds(wait), names)).answer(request)

    return router


def milliseconds(duration: str) -> int:
    """Return a duration in ms, at most the longest wait of a request."""
    number = int(duration.rstrip("ms"))
    return min(number if duration.endswith("ms") else 1000 * number, _MAX_WAIT_MS)

"""The metadata document: brokers, topics and leaders, the same at any broker or controller."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Annotated, NamedTuple

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from leadline_client.errors import LeadlineError
from leadline_common.access.caller import (
    version_for_caller,
    version_known_to_caller,
    visible,
)
from leadline_common.api.models import ControllerBody
from leadline_common.http.caching import Document
from leadline_common.http.errors import Responses, error_responses
from leadline_common.http.router import ServiceRouter
from leadline_common.metadata_tags import MetadataTag


class MetadataQuery(NamedTuple):
    """Which document is wanted: a newer one than version `after`, after at most `wait_ms`.

    `topics` are the topics that it is limited to, None for all. `base` is the state that the caller
    has, as far as it may use it; None: it needs everything.
    """

    after: int | None
    wait_ms: int
    topics: list[str] | None
    base: MetadataTag | None

    def shown(self, names: Collection[str]) -> Iterable[str]:
        """Return those of some topics that are wanted, and that the caller may describe."""
        wanted = names
        if self.topics is not None:
            asked = frozenset(self.topics)
            wanted = [name for name in names if name in asked]
        found = visible("topic", wanted, list)
        return wanted if found is None else found


Read = Callable[[MetadataQuery], Awaitable[Document]]
"""Returns the document that a query is for."""


def metadata_document(tag: MetadataTag, body: bytes, *, changes: bool = False) -> Document:
    """Return the answer to a query: everything of a state, or what has `changes` up to it."""
    return Document(body, version_for_caller(str(tag)), weak=changes)


_MAX_WAIT_MS = 60_000
_ETAG = re.compile(r'(?:W/)?"?(.*?)(?:-gzip)?"?')
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
    """A consistent snapshot of the cluster; `version` never decreases.

    With `changed_after`, it is what has changed since the state of this tag: `topics` has the
    topics that were created, recreated, or changed as a whole, `changed_rows` the changed
    partitions of others, and `deleted_topics` what is gone. `brokers` is always complete.
    """

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
    changed_after: str | None = Field(
        default=None, description="The state that this is the difference to; absent: everything"
    )
    changed_rows: dict[str, MetadataTopic] | None = Field(
        default=None, description="Topics that the caller has, with the rows that have changed"
    )
    deleted_topics: list[str] | None = Field(
        default=None, description="Topics that are gone; a caller need not know them all"
    )


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
        changed_after: Annotated[
            str | None,
            Query(
                max_length=100,
                description="The ETag of the answer that the caller has: return what has changed",
                examples=["3-1042"],
            ),
        ] = None,
    ) -> Response:
        """Return a consistent snapshot of the cluster, with a strong ETag.

        With `after`, wait up to `wait` for a newer version, then return the current one.
        Topics that do not exist are left out. All brokers and controllers serve the same
        document, though not at the same instant.

        With `changed_after`, the ETag of an earlier answer to a request with the same `topics`,
        from whichever broker or controller, the answer has only what has changed since, if this
        process can tell. If it cannot, or if what the caller may see has changed, the answer has
        everything, and no `changed_after`.
        """
        base = None if changed_after is None else state_known_to_caller(changed_after)
        names = topics.split(",") if topics is not None else None
        query = MetadataQuery(after, milliseconds(wait), names, base)
        return (await read(query)).answer(request)

    return router


def state_known_to_caller(etag: str) -> MetadataTag | None:
    """Return the state that an ETag names, unless it was shown to somebody with other rights."""
    found = _ETAG.fullmatch(etag)
    version = version_known_to_caller(found[1]) if found else None
    return None if version is None else MetadataTag.parse(version)


def milliseconds(duration: str) -> int:
    """Return a duration in ms, at most the longest wait of a request."""
    number = int(duration.rstrip("ms"))
    return min(number if duration.endswith("ms") else 1000 * number, _MAX_WAIT_MS)

"""The broker itself and the cluster as it knows it: metadata, consult, replicas, producer ids."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from leadline_broker.runtime.broker import Broker
from leadline_client.errors import BrokerFenced, StoreOutcomeUnknown
from leadline_client.wire import BrokerInfo, ControllerInfo
from leadline_common.http.caching import Document
from leadline_common.http.errors import error_responses, read_only

TAG = "cluster"
_MAX_WAIT_S = 60.0


class BrokerRowBody(BaseModel):
    """A live broker; `incarnation` changes whenever its process or session does."""

    id: int
    url: str
    rack: str | None
    incarnation: int


class ControllerBody(BaseModel):
    """The active controller; `epoch` rises at every take-over."""

    id: int
    url: str
    epoch: int


class TopicBody(BaseModel):
    """A topic's id, and for each partition a row: [partition, leader, leader epoch, ISR, replicas].

    The leader is -1 where there is none; the first replica is the preferred leader.
    """

    topic_id: str
    partitions: list[tuple[int, int, int, list[int], list[int]]]


class MetadataBody(BaseModel):
    """One consistent snapshot of the cluster; `version` never goes backwards."""

    cluster_id: str
    version: int
    controller: ControllerBody | None
    brokers: list[BrokerRowBody]
    topics: dict[str, TopicBody]


class ThisBroker(BaseModel):
    """This broker: fenced until `granted`."""

    id: int
    url: str
    incarnation: int
    granted: bool
    controller: ControllerBody | None


class ReplicaBody(BaseModel):
    """One local replica. Offsets are exclusive ends but for the start; `isr` on the leader only."""

    topic: str
    topic_id: str
    partition: int
    role: str
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    durable_end_offset: int
    high_watermark: int
    isr: list[int] | None
    log_dir: str


class ReplicasBody(BaseModel):
    """Every local replica, by topic and partition."""

    replicas: list[ReplicaBody]


class ConsultBody(BaseModel):
    """Whom to talk to (seed 3); `coordinator` is null as long as none is elected."""

    brokers: list[BrokerRowBody]
    coordinator: ControllerBody | None = None


class ProducerIdBody(BaseModel):
    """An identity for an idempotent producer."""

    producer_id: int
    producer_epoch: int


_METADATA_EXAMPLE = {
    "cluster_id": "p0xq2m7kTsu3",
    "version": 4294967340,
    "controller": {"id": 1, "url": "http://127.0.0.1:8081", "epoch": 1},
    "brokers": [{"id": 1, "url": "http://127.0.0.1:9091", "rack": None, "incarnation": 1}],
    "topics": {
        "orders": {"topic_id": "b1f0…", "partitions": [[0, 1, 0, [1], [1]]]},
    },
}


def cluster_routes(broker: Broker) -> APIRouter:
    """Return the routes about the broker and the cluster."""
    router = APIRouter(prefix="/v1", tags=[TAG])
    _add_metadata(router, broker)
    _add_broker(router, broker)
    return router


def _add_metadata(router: APIRouter, broker: Broker) -> None:
    @router.get(
        "/metadata",
        summary="Read who leads what",
        response_model=MetadataBody,
        responses={
            200: {"content": {"application/json": {"example": _METADATA_EXAMPLE}}},
            304: {"description": "The caller has this version already (`If-None-Match`)"},
        },
    )
    async def metadata(
        request: Request,
        topics: Annotated[
            str | None, Query(description="Only these topics, separated by commas")
        ] = None,
        after: Annotated[
            int | None, Query(ge=0, description="Wait for a version newer than this")
        ] = None,
        wait: Annotated[
            str, Query(description="How long to wait, e.g. `30s` or `500ms`", pattern=_DURATION)
        ] = "0s",
    ) -> Response:
        """Read one consistent snapshot, with a strong ETag.

        With `after`, the answer waits until there is a newer version, at most `wait`;
        then it is whatever is current. Any broker and any controller serves the
        same document, though not at the same instant.
        """
        if after is not None:
            await broker.metadata.wait_newer(after, _milliseconds(wait))
        names = topics.split(",") if topics is not None else None
        cache = broker.metadata
        return Document(cache.document(names), str(cache.version)).answer(request)

    @router.post("/consult", summary="Ask any broker whom to talk to")
    @read_only
    async def consult() -> ConsultBody:
        """Return the live brokers and the coordinator of consumer groups (seed 3)."""
        brokers = broker.metadata.brokers
        return ConsultBody(brokers=[_broker_row(brokers[number]) for number in sorted(brokers)])


def _add_broker(router: APIRouter, broker: Broker) -> None:
    @router.get("/broker", summary="Tell which broker this is")
    async def this_broker() -> ThisBroker:
        """Return identity and standing of the broker that answers."""
        return ThisBroker(
            id=broker.broker_id,
            url=broker.url,
            incarnation=broker.incarnation,
            granted=broker.granted,
            controller=_controller(broker.metadata.controller),
        )

    @router.get("/replicas", summary="List the replicas on this broker")
    async def replicas() -> ReplicasBody:
        """Return role, leader epoch and ends of every local replica."""
        return ReplicasBody(
            replicas=[
                ReplicaBody.model_validate(replica, from_attributes=True)
                for replica in broker.replicas()
            ]
        )

    @router.post(
        "/producer-ids",
        summary="Allocate the identity of an idempotent producer",
        responses=error_responses(BrokerFenced, StoreOutcomeUnknown),
    )
    async def allocate_producer_id() -> ProducerIdBody:
        """Return an id that nobody else has. Ids may be skipped, never repeated."""
        producer_id, producer_epoch = await broker.allocate_producer_id()
        return ProducerIdBody(producer_id=producer_id, producer_epoch=producer_epoch)


_DURATION = r"^\d{1,7}(ms|s)?$"


def _milliseconds(duration: str) -> int:
    number = int(duration.rstrip("ms"))
    milliseconds = number if duration.endswith("ms") else number * 1000
    return min(milliseconds, int(_MAX_WAIT_S * 1000))


def _broker_row(broker: BrokerInfo) -> BrokerRowBody:
    return BrokerRowBody.model_validate(broker, from_attributes=True)


def _controller(controller: ControllerInfo | None) -> ControllerBody | None:
    if controller is None:
        return None
    return ControllerBody.model_validate(controller, from_attributes=True)

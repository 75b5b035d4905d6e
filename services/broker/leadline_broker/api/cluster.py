"""The broker itself and the cluster as it knows it: metadata, consult, replicas, producer ids."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from leadline_broker.runtime.broker import Broker
from leadline_client.errors import BrokerFenced, NoController, StoreOutcomeUnknown
from leadline_client.wire import BrokerInfo, ControllerInfo
from leadline_common.api.administration import CLUSTER_TAG
from leadline_common.api.metadata import MetadataBroker, metadata_routes
from leadline_common.api.models import ControllerBody, example
from leadline_common.http.caching import Document
from leadline_common.http.errors import error_responses, read_only

_CONTROLLER = {"id": 1, "url": "http://127.0.0.1:8081", "epoch": 3}
_BROKER = {"id": 1, "url": "http://127.0.0.1:9091", "rack": None, "incarnation": 1}


class ThisBroker(BaseModel):
    """This broker: fenced until `granted`."""

    model_config = example(
        {
            "id": 1,
            "url": "http://127.0.0.1:9091",
            "incarnation": 1,
            "granted": True,
            "controller": _CONTROLLER,
        }
    )

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

    model_config = example(
        {
            "replicas": [
                {
                    "topic": "orders",
                    "topic_id": "b1946ac92492d2347c6235b4d2611184",
                    "partition": 0,
                    "role": "leader",
                    "leader_epoch": 5,
                    "log_start_offset": 0,
                    "log_end_offset": 42,
                    "durable_end_offset": 42,
                    "high_watermark": 42,
                    "isr": [1, 2],
                    "log_dir": "/var/lib/leadline/orders-0",
                }
            ]
        }
    )

    replicas: list[ReplicaBody]


class ConsultBody(BaseModel):
    """Whom to talk to (seed 3); `coordinator` is null as long as none is elected."""

    model_config = example({"brokers": [_BROKER], "coordinator": None})

    brokers: list[MetadataBroker]
    coordinator: ControllerBody | None = None


class ProducerIdBody(BaseModel):
    """An identity for an idempotent producer."""

    model_config = example({"producer_id": 4000, "producer_epoch": 0})

    producer_id: int
    producer_epoch: int


def cluster_routes(broker: Broker) -> APIRouter:
    """Return the routes about the broker and the cluster."""

    async def read(after: int | None, wait_ms: int, names: list[str] | None) -> Document:
        if after is not None:
            await broker.metadata.wait_newer(after, wait_ms)
        known = broker.metadata
        if not known.version or known.controller is None:
            # An empty document would say that no topic exists.
            raise NoController("no controller has told this broker of the cluster yet: ask again")
        # The controller's own ETag, so that a change that is asked for here can be bound to it.
        return Document(known.document(names), f"{known.controller.epoch}-{known.version}")

    router = metadata_routes(CLUSTER_TAG, read, NoController)
    _add_consult(router, broker)
    _add_broker(router, broker)
    return router


def _add_consult(router: APIRouter, broker: Broker) -> None:
    @router.post("/consult", summary="Ask any broker whom to talk to")
    @read_only
    async def consult() -> ConsultBody:
        """Return the live brokers and the coordinator of consumer groups (seed 3)."""
        brokers = broker.metadata.brokers
        return ConsultBody(
            brokers=[_broker_row(brokers[number]) for number in sorted(brokers)],
            coordinator=_controller(broker.coordinator.current),
        )


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


def _broker_row(broker: BrokerInfo) -> MetadataBroker:
    return MetadataBroker.model_validate(broker, from_attributes=True)


def _controller(controller: ControllerInfo | None) -> ControllerBody | None:
    if controller is None:
        return None
    return ControllerBody.model_validate(controller, from_attributes=True)

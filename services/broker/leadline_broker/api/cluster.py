"""The cluster and this broker: metadata, coordinator, replicas, load, producer ids."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leadline_broker.api import parameters
from leadline_broker.api.shown_replicas import ReplicasBody, replicas_response, shown_replicas
from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.serving.load import BrokerLoadReport, LoadMeter, ReplicaLoad
from leadline_client.errors import BrokerFenced, NoController, StoreOutcomeUnknown
from leadline_client.wire import ControllerInfo
from leadline_common.access.caller import visible
from leadline_common.api.administration import CLUSTER_TAG
from leadline_common.api.metadata import (
    MetadataBroker,
    MetadataQuery,
    metadata_document,
    metadata_routes,
)
from leadline_common.api.models import ControllerBody, example
from leadline_common.http.bulk import send_body
from leadline_common.http.caching import Document
from leadline_common.http.errors import error_responses, read_only
from leadline_common.http.long_bodies import encode_record
from leadline_common.http.operation import Body, Operation
from leadline_common.http.router import ServiceRouter
from leadline_common.rpc import JSON, ControllerRow

_CONTROLLER = {"id": 1, "url": "http://127.0.0.1:8081", "epoch": 3}
_BROKER = {"id": 1, "url": "http://127.0.0.1:9091", "rack": None, "incarnation": 1}
_TOPIC_ID: Final = "b1946ac92492d2347c6235b4d2611184"
LOAD_OPERATION: Final = Operation(
    method="GET",
    path="/v1/load",
    name="load",
    summary="Get the load of this broker",
    description=(
        "Returns bytes and records of each replica over the last `load.window.ms`, or since the "
        "start of the broker if that is shorter; divide by the length of the window to get rates. "
        "The response has the start and the end of the window, which may be a sixth longer than "
        "the setting."
    ),
    tags=[CLUSTER_TAG],
    responses=[
        Body(
            JSON,
            "The load",
            BrokerLoadReport,
            BrokerLoadReport(
                1,
                1_790_000_000_000,
                1_790_000_060_000,
                500_000_000_000,
                420_000_000_000,
                [
                    ReplicaLoad(
                        "orders", _TOPIC_ID, 0, True, 73_400_320, 6_144_000, 50_000, 12_288_000
                    )
                ],
            ),
        )
    ],
    errors=[BrokerFenced],
)


class ThisBroker(BaseModel):
    """The state of this broker, which is fenced until `granted`."""

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


class FindCoordinatorBody(BaseModel):
    """The live brokers and the group coordinator; `coordinator` is null while none is elected."""

    model_config = example({"brokers": [_BROKER], "coordinator": None})

    brokers: list[MetadataBroker]
    coordinator: ControllerBody | None = None


class ProducerIdBody(BaseModel):
    """The identity of an idempotent producer."""

    model_config = example({"producer_id": 67125641216, "producer_epoch": 0})

    producer_id: int
    producer_epoch: int


def cluster_routes(broker: Broker) -> ServiceRouter:
    """Return the routes about the broker and the cluster."""
    router = metadata_routes(CLUSTER_TAG, partial(read_metadata, broker.metadata), NoController)
    _add_routes(router, broker)
    return router


async def read_metadata(metadata: ClusterMetadataCache, query: MetadataQuery) -> Document:
    """Return what a query asks for: the changes since the caller's state, or everything.

    Raises:
        NoController: there is no metadata yet.

    """
    if query.after is not None:
        await metadata.wait_newer(query.after, query.wait_ms)
    if query.base is not None:
        changes = await metadata.changes(query.base, query.shown)
        if changes is not None:
            return metadata_document(*changes, changes=True)
    if query.topics is None:
        await metadata.encode_topics()
    if metadata.tag is None:
        # An empty document would say that no topic exists.
        raise NoController("this broker has no metadata from a controller yet")
    shown = visible("topic", query.topics, metadata.topic_names)
    return metadata_document(metadata.tag, metadata.document(shown))


def _add_routes(router: ServiceRouter, broker: Broker) -> None:
    @router.post("/consult", summary="Find the coordinator")
    @read_only
    async def find_coordinator() -> FindCoordinatorBody:
        """Return the live brokers and the group coordinator.

        Any broker answers (Consumer Coordinator design, On Consumer Startup).
        """
        brokers = broker.metadata.brokers
        return FindCoordinatorBody(
            brokers=[
                MetadataBroker.model_validate(brokers[number], from_attributes=True)
                for number in sorted(brokers)
            ],
            coordinator=_controller(broker.coordinator_finder.current),
        )

    @router.get("/broker", summary="Get the state of this broker")
    async def this_broker() -> ThisBroker:
        """Return identity, incarnation and grant of the broker that answers."""
        state = broker.state
        return ThisBroker(
            id=state.broker_id,
            url=state.url,
            incarnation=state.incarnation,
            granted=state.granted,
            controller=_controller(broker.metadata.controller),
        )

    @router.get(
        "/replicas", summary="List the replicas on this broker", response_model=ReplicasBody
    )
    async def replicas(
        topic: Annotated[str | None, Query(description="Only replicas of this topic")] = None,
    ) -> Response:
        """Return role, leader epoch and ends of every local replica, or those of a topic."""
        return await replicas_response(await shown_replicas(broker.engine, topic))

    @router.post(
        "/producer-ids",
        summary="Allocate a producer id",
        responses=error_responses(BrokerFenced, StoreOutcomeUnknown),
    )
    async def allocate_producer_id() -> ProducerIdBody:
        """Return a unique id for an idempotent producer. Ids may be skipped, never repeated.

        With authentication, the id belongs to the sender, and no other user can produce with it.
        """
        producer_id, producer_epoch = await broker.engine.producer_ids.allocate()
        return ProducerIdBody(producer_id=producer_id, producer_epoch=producer_epoch)


def _controller(controller: ControllerInfo | ControllerRow | None) -> ControllerBody | None:
    if controller is None:
        return None
    return ControllerBody.model_validate(controller, from_attributes=True)


class LoadEndpoint:
    """The ASGI endpoint of `LOAD_OPERATION`; `meter()` raises BrokerFenced during start."""

    def __init__(self, meter: Callable[[], LoadMeter]) -> None:
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the load of all replicas."""
        del receive
        parameters.Query(scope, ())
        load = await self._meter().report()
        await send_body(send, await encode_record(load, "partitions"), JSON.encode())

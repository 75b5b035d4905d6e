"""The cluster and this broker: metadata, coordinator, replicas, load, producer ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import msgspec
from fastapi import Query
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from leadline_broker.api import parameters
from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.engine import Engine
from leadline_broker.runtime.replication.partition import ReplicaInfo
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


class FollowerBody(BaseModel):
    """A follower as its leader knows it; what it has not stated in this leader epoch is -1."""

    broker: int
    log_end_offset: int = Field(description="The durable end of its log")
    last_fetch_ms: int = Field(description="When it fetched last, in Unix ms")
    last_caught_up_ms: int = Field(description="When it had the whole log last, in Unix ms")


class ReplicaBody(BaseModel):
    """One local replica. Ends are exclusive offsets; only a leader has `isr` and `followers`.

    `role_epoch` is the leader epoch at which it took its role; null while it has none.
    """

    topic: str
    topic_id: str
    partition: int
    role: str
    role_epoch: int | None
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    durable_end_offset: int
    high_watermark: int
    isr: list[int] | None
    log_dir: str
    size_bytes: int = Field(description="The size of its log on disk")
    followers: list[FollowerBody] | None = None


class ReplicasBody(BaseModel):
    """Every local replica, by topic and partition."""

    model_config = example(
        {
            "replicas": [
                {
                    "topic": "orders",
                    "topic_id": _TOPIC_ID,
                    "partition": 0,
                    "role": "leader",
                    "role_epoch": 5,
                    "leader_epoch": 5,
                    "log_start_offset": 0,
                    "log_end_offset": 42,
                    "durable_end_offset": 42,
                    "high_watermark": 42,
                    "isr": [1, 2],
                    "log_dir": "/var/lib/leadline/orders-0",
                    "size_bytes": 73_400_320,
                    "followers": [
                        {
                            "broker": 2,
                            "log_end_offset": 42,
                            "last_fetch_ms": 1_790_000_060_000,
                            "last_caught_up_ms": 1_790_000_060_000,
                        }
                    ],
                }
            ]
        }
    )

    replicas: list[ReplicaBody]


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

    @router.get("/replicas", summary="List the replicas on this broker")
    async def replicas(
        topic: Annotated[str | None, Query(description="Only replicas of this topic")] = None,
    ) -> ReplicasBody:
        """Return role, leader epoch and ends of every local replica, or those of a topic."""
        return ReplicasBody(replicas=shown_replicas(broker.engine, topic))

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


def shown_replicas(engine: Engine, topic: str | None) -> list[ReplicaBody]:
    """Return the local replicas, or those of a topic, with times in Unix ms."""
    offset_ms = engine.clock.wall_ms() - engine.clock.monotonic_ms()
    return [_shown_replica(replica, offset_ms) for replica in engine.replicas.describe(topic)]


def _shown_replica(replica: ReplicaInfo, offset_ms: int) -> ReplicaBody:
    def time(monotonic_ms: int) -> int:
        return monotonic_ms + offset_ms if monotonic_ms else -1

    followers = [
        FollowerBody(
            broker=one.broker,
            log_end_offset=one.log_end_offset,
            last_fetch_ms=time(one.last_fetch_ms),
            last_caught_up_ms=time(one.last_caught_up_ms),
        )
        for one in replica.followers or ()
    ]
    shown = ReplicaBody.model_validate(replace(replica, followers=None), from_attributes=True)
    shown.followers = None if replica.followers is None else followers
    return shown


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
        await send_body(send, msgspec.json.encode(load), JSON.encode())

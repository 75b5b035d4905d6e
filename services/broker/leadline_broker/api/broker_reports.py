"""What any broker reports of any live broker: its load in total, and its replicas of a topic.

A page in a browser reaches one broker only. A request about another broker is passed on to it, and
this broker asks for itself: both operations need the same right, which brokers have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Final

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from leadline_broker.api.shown_replicas import (
    MOST_PARTITIONS,
    ReplicasBody,
    replicas_response,
    shown_replicas,
)
from leadline_broker.runtime.broker import Broker
from leadline_client.errors import BrokerFenced, BrokerNotAvailable, NotFound
from leadline_common.api.administration import CLUSTER_TAG
from leadline_common.api.models import example
from leadline_common.http.errors import error_responses
from leadline_common.http.forward import Forwarder
from leadline_common.http.router import ServiceRouter

_TIMEOUT_S: Final = 5.0
BrokerId = Annotated[int, Path(ge=0, le=2**31 - 1, description="The broker's id", examples=[1])]


class BrokerLoadBody(BaseModel):
    """The load of a broker over a window, in total; times in Unix ms."""

    model_config = example(
        {
            "broker_id": 1,
            "window_start_ms": 1_790_000_000_000,
            "window_end_ms": 1_790_000_060_000,
            "disk_total_bytes": 500_000_000_000,
            "disk_free_bytes": 420_000_000_000,
            "size_bytes": 73_400_320,
            "leaders": 80,
            "replicas": 240,
            "produced_bytes": 6_144_000,
            "produced_records": 50_000,
            "replicated_bytes": 4_096_000,
            "fetched_bytes": 12_288_000,
        }
    )

    broker_id: int
    window_start_ms: int
    window_end_ms: int
    disk_total_bytes: int
    disk_free_bytes: int
    size_bytes: int = Field(description="The size of all logs")
    leaders: int
    replicas: int
    produced_bytes: int = Field(description="What producers appended to the leaders here")
    produced_records: int
    replicated_bytes: int = Field(description="What the followers here appended")
    fetched_bytes: int = Field(description="What consumers read here")


def report_routes(broker: Broker, to_brokers: Forwarder) -> ServiceRouter:
    """Return the routes; `to_brokers` asks other brokers in the name of this one."""
    router = ServiceRouter()

    async def answer(
        broker_id: int, request: Request, here: Callable[[], Awaitable[Response]]
    ) -> Response:
        if broker_id == broker.state.broker_id:
            return await here()
        address = broker.state.address_of(broker_id)
        if broker_id not in broker.metadata.brokers or address is None:
            raise NotFound(f"broker {broker_id} is not live")
        return await to_brokers.forward(request, address, timeout_s=_TIMEOUT_S)

    _add_load(router, broker, answer)
    _add_replicas(router, broker, answer)
    return router


_Answer = Callable[[int, Request, Callable[[], Awaitable[Response]]], Awaitable[Response]]


def _add_load(router: ServiceRouter, broker: Broker, answer: _Answer) -> None:
    @router.get(
        "/v1/brokers/{broker_id}/load",
        tags=[CLUSTER_TAG],
        summary="Get the total load of a broker",
        response_model=BrokerLoadBody,
        responses=error_responses(NotFound, BrokerNotAvailable, BrokerFenced),
    )
    async def read_broker_load(broker_id: BrokerId, request: Request) -> Response:
        """Return bytes and records of all replicas of a live broker, added up.

        They are those of `GET /v1/load` at that broker: divide by the length of the window to get
        rates. Any broker answers, and asks the other one.
        """

        async def here() -> Response:
            return JSONResponse(asdict(await broker.engine.load.totals()))

        return await answer(broker_id, request, here)


def _add_replicas(router: ServiceRouter, broker: Broker, answer: _Answer) -> None:
    @router.get(
        "/v1/brokers/{broker_id}/replicas",
        tags=[CLUSTER_TAG],
        summary="List the replicas of a topic on a broker",
        response_model=ReplicasBody,
        responses=error_responses(NotFound, BrokerNotAvailable, BrokerFenced),
    )
    async def list_broker_replicas(
        broker_id: BrokerId,
        request: Request,
        topic: Annotated[str, Query(description="The topic's name", examples=["orders"])],
        first: Annotated[
            int, Query(ge=0, le=MOST_PARTITIONS, description="The lowest partition to list")
        ] = 0,
        last: Annotated[
            int, Query(ge=0, le=MOST_PARTITIONS, description="The highest partition to list")
        ] = MOST_PARTITIONS,
    ) -> Response:
        """Return role, leader epoch and ends of the replicas that a live broker has of a topic.

        The difference between the log end offsets of the leader and of a follower is how far the
        follower is behind. Any broker answers, and asks the other one.
        """

        async def here() -> Response:
            return await replicas_response(await shown_replicas(broker.engine, topic, first, last))

        return await answer(broker_id, request, here)

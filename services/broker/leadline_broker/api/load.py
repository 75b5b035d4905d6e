"""The load of this broker, for whoever evens it out."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from leadline_broker.api.parameters import Query
from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.serving.views import BrokerLoadReport, ReplicaLoad
from leadline_client.errors import BrokerFenced
from leadline_common.api.administration import CLUSTER_TAG
from leadline_common.http.bulk import send_body
from leadline_common.http.operation import Body, Operation
from leadline_common.rpc import JSON

LOAD_PATH: Final = "/v1/load"


_ID: Final = "b1946ac92492d2347c6235b4d2611184"
OPERATION: Final = Operation(
    method="GET",
    path=LOAD_PATH,
    name="load",
    summary="Tell the load of this broker",
    description=(
        "Bytes and records of each replica here over the last `load.window.ms`, or since the "
        "start where that is less; divide by the window's length for rates. The window may be a "
        "sixth longer than asked for: its ends are in the answer."
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
                [ReplicaLoad("orders", _ID, 0, True, 73_400_320, 6_144_000, 50_000, 12_288_000)],
            ),
        )
    ],
    errors=[BrokerFenced],
)


class LoadEndpoint:
    """The ASGI endpoint of `OPERATION`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the load of all replicas."""
        del receive
        Query(scope, ())
        load = await self._broker.engine.load.report()
        await send_body(send, msgspec.json.encode(load), JSON.encode())

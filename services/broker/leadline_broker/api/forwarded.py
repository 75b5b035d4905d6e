"""Administration through any broker: requests that only the controller can answer.

Clients know brokers, not controllers, so every broker passes these on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request
from starlette.responses import Response

from leadline_broker.runtime.broker import Broker
from leadline_client.errors import ConnectionLost, NoController
from leadline_common.http.errors import error_responses
from leadline_common.http.forward import Forwarder

TAG = "administration"
_TIMEOUT_S = 90.0
_ROUTES = (
    ("GET", "/controller", "Read which controller is active"),
    ("GET", "/cluster", "Read the state of the cluster"),
    ("GET", "/brokers", "List the live brokers"),
    ("GET", "/brokers/{broker_id}", "Read one broker"),
    ("GET", "/topics", "List the topics"),
    ("POST", "/topics", "Create a topic"),
    ("GET", "/topics/{topic}", "Read one topic"),
    ("DELETE", "/topics/{topic}", "Delete a topic"),
    ("POST", "/elections", "Elect leaders"),
    ("POST", "/what-if/election", "Ask what an election would decide"),
    ("POST", "/what-if/placement", "Ask where replicas would be placed"),
)


def forwarded_routes(broker: Broker, forwarder: Forwarder) -> APIRouter:
    """Return the routes that are passed on to the active controller."""
    router = APIRouter(prefix="/v1", tags=[TAG])
    for method, path, summary in _ROUTES:
        router.add_api_route(
            path,
            _passing_on(broker, forwarder),
            methods=[method],
            summary=summary,
            description=(
                f"Passed on to the active controller, as it is: see `{method} /v1{path}` there."
            ),
            name=_name(method, path),
            responses=error_responses(NoController, ConnectionLost),
        )
    return router


def _passing_on(broker: Broker, forwarder: Forwarder) -> Callable[[Request], Awaitable[Response]]:
    async def pass_on(request: Request) -> Response:
        controller = broker.metadata.controller
        if controller is None:
            raise NoController("this broker has not heard of an active controller yet")
        return await forwarder.forward(request, controller.url, timeout_s=_TIMEOUT_S)

    return pass_on


def _name(method: str, path: str) -> str:
    words = path.translate(str.maketrans("/-", "__", "{}")).strip("_")
    return f"{method.lower()}_{words}"

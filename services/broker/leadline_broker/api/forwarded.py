"""Administration through any broker: requests that only the controller can answer.

Clients know brokers, not controllers, so every broker passes these on, as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from leadline_broker.runtime.broker import Broker
from leadline_client.errors import NoController
from leadline_common.api.administration import administration_routes
from leadline_common.http.forward import Forwarder

_TIMEOUT_S = 90.0


def forwarded_routes(broker: Broker, forwarder: Forwarder) -> APIRouter:
    """Return the routes that are passed on to the active controller."""

    async def pass_on(request: Request) -> Response:
        controller = broker.metadata.controller
        if controller is None:
            raise NoController("this broker has not heard of an active controller yet")
        return await forwarder.forward(request, controller.url, timeout_s=_TIMEOUT_S)

    class ForwardedRoute(APIRoute):
        """Shows what the controller's route shows; the controller parses and answers."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            return pass_on

    return administration_routes(ForwardedRoute)

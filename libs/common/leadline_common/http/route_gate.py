"""Serves plain endpoints, and refuses what no route serves, before the web framework tries routes.

The framework asks one route after another, and has two layers of its own in front of them. That
takes longer than all the rest of a refusal, and a tenth of what a broker does for a small record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette._utils import get_route_path as _path
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline_client.errors import LeadlineError, MethodNotAllowed
from leadline_common.http.errors import (
    error_response,
    no_route,
    on_http_exception,
    on_leadline_error,
)
from leadline_common.http.route_index import ROUTE_KEY, IndexedRoute, RouteIndex

_ORDER: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class RouteGate:
    """The ASGI layer that calls plain endpoints, and answers 404, 405 and OPTIONS.

    `index()` has the routes. An outer layer has found the route (`ROUTE_KEY`).
    """

    app: ASGIApp
    index: Callable[[], RouteIndex]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        route: IndexedRoute | None = scope[ROUTE_KEY] if scope["type"] == "http" else None
        if scope["type"] == "http" and route is None:
            await self._refusal(scope)(scope, receive, send)
        elif route is not None and route.is_plain:
            await _serve(route, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response:
        """Return the answer to a request that no route serves."""
        found = self.index().methods_at(_path(scope))
        if not found:
            return error_response(no_route(scope["path"]))
        methods = found | {"HEAD"} if "GET" in found else found
        allow = {"Allow": ", ".join([*(one for one in _ORDER if one in methods), "OPTIONS"])}
        if scope["method"] == "OPTIONS":
            return Response(status_code=204, headers=allow)
        message = f"{scope['path']} does not support {scope['method']}"
        return error_response(MethodNotAllowed(message), allow)


async def _serve(route: IndexedRoute, scope: Scope, receive: Receive, send: Send) -> None:
    """Call a plain endpoint, and answer with its error as the framework would."""
    found = route.pattern.match(_path(scope))
    scope["path_params"] = found.groupdict() if found else {}
    scope["endpoint"] = route.endpoint
    answer = _Answer(send)
    try:
        await route.endpoint(scope, receive, answer.send)
    except (LeadlineError, HTTPException) as error:
        if answer.has_started:
            raise
        request = Request(scope)
        handled = (
            on_leadline_error(request, error)
            if isinstance(error, LeadlineError)
            else on_http_exception(request, error)
        )
        await (await handled)(scope, receive, send)


@dataclass(slots=True)
class _Answer:
    """The `send` of one request, which tells whether the response has started."""

    _send: Send
    has_started: bool = False

    async def send(self, message: Message) -> None:
        """Send a message."""
        self.has_started = True
        await self._send(message)

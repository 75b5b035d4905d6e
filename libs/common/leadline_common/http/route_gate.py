"""Refuses requests that no route serves before the web framework tries all its routes.

The framework asks every route, which takes longer than all the rest of such a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette._utils import get_route_path as _path
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from leadline_client.errors import MethodNotAllowed
from leadline_common.http.errors import error_response, no_route
from leadline_common.http.route_index import ROUTE_KEY, RouteIndex

_ORDER: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class RouteGate:
    """The ASGI layer that answers 404 and 405, and OPTIONS. `index()` has the routes.

    An outer layer has found the route (`ROUTE_KEY`).
    """

    app: ASGIApp
    index: Callable[[], RouteIndex]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope[ROUTE_KEY] is not None:
            await self.app(scope, receive, send)
            return
        await self._refusal(scope)(scope, receive, send)

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

"""Keeps the routes between services off the public listener, and most others off the internal one.

Both listeners serve one application. Requests of the internal listener have the identity of the
calling service in their scope (`leadline_common.http.tls`); requests of the public one have none.
In a cluster with authentication, services forward clients' requests to the internal listener: it
then serves all routes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from leadline_common.http.errors import error_response, no_route
from leadline_common.identity import ServiceIdentity

PEER_KEY: Final = "leadline.peer"
"""The key of the ASGI scope with the identity of the calling service.

Only the internal listener sets it: a scope without it is a request of the public one.
"""
_HEALTH: Final = "/healthz"


def caller_of(scope: Scope) -> ServiceIdentity:
    """Return the service that sent a request of the internal listener."""
    caller: ServiceIdentity = scope[PEER_KEY]
    return caller


@dataclass(frozen=True, slots=True)
class ListenerGate:
    """The ASGI layer that answers 404 to a request on the wrong listener.

    `internal_paths()` returns the paths of the routes between services. Other paths are served on
    the internal listener if `serves_all()`.
    """

    app: ASGIApp
    internal_paths: Callable[[], Collection[str]]
    serves_all: Callable[[], bool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and not self._belongs(scope):
            refusal = error_response(no_route(scope["path"]))
            await refusal(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _belongs(self, scope: Scope) -> bool:
        # The pattern of a route ends with `$`, which matches before a line feed at the end, too.
        path = scope["path"].removesuffix("\n")
        if PEER_KEY not in scope:
            return path not in self.internal_paths()
        return path == _HEALTH or path in self.internal_paths() or self.serves_all()

"""The ASGI layer that limits how many requests a user sends, and who pays for a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from leadline_client.errors import QuotaExceeded
from leadline_common.access.caller import current_caller
from leadline_common.access.operations import PUBLIC
from leadline_common.http.errors import error_response
from leadline_common.http.internal import PEER_KEY
from leadline_common.http.route_index import ROUTE_KEY
from leadline_common.quotas.gate import QuotaGate
from leadline_common.quotas.ledger import Payer
from leadline_common.quotas.limits import Quota


def payer_of(scope: Scope) -> Payer | None:
    """Return whose quota a request of the public listener uses, None for one of a service.

    What the internal listener receives is replication, or was paid for where it came in.
    """
    if PEER_KEY in scope:
        return None
    payer = current_payer()
    if payer is not None:
        return payer
    client = scope.get("client")
    return Payer(address=client[0]) if client else None


def current_payer() -> Payer | None:
    """Return the user who sends the request that is being handled, None if it is no user."""
    principal = current_caller().principal
    return Payer(principal.name) if principal.kind == "user" else None


@dataclass(frozen=True, slots=True)
class QuotaLayer:
    """Refuses requests and handshakes of users who send too many; probes pay nothing.

    Outer layers have found the sender and the route.
    """

    app: ASGIApp
    gate: Callable[[], QuotaGate]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] in ("http", "websocket"):
            route = scope[ROUTE_KEY]
            if route is None or route.operation not in PUBLIC:
                try:
                    self.gate().admit(Quota.REQUESTS, payer_of(scope), 1)
                except QuotaExceeded as error:
                    await error_response(error)(scope, receive, send)
                    return
        await self.app(scope, receive, send)

"""Standby coordinators forward: any coordinator can be asked anything over HTTP.

A redirect would name an address that the caller may not reach. A channel is not
forwarded: its consumer is told who the coordinator is not, and consults a broker.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from leadline_client.errors import BodyTooLarge, LeadlineError
from leadline_common.http import Forwarder, error_response
from leadline_coordinator.runtime.service import CoordinatorService

TIMEOUT_S = 30.0

_OWN = ("/v1/coordinator",)
_OWN_PREFIX = "/v1/what-if/"
_API = "/v1/"


class StandbyGate:
    """The ASGI layer that passes on what only the active coordinator can answer."""

    def __init__(self, app: ASGIApp, coordinator: CoordinatorService, forwarder: Forwarder) -> None:
        self._app = app
        self._coordinator = coordinator
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request here or there."""
        if scope["type"] != "http" or self._coordinator.is_active or _is_own(scope["path"]):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            url = self._coordinator.elsewhere()
            response = await self._forwarder.forward(request, url, timeout_s=TIMEOUT_S)
        except LeadlineError as error:
            response = error_response(error)
        except HTTPException as error:  # the body was larger than this service reads
            response = error_response(BodyTooLarge(str(error.detail)))
        await response(scope, receive, send)


def _is_own(path: str) -> bool:
    """Tell whether every coordinator answers a path by itself."""
    return not path.startswith(_API) or path in _OWN or path.startswith(_OWN_PREFIX)

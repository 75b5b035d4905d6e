"""Standby controllers forward: any controller can be asked anything.

A redirect would name an address that the caller may not reach.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from leadline_client.errors import BodyTooLarge, LeadlineError
from leadline_common.export_tables import AUDIT_TABLE
from leadline_common.http import Forwarder, error_response
from leadline_common.rpc import CONTROLLED_SHUTDOWN_PATH, HEARTBEAT_PATH
from leadline_controller.runtime.service import ControllerService

TIMEOUT_S = 75.0
"""Longer than the longest poll."""

_OWN = ("/v1/controller", HEARTBEAT_PATH, CONTROLLED_SHUTDOWN_PATH)
_OWN_AREAS = ("/v1/what-if/", "/v1/audit", AUDIT_TABLE)
_PAST = "/history"
_API = "/v1/"


class StandbyGate:
    """The ASGI layer that passes on what only the active controller can answer."""

    def __init__(self, app: ASGIApp, controller: ControllerService, forwarder: Forwarder) -> None:
        self._app = app
        self._controller = controller
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request here or there."""
        if scope["type"] != "http" or self._controller.is_active or _is_own(scope["path"]):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            url = self._controller.elsewhere()
            response = await self._forwarder.forward(request, url, timeout_s=TIMEOUT_S)
        except LeadlineError as error:
            response = error_response(error)
        except HTTPException as error:  # the body was larger than this service reads
            response = error_response(BodyTooLarge(str(error.detail)))
        await response(scope, receive, send)


def _is_own(path: str) -> bool:
    """Tell whether every controller answers a path by itself."""
    if not path.startswith(_API) or path in _OWN:
        return True
    return path.startswith(_OWN_AREAS) or path.endswith(_PAST)

"""Standbys forward requests to the leader, so that a client may send any request to any of them.

A redirect would name an address that the client may not reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from leadline_client.errors import BodyTooLarge, LeadlineError
from leadline_common.http.errors import error_response
from leadline_common.http.forward import Forwarder

_API = "/v1/"


class ElectedService(Protocol):
    """A service of which one process is active at a time."""

    @property
    def is_active(self) -> bool:
        """Whether this process is active and ready to serve."""

    def active_url(self) -> str:
        """Return the URL of the active process.

        Raises:
            LeadlineError: none is known, or it is this one and not ready yet.

        """


@dataclass(frozen=True, slots=True)
class LocalPaths:
    """The paths below `/v1/` that a standby answers itself; it answers all others there too."""

    exact: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    def contain(self, path: str) -> bool:
        """Tell whether a standby answers a path itself."""
        if not path.startswith(_API) or path in self.exact:
            return True
        return path.startswith(self.prefixes) or path.endswith(self.suffixes)


class StandbyGate:
    """The ASGI layer that forwards HTTP requests which only the active process can answer."""

    def __init__(
        self,
        app: ASGIApp,
        service: ElectedService,
        forwarder: Forwarder,
        local: LocalPaths,
        timeout_s: float,
    ) -> None:
        self._app = app
        self._service = service
        self._forwarder = forwarder
        self._local = local
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request here, or forward it."""
        if scope["type"] != "http" or self._service.is_active or self._local.contain(scope["path"]):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            url = self._service.active_url()
            response = await self._forwarder.forward(request, url, timeout_s=self._timeout_s)
        except LeadlineError as error:
            response = error_response(error)
        except HTTPException as error:  # the body is larger than this service accepts
            response = error_response(BodyTooLarge(str(error.detail)))
        await response(scope, receive, send)

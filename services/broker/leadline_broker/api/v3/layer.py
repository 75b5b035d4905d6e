"""The ASGI layer around all others for requests below `/v3` and `/kafka/v3`.

It serves both prefixes by one set of routes, and puts every error into the format of the v3 API,
whichever layer or route has raised it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline_broker.api.v3.errors import response_of, translated
from leadline_client.errors import LeadlineError
from leadline_common.http.errors import error_response

PREFIX: Final = "/v3"
ALIAS: Final = "/kafka/v3"
"""The prefix of the same API in Confluent Server."""
PREFIX_KEY: Final = "leadline.v3.prefix"
"""The key of the ASGI scope with the prefix that the caller has used."""
_REPLACED: Final = frozenset({b"content-length", b"content-type"})


@dataclass(frozen=True, slots=True)
class V3Layer:
    """Passes requests on, those of the alias as if they were sent to `/v3`."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        prefix = _prefix_of(scope)
        if prefix is None:
            await self.app(scope, receive, send)
            return
        inner = {**scope, PREFIX_KEY: prefix}
        if prefix == ALIAS:
            inner["path"] = PREFIX + scope["path"].removeprefix(ALIAS)
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            inner["raw_path"] = PREFIX.encode() + raw.removeprefix(ALIAS.encode())
        if scope["method"] == "HEAD":  # a response without a body has no error format
            await self.app(inner, receive, send)
            return
        await self.app(inner, receive, _ErrorTranslator(send).send)


def _prefix_of(scope: Scope) -> str | None:
    if scope["type"] != "http":
        return None
    return _prefix_in(scope["path"])


def _prefix_in(path: str) -> str | None:
    for prefix in (PREFIX, ALIAS):
        if path == prefix or path.startswith(prefix + "/"):
            return prefix
    return None


def response_to(error: LeadlineError, path: str) -> Response:
    """Return the response to a request that is refused before any layer has it."""
    return response_of(error) if _prefix_in(path.partition("?")[0]) else error_response(error)


@dataclass(slots=True)
class _ErrorTranslator:
    """The `send` of one request, which holds an error response until it is complete."""

    inner: Send
    _start: Message | None = field(default=None, init=False)
    _content: bytes = field(default=b"", init=False)

    async def send(self, message: Message) -> None:
        """Send a message of a success at once, and an error as a whole in the v3 format."""
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            self._start = message
            return
        if self._start is None:
            await self.inner(message)
            return
        self._content += message.get("body", b"")
        if not message.get("more_body"):
            await self._send_error(self._start)

    async def _send_error(self, start: Message) -> None:
        response = translated(start["status"], self._content)
        kept = [(name, value) for name, value in start["headers"] if name not in _REPLACED]
        stated = {name for name, _ in kept}
        own = [(name, value) for name, value in response.raw_headers if name not in stated]
        head = {**start, "status": response.status_code, "headers": [*kept, *own]}
        await self.inner(head)
        await self.inner({"type": "http.response.body", "body": response.body})

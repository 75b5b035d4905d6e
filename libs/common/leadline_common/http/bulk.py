"""Bulk RPC between services: msgspec structs through thin ASGI endpoints.

msgspec decodes and validates a request of ten thousand partitions in milliseconds, twenty
times faster than pydantic models. OpenAPI documents these routes like all others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec
import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline_client.errors import (
    BodyTooLarge,
    Forbidden,
    InvalidRequest,
    LeadlineError,
    UnsupportedFormat,
)
from leadline_common.http.app import ServiceApp
from leadline_common.http.errors import read_only
from leadline_common.http.internal import caller_of
from leadline_common.http.json_bodies import UnacceptableBody, decode_body
from leadline_common.http.long_bodies import encode_record
from leadline_common.http.long_lists import LongListDecoder
from leadline_common.http.middleware import limit_body
from leadline_common.http.operation import INTERNAL, Body, Operation, Parameter
from leadline_common.identity import ServiceIdentity
from leadline_common.rpc import JSON, MSGPACK

Encoding = Literal["json", "msgpack"]
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Handler = Callable[..., Awaitable[ResponseT | bytes]]
"""Handles a request, with path parameters by name; returns a struct or encoded bytes."""

logger = structlog.get_logger(__name__)

DEFAULT_MAX_BULK_BYTES = 64 * 1024 * 1024


def bulk_route(
    app: ServiceApp,
    path: str,
    handler: Handler[ResponseT],
    request_type: type[RequestT],
    response_type: type[ResponseT],
    *,
    tag: str = INTERNAL,
    parameters: Sequence[Parameter] = (),
    name: str,
    summary: str,
    description: str,
    encoding: Encoding = "json",
    errors: Sequence[type[LeadlineError]] = (),
    max_body_bytes: int = DEFAULT_MAX_BULK_BYTES,
    request_example: RequestT | None = None,
    response_example: ResponseT | None = None,
    changes_nothing: bool = False,
    speaker: Callable[[RequestT], ServiceIdentity] | None = None,
    long_list: str | None = None,
    long_answer: str | None = None,
) -> None:
    """Serve POST `path`: decode a `request_type`, await `handler`, encode its result.

    A body that does not decode is answered with 400 / 40050 and does not reach the handler.
    `name` is the operation id in OpenAPI. With `changes_nothing`, an internal error has the
    outcome `refused` instead of `unknown`.

    `speaker` returns the service that a request says it comes from. Every internal route has one,
    and refuses requests of any other service. `long_list` names the member that is nearly all of a
    long JSON request, `long_answer` that of a long JSON response: they are decoded and encoded in
    turns.
    """
    if (tag == INTERNAL) is not (speaker is not None):
        raise ValueError(f"{path}: an internal route, and no other, names who may call it")
    media_type = JSON if encoding == "json" else MSGPACK
    operation = Operation(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        description=description,
        tags=[tag],
        parameters=parameters,
        requests=[Body(media_type, "", request_type, request_example)],
        responses=[Body(media_type, "The outcome", response_type, response_example)],
        errors=[BodyTooLarge, UnsupportedFormat, *([Forbidden] if speaker else []), *errors],
    )
    endpoint = bulk_endpoint(
        handler, request_type, encoding, max_body_bytes, speaker, long_list, long_answer
    )
    if changes_nothing:
        read_only(endpoint)
    app.add_asgi_route(operation, endpoint)


def bulk_endpoint(
    handler: Handler[ResponseT],
    request_type: type[RequestT],
    encoding: Encoding = "json",
    max_body_bytes: int = DEFAULT_MAX_BULK_BYTES,
    speaker: Callable[[RequestT], ServiceIdentity] | None = None,
    long_list: str | None = None,
    long_answer: str | None = None,
) -> ASGIApp:
    """Return the endpoint of a bulk route, for `ServiceApp.add_asgi_route`."""
    codec: Any = msgspec.json if encoding == "json" else msgspec.msgpack
    media_type = JSON if encoding == "json" else MSGPACK
    decode, encode = codec.Decoder(request_type).decode, codec.Encoder().encode
    long = None if long_list is None else LongListDecoder(request_type, long_list)
    return _BulkEndpoint(
        handler, decode, encode, media_type.encode(), max_body_bytes, speaker, long, long_answer
    )


@dataclass(eq=False)
class _BulkEndpoint(Generic[RequestT, ResponseT]):
    """The ASGI endpoint of one bulk route."""

    handler: Handler[ResponseT]
    decode: Callable[[bytes], RequestT]
    encode: Callable[[Any], bytes]
    media_type: bytes
    max_body_bytes: int
    speaker: Callable[[RequestT], ServiceIdentity] | None
    long_list: LongListDecoder[RequestT] | None
    long_answer: str | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit_body(scope, self.max_body_bytes)
        self._check_media_type(scope)
        request = await self._request(await read_body(receive))
        if self.speaker is not None:
            self._require_speaker(scope, self.speaker(request))
        response = await self.handler(request, **scope["path_params"])
        await send_body(send, await self._encoded(response), self.media_type)

    async def _encoded(self, response: ResponseT | bytes) -> bytes:
        if isinstance(response, bytes):
            return response
        if self.long_answer is None:
            return self.encode(response)
        return await encode_record(response, self.long_answer)

    @staticmethod
    def _require_speaker(scope: Scope, claimed: ServiceIdentity) -> None:
        caller = caller_of(scope)
        try:
            caller.require(claimed)
        except Forbidden:
            # Only a mistake in the configuration, or a service in foreign hands, gets here.
            path = scope["path"]
            logger.warning("false identity", caller=str(caller), claimed=str(claimed), path=path)
            raise

    def _check_media_type(self, scope: Scope) -> None:
        # A missing content type is refused, too. With these types a browser sends a preflight
        # request before a page of another origin can use the route, and the server refuses it.
        stated = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        if stated.partition(b";")[0].strip().lower() != self.media_type:
            raise UnsupportedFormat(f"the body must be {self.media_type.decode()}")

    async def _request(self, body: bytes) -> RequestT:
        request = None
        if self.long_list is not None and self.long_list.is_long(body):
            request = await self.long_list.decode(body)
        return self._decoded(body) if request is None else request

    def _decoded(self, body: bytes) -> RequestT:
        try:
            return decode_body(self.decode, body)
        except msgspec.DecodeError as problem:
            # The message ends in the path of the field, such as `$.topics[0]`.
            message, _, path = str(problem).partition(" - at `$")
            field = "body" + path.rstrip("`").replace("[", ".").replace("]", "")
            problems = [{"field": field, "message": message}]
            raise InvalidRequest(f"{field}: {message}", fields=problems) from None
        except UnacceptableBody as problem:
            raise InvalidRequest(f"body: {problem}") from None


async def read_body(receive: Receive) -> bytes:
    """Return the whole body of a request.

    Raises:
        HTTPException: the body is larger than its limit.
        ClientDisconnect: the connection ended within the body.

    """
    message = await _part(receive)
    if not message.get("more_body"):
        return bytes(message.get("body", b""))
    chunks = [message["body"]]
    while message.get("more_body"):
        message = await _part(receive)
        chunks.append(message.get("body", b""))
    return b"".join(chunks)


async def _part(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        # What has arrived is no request: it must not be taken for the whole body.
        raise ClientDisconnect
    return message


async def send_body(
    send: Send,
    body: bytes,
    media_type: bytes,
    headers: Sequence[tuple[bytes, bytes]] = (),
    status: int = 200,
) -> None:
    """Send a response with an encoded body."""
    length = (b"content-length", str(len(body)).encode())
    head = [(b"content-type", media_type), length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})

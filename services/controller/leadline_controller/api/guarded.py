"""ETags, `If-Match` and `Idempotency-Key` for all administration routes.

The routes do not handle these headers themselves. `leadline_common.api.guards` documents
them.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import zlib

import msgspec
import structlog
from fastapi import Request
from starlette.responses import Response

from leadline_client.errors import InvalidRequest, LeadlineError
from leadline_common.access.caller import current_caller
from leadline_common.access.principals import ANONYMOUS
from leadline_common.api.guards import (
    IDEMPOTENCY_KEY,
    IF_MATCH,
    REPLAYED,
    WITHOUT_KEYS,
    changes_something,
    resource_of,
)
from leadline_common.http.strict_route import Serve, StrictRoute
from leadline_controller.domain.idempotency import MAX_RESPONSE_BYTES, StoredResponse
from leadline_controller.runtime.engine.guard import Condition, Guard, ResourceName, guard_scope
from leadline_controller.runtime.idempotency import DropKey, KeepAnswer, TakeKey
from leadline_controller.runtime.service import ControllerService

logger = structlog.get_logger(__name__)

_KEY = re.compile(r"[!-~]([ -~]{0,253}[!-~])?")
_ETAG = re.compile(r'"[!#-~]*"')
_STORED_HEADERS = ("content-type", "etag", "location")


class GuardedRoute(StrictRoute):
    """A route that adds ETags to reads and applies the guard headers to changes.

    The controller is `app.state.controller`, so that applications can share a route.
    """

    def get_route_handler(self) -> Serve:
        """Return what serves a request."""
        serve = super().get_route_handler()
        method = min(self.methods or ("GET",))
        if method == "GET" and resource_of(self.path, method) is not None:
            return _tagging(self.path, serve)
        if changes_something(method, self.endpoint):
            return _guarding(self.path, serve)
        return serve


def _controller_of(request: Request) -> ControllerService:
    controller: ControllerService = request.app.state.controller
    return controller


def _tagging(path: str, serve: Serve) -> Serve:
    """Add the ETag of the resource to the response of a read."""

    async def tagging(request: Request) -> Response:
        named, controller = _named(path, request), _controller_of(request)
        # Take the ETag before reading, so that a concurrent change makes it too old, never too new.
        etag = None if named is None else controller.active_controller().etags.of(named)
        response = await serve(request)
        if etag is not None:
            response.headers["ETag"] = etag
        return response

    return tagging


def _guarding(path: str, serve: Serve) -> Serve:
    async def guarding(request: Request) -> Response:
        guard = Guard(_condition(path, request))
        key = request.headers.get(IDEMPOTENCY_KEY)
        if key is not None and path in WITHOUT_KEYS:
            raise _invalid(IDEMPOTENCY_KEY, "this route takes none: its response is not kept")
        if key is not None:
            return await _once(_controller_of(request), key, guard, request, serve)
        with guard_scope(guard):
            return await serve(request)

    return guarding


async def _once(
    controller: ControllerService, key: str, guard: Guard, request: Request, serve: Serve
) -> Response:
    """Serve a request once; a retry with the same key gets the stored response."""
    if not _KEY.fullmatch(key):
        raise _invalid(IDEMPOTENCY_KEY, "must be 1 to 255 printable ASCII characters")
    # Nobody gets the response to somebody else's request, or learns that there was one.
    principal = current_caller().principal
    key = key if principal == ANONYMOUS else f"{principal} {key}"
    what = f"{request.method} {request.url.path}"
    taken = await controller.ask(TakeKey(key=key, request=await _digest(request), what=what))
    if isinstance(taken, StoredResponse):
        return _replayed(taken)
    guard.mark = taken
    stored = False
    try:
        with guard_scope(guard):
            response = await serve(request)
        stored = await _store(controller, key, response)
    finally:
        if not stored:
            controller.post(DropKey(key, guard.marked))
    return response


async def _store(controller: ControllerService, key: str, response: Response) -> bool:
    """Store a response for retries; on failure, the key's record still marks the change."""
    body = zlib.compress(bytes(response.body), level=1)
    headers = {name: response.headers[name] for name in _STORED_HEADERS if name in response.headers}
    answer = StoredResponse(response.status_code, headers, body)
    try:
        await controller.ask(
            KeepAnswer(key=key, answer=answer if len(body) <= MAX_RESPONSE_BYTES else None)
        )
    except LeadlineError as problem:
        logger.warning("response for idempotency key not stored", key=key, reason=problem.message)
        return False
    return True


def _replayed(stored: StoredResponse) -> Response:
    headers = {**stored.headers, REPLAYED: "true"}
    return Response(zlib.decompress(stored.body), stored.status, headers)


async def _digest(request: Request) -> str:
    """Return a digest of a request that does not depend on the order of members in its body."""
    body = await request.body()
    # A body that is not JSON is used as it is.
    with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
        body = msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    head = f"{request.method} {request.url.path}?{request.url.query}\n"
    return hashlib.sha256(head.encode() + body).hexdigest()


def _condition(path: str, request: Request) -> Condition | None:
    """Return the condition of the `If-Match` header, or None without one.

    Raises:
        InvalidRequest: it is not a list of ETags, or the resource of the route has no ETag.

    """
    stated = request.headers.get(IF_MATCH)
    if stated is None:
        return None
    named = _named(path, request)
    if named is None:
        raise _invalid(IF_MATCH, "the resource that this request changes has no ETag")
    if stated.strip() == "*":
        return Condition(named, None)
    etags = [etag.strip() for etag in stated.split(",")]
    if not all(map(_ETAG.fullmatch, etags)):
        raise _invalid(IF_MATCH, 'must be `*`, or ETags in quotes: "a", "b"')
    # The ETag of the compressed metadata identifies the same version.
    return Condition(named, frozenset(etag.replace('-gzip"', '"') for etag in etags))


def _named(path: str, request: Request) -> ResourceName | None:
    """Return the guarded resource that a request addresses, or None."""
    resource = resource_of(path, request.method)
    if resource is None:
        return None
    name = str(request.path_params[resource.parameter]) if resource.parameter else ""
    return resource.kind, name


def _invalid(header: str, message: str) -> InvalidRequest:
    field = f"header.{header}"
    problems = [{"field": field, "message": message}]
    return InvalidRequest(f"{field}: {message}", fields=problems)

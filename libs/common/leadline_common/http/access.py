"""The ASGI layer that finds who sends a request, and refuses what the sender may not do.

On the public listener, a request shows a token or a client certificate. On the internal one, the
certificate names a service: it either speaks for itself, or forwards a request of the principal
that `PRINCIPAL_HEADER` names. The header means nothing on the public listener.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog
from prometheus_client import Counter
from starlette._utils import get_route_path as _path
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline_client.clock import monotonic_s
from leadline_client.errors import LeadlineError, Unauthorized, UsersNotRead
from leadline_common.access.caller import (
    EVERYBODY,
    NOBODY,
    Caller,
    caller_scope,
    refusal,
    refusals_told,
    replace_caller,
    require,
)
from leadline_common.access.issued_tokens import issued_token_in
from leadline_common.access.operations import INTERNAL_OPERATIONS, PUBLIC, Need, need_of
from leadline_common.access.principals import ANONYMOUS, Principal, is_user_name
from leadline_common.access.rights import ACCESS_OF_SERVICES, UNLIMITED, Action
from leadline_common.access.tokens import token_in
from leadline_common.access.users import Users
from leadline_common.http.errors import error_response
from leadline_common.http.internal import PEER_KEY
from leadline_common.http.middleware import BODY_KEY, WITHOUT_BODY, BoundedBody
from leadline_common.http.public_tls import CLIENT_CERTIFICATE_KEY
from leadline_common.http.route_index import ROUTE_KEY, WEBSOCKET, IndexedRoute, RouteIndex
from leadline_common.identity import Kind, ServiceIdentity
from leadline_common.metrics import Metrics
from leadline_common.refusals import INTERVAL_MS, RefusalKey, RefusalSampler

PRINCIPAL_HEADER: Final = "X-Leadline-Principal"
"""Names the principal of a request that a service forwards, on the internal listener only."""
_PRINCIPAL: Final = PRINCIPAL_HEADER.lower().encode()
_AUTHORIZATION: Final = b"authorization"
_CHALLENGES: Final = ('Bearer realm="leadline"', 'Basic realm="leadline"')
"""A header each: Chromium knows the first challenge of a header only, and asks for no password."""
_WHO: Final = (
    "show who you are: `Authorization: Bearer ID.SECRET`; an administrator makes tokens with "
    "`leadline users token`"
)

_ASK_AGAIN_S: Final = 1.0
"""How long what was found of a sender counts while the body of its request arrives."""

NeedOf = Callable[[str], Need | None]
"""Returns the right that an operation needs."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Authentication:
    """Finds the caller of a request.

    `users()` returns the cluster's users, None while they were never read. Unless `required`,
    everybody may do everything, and what requests show is not looked at. `forwarders` are the
    kinds of services that forward requests to this one: no other may name a principal.
    `issued_to` returns the user whom a token that an issuer signed names, and raises Unauthorized
    or UsersNotRead; without it there is no issuer.
    """

    required: bool = False
    users: Callable[[], Users | None] = Users
    forwarders: frozenset[Kind] = frozenset()
    issued_to: Callable[[str], Principal] | None = None
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    monotonic_s: Callable[[], float] = monotonic_s

    def caller_of(self, scope: Scope) -> Caller:
        """Return who sends a request of HTTP, or the handshake of a WebSocket.

        Raises:
            Unauthorized: what it shows is malformed, unknown or expired.
            UsersNotRead: the users were not read yet.

        """
        peer: ServiceIdentity | None = scope.get(PEER_KEY)
        if peer is None and not self.required:
            return EVERYBODY
        headers = dict(scope["headers"])
        if peer is None:
            if sum(name == _AUTHORIZATION for name, _ in scope["headers"]) > 1:
                raise Unauthorized("the request has more than one `Authorization` header")
            return self._client(headers, scope)
        if _PRINCIPAL not in headers:
            return Caller(Principal.service(peer), ACCESS_OF_SERVICES[peer.kind])
        if peer.kind not in self.forwarders:
            raise Unauthorized(f"{peer} forwards no requests to this service")
        principal = Principal.parse(headers[_PRINCIPAL].decode("latin-1"))
        if principal is None:
            raise Unauthorized(f"{PRINCIPAL_HEADER}: no principal has this form")
        return self._caller(principal)

    def _client(self, headers: Mapping[bytes, bytes], scope: Scope) -> Caller:
        """Return the client that a request of the public listener shows to come from."""
        shown = headers.get(_AUTHORIZATION)
        if shown is not None:
            return self._caller(self._owner_of(shown.decode("latin-1")))
        name: str | None = scope.get(CLIENT_CERTIFICATE_KEY)
        if name is None:
            return NOBODY
        if not is_user_name(name):
            raise Unauthorized("the client certificate names no user")
        return self._caller(Principal("user", name))

    def _owner_of(self, authorization: str) -> Principal:
        """Return the user whose token is in a header."""
        issued = issued_token_in(authorization) if self.issued_to is not None else None
        if issued is not None and self.issued_to is not None:
            return self.issued_to(issued)
        token = token_in(authorization)
        owner = self._users().owner_of(token, self.now_ms()) if token else None
        if owner is None:
            raise Unauthorized("the token is malformed, unknown, revoked or has expired")
        return owner

    def _caller(self, principal: Principal) -> Caller:
        if not self.required:
            return Caller(principal, UNLIMITED)
        if principal == ANONYMOUS:
            return NOBODY
        return Caller(principal, self._users().access_of(principal))

    def _users(self) -> Users:
        users = self.users()
        if users is None:
            raise UsersNotRead("this service has not read the cluster's users yet")
        return users


@dataclass(slots=True)
class AccessLayer:
    """Refuses requests and handshakes that `need_of` does not allow; the rest gets its caller.

    The scope then has the route, which the layers further in need, too.
    """

    app: ASGIApp
    authentication: Callable[[], Authentication]
    index: Callable[[], RouteIndex]
    metrics: Metrics
    need_of: NeedOf = need_of
    _sampler: RefusalSampler = field(default_factory=RefusalSampler, init=False)
    _logged_ms: int = field(default=0, init=False)
    _refused: Counter = field(init=False)

    def __post_init__(self) -> None:
        self._refused = self.metrics.counter(
            "access_refused_requests",
            "Requests and handshakes refused because of who sent them.",
            ("reason",),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        path = _path(scope)
        route = scope[ROUTE_KEY] = self.index().find(path, scope.get("method", WEBSOCKET))
        try:
            caller = self._admit(scope, path, route)
        except LeadlineError as error:
            self._count(error, scope, route)
            answer = error_response(error)
            if isinstance(error, Unauthorized):
                for challenge in _CHALLENGES:
                    answer.headers.append("WWW-Authenticate", challenge)
            await answer(scope, receive, send)
            return
        # What a route refuses, because of what the body names, counts as well.
        with caller_scope(caller), refusals_told(partial(self._count, scope=scope, route=route)):
            await self.app(scope, self._asking_again(scope, receive, path, route), send)

    def _asking_again(
        self, scope: Scope, receive: Receive, path: str, route: IndexedRoute | None
    ) -> Receive:
        """Return `receive`, which asks again who sends a request while its body arrives.

        A body may take hours, and its sender may lose the right to the request meanwhile. From then
        on, the request is one of the sender as it is now.
        """
        if scope["type"] != "http" or scope["method"] in WITHOUT_BODY:
            return receive
        monotonic_s = self.authentication().monotonic_s
        asked_s = monotonic_s()

        async def receive_and_ask() -> Message:
            nonlocal asked_s
            message = await receive()
            if message["type"] != "http.request" or monotonic_s() - asked_s < _ASK_AGAIN_S:
                return message
            asked_s = monotonic_s()
            try:
                replace_caller(self._admit(scope, path, route))
            except LeadlineError as error:
                self._count(error, scope, route)
                # The framework passes only its own exceptions out of body parsing.
                raise HTTPException(error.status, error.message) from error
            return message

        return receive_and_ask

    def _admit(self, scope: Scope, path: str, route: IndexedRoute | None) -> Caller:
        """Return the caller of a request that is allowed.

        Raises:
            Unauthorized, Forbidden, UsersNotRead: it is not.

        """
        if route is not None and route.operation in PUBLIC:
            with suppress(LeadlineError):
                return self.authentication().caller_of(scope)
            return NOBODY
        caller = self.authentication().caller_of(scope)
        if caller == NOBODY:
            raise Unauthorized(_WHO)
        # What no route serves, and what the other listener serves, is refused further in.
        if route is None or route.operation in INTERNAL_OPERATIONS:
            return caller
        need = self.need_of(route.operation)
        if need is None:
            raise refusal(caller, Action.ADMINISTER, "cluster")
        match = route.pattern.match(path)
        name = (match[need.named_by] if need.where == "path" else "") if match else ""
        if not need.is_met(caller.access, name):
            raise refusal(caller, need.action, need.kind, name)
        return caller

    def _count(self, error: LeadlineError, scope: Scope, route: IndexedRoute | None) -> None:
        reason = type(error).__name__
        self._refused.labels(reason).inc()
        self._log(error, route.operation if route is not None else "none", scope.get("client"))

    def _log(self, error: LeadlineError, operation: str, client: tuple[str, int] | None) -> None:
        """Log the first refusals of an interval, and then how many there were."""
        now_ms = time.monotonic_ns() // 1_000_000
        if now_ms - self._logged_ms >= INTERVAL_MS:
            self._logged_ms = now_ms
            for (name, _, code), number, _ in self._sampler.take(now_ms):
                logger.warning("more requests refused", operation=name, code=code, number=number)
        if self._sampler.admit(RefusalKey(operation, "refused", error.code), now_ms):
            address = client[0] if client else ""
            logger.warning(
                "request refused", operation=operation, reason=error.message, client=address
            )


def receive_of_stream(scope: Scope) -> Receive:
    """Return what receives the parts of a stream, for endpoints that ask with each (below).

    Other bodies end with an error once their sender may not send them any more. An endpoint that
    has begun to answer cannot return one.
    """
    body: BoundedBody = scope[BODY_KEY]
    return body.receive


def require_still(scope: Scope, action: Action, topics: Iterable[str]) -> None:
    """Refuse who has lost its token, or a right to these topics, since it sent the request.

    For requests that wait, and for streams.

    Raises:
        LeadlineError: it may not do this any more.

    """
    authentication: Authentication = scope["app"].authentication
    with caller_scope(authentication.caller_of(scope)):
        require(action, "topic", topics)


def is_known_still(scope: Scope) -> bool:
    """Tell whether what a request shows still proves who sent it.

    For streams that are forwarded: the service that makes them is told the user and not the token.
    """
    authentication: Authentication = scope["app"].authentication
    try:
        return authentication.caller_of(scope) != NOBODY
    except LeadlineError:
        return False


def check_rights(operations: Iterable[str], need_of: NeedOf = need_of) -> None:
    """Check that the table of rights has an entry for each operation of a service.

    Raises:
        ValueError: a route has none; the service must not start.

    """
    known = PUBLIC | INTERNAL_OPERATIONS
    missing = sorted(one for one in set(operations) - known if need_of(one) is None)
    if missing:
        raise ValueError(f"no right is stated for these operations: {missing}")

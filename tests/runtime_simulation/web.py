"""HTTP requests of clients to the services' own ASGI applications, over the simulated network.

What lies between is left out: the bytes of HTTP/1.1, TLS, and connections that are kept alive.
`web_sockets.py` has the other kind of connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message, Scope

from leadline_client.request_urls import target_of
from leadline_client.transport import Request, Response, connection_lost, unreachable
from tests.runtime_simulation.event_loop import OWNER
from tests.runtime_simulation.network import Network, complete, host_of
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.world import World

_NOBODY_LISTENS = 0
_REPEATABLE = ("GET", "PUT", "DELETE")


class NotReached(Exception):
    """There was no connection: nothing was sent."""


class NoAnswer(Exception):
    """Nothing came back in time: the request may have been carried out."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """An HTTP request; `target` is the path with the query, encoded."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(slots=True)
class WebAnswer:
    """An HTTP response, as an application sends it piece by piece; header names are lower case."""

    status: int = _NOBODY_LISTENS
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    async def send(self, message: Message) -> None:
        """Take the next message of the application."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message.get("headers", ())
            self.headers = {name.decode().lower(): value.decode() for name, value in headers}
        else:
            self.body += bytes(message.get("body", b""))


Taker = Callable[[Process, WebRequest, Callable[[], None]], bool]


@dataclass(frozen=True, slots=True)
class Listener:
    """The application of one process; `observe` is called with each request and its status."""

    process: Process
    app: ASGIApp
    observe: Callable[[WebRequest, int], None]


def _ignore(_: WebRequest, __: int) -> None:
    """Observe nothing."""


@dataclass(eq=False)
class Web:
    """The applications that can be reached, by the name of their process, which is their host.

    A function in `on_request` sees who sends what. If it takes the function that lets the request
    arrive, by returning True, it is dropped, and the request arrives when that is called.
    """

    world: World
    network: Network
    on_request: list[Taker] = field(default_factory=list, init=False)
    _listeners: dict[str, Listener] = field(default_factory=dict, init=False)

    def serve(
        self,
        process: Process,
        app: ASGIApp,
        observe: Callable[[WebRequest, int], None] = _ignore,
    ) -> None:
        """Let a process serve an application, instead of an earlier one of its name."""
        self._listeners[process.name] = Listener(process, app, observe)

    def listener(self, name: str) -> Listener | None:
        """Return the application of a process that lives."""
        listener = self._listeners.get(name)
        return listener if listener is not None and listener.process.alive else None

    async def exchange(
        self, to: str, request: WebRequest, *, connect_s: float, timeout_s: float
    ) -> WebAnswer:
        """Send a request from the running process; return the answer, whatever its status.

        Raises:
            NotReached: there was no connection within `connect_s`.
            NoAnswer: no answer came within `timeout_s`.

        """
        sender = OWNER.get()
        assert sender is not None
        if self.network.is_cut(sender.name, to) and self.world.chance(0.5):
            await asyncio.sleep(connect_s)  # No connection was left from an earlier request.
            raise NotReached(f"no connection to {to} within {connect_s} s")
        future: asyncio.Future[WebAnswer] = self.world.loop.create_future()
        self._send(sender, to, request, future)
        if request.method in _REPEATABLE and self.world.chance(self.network.weather.repeat):
            self.network.carry(sender.name, to, self._arrive, sender, to, request, None)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            raise NoAnswer(f"no answer from {to} within {timeout_s} s") from None
        if answer.status == _NOBODY_LISTENS:
            raise NotReached(f"{to} refuses connections")
        return answer

    def _send(
        self, sender: Process, to: str, request: WebRequest, future: asyncio.Future[WebAnswer]
    ) -> None:
        arrive = partial(self._arrive, sender, to, request, future)
        for take in self.on_request:
            if take(sender, request, arrive):
                self.on_request.remove(take)
                return
        self.network.carry(sender.name, to, arrive)

    def _arrive(
        self,
        sender: Process,
        to: str,
        request: WebRequest,
        future: asyncio.Future[WebAnswer] | None,
    ) -> None:
        listener = self.listener(to)
        if listener is None:
            self.network.carry(to, sender.name, complete, future, WebAnswer())
            return
        self.world.loop.in_process(listener.process, self._serve(listener, sender, request, future))

    async def _serve(
        self,
        listener: Listener,
        sender: Process,
        request: WebRequest,
        future: asyncio.Future[WebAnswer] | None,
    ) -> None:
        answer = WebAnswer()
        await listener.app(
            _scope(listener, sender, request), _Receive(request.body).receive, answer.send
        )
        listener.observe(request, answer.status)
        if answer.status == 500:
            self.world.failures.append(
                f"{listener.process}: {request.method} {request.target} failed"
            )
        self.network.carry(listener.process.name, sender.name, complete, future, answer)


@dataclass(slots=True)
class _Receive:
    """The `receive` of a request whose body has arrived, and whose sender stays connected."""

    body: bytes
    given: bool = False

    async def receive(self) -> Message:
        if self.given:
            await asyncio.get_running_loop().create_future()
        self.given = True
        return {"type": "http.request", "body": self.body, "more_body": False}


def _scope(listener: Listener, sender: Process, request: WebRequest) -> Scope:
    length = ("content-length", str(len(request.body)))
    return scope_of(
        "http",
        listener.process.name,
        sender.name,
        request.target,
        [*request.headers, *([length] if request.body else [])],
    ) | {"method": request.method}


def scope_of(
    kind: str, host: str, client: str, target: str, headers: list[tuple[str, str]]
) -> dict[str, Any]:
    """Return what a server tells its application of any connection."""
    path, _, query = target.partition("?")
    named = [("host", host), *headers]
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http" if kind == "http" else "ws",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in named],
        "client": (client, 1),
        "server": (host, 80),
        "state": {},
    }


@dataclass(frozen=True, slots=True)
class WebTransport:
    """The transport of a client in the simulated world."""

    web: Web

    async def send(self, request: Request) -> Response:
        """Return the response; raises Unreachable or ConnectionLost."""
        parts = urlsplit(request.url)
        outgoing = WebRequest(
            request.method,
            target_of(request, parts),
            tuple(request.headers.items()),
            bytes(request.body),
        )
        try:
            answer = await self.web.exchange(
                host_of(request.url),
                outgoing,
                connect_s=request.connect_timeout_s,
                timeout_s=request.timeout_s,
            )
        except NotReached as failure:
            raise unreachable(request, failure) from failure
        except NoAnswer as failure:
            raise connection_lost(request, failure) from failure
        return Response(answer.status, answer.headers, answer.body)

    async def aclose(self) -> None:
        """Do nothing: no connection is kept."""

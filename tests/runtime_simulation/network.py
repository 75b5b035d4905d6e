"""A simulated network: requests between processes that arrive late, twice, or not at all.

`SimulatedCalls` takes the place of aiohttp in the services' own clients, which still encode each
request. `Routes` are what a process serves: bodies are decoded by the types of the real routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from leadline_client.errors import (
    ConnectionLost,
    LeadlineError,
    error_from_body,
)
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.service_calls import ServiceCalls
from leadline_common.identity import InternalAddress, ServiceAddress
from leadline_common.rpc import MSGPACK
from tests.runtime_simulation.event_loop import OWNER
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.world import World

Handler = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What comes back over the network."""

    status: int
    body: bytes


@dataclass(eq=False)
class Routes:
    """What a process serves, by path: the type of the body, and its handler."""

    handlers: dict[str, tuple[type[Any], Handler]] = field(default_factory=dict)

    def add(self, path: str, body: type[Any], handler: Handler) -> None:
        """Serve a path."""
        self.handlers[path] = body, handler

    async def answer(self, path: str, body: bytes, content_type: str) -> Answer:
        """Handle a request as the HTTP layer would."""
        codec: Any = msgspec.msgpack if content_type == MSGPACK else msgspec.json
        kind, handler = self.handlers[path]
        try:
            answer = await handler(codec.decode(body, type=kind))
        except LeadlineError as error:
            return Answer(error.status, msgspec.json.encode(error.body()))
        return Answer(200, codec.encode(answer))


@dataclass(frozen=True, slots=True)
class NetworkWeather:
    """How unreliable the network is: probabilities, and times in seconds."""

    delay_s: float = 0.003
    loss: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    late_s: float = 1.0


class Network:
    """The links between processes, by their names; a process listens at one name."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.weather = NetworkWeather()
        self.cut: set[tuple[str, str]] = set()
        self._listening: dict[str, tuple[Process, Routes]] = {}

    def listen(self, process: Process, routes: Routes) -> None:
        """Let a process serve requests to its name, instead of an earlier one of that name."""
        self._listening[process.name] = process, routes

    def isolate(self, name: str, others: list[str]) -> None:
        """Cut a process off from others, in both directions."""
        self.cut |= {(name, other) for other in others} | {(other, name) for other in others}

    def heal(self) -> None:
        """Restore all links."""
        self.cut.clear()

    async def post(
        self,
        to: str,
        path: str,
        body: bytes,
        content_type: str,
        timeout_s: float,
        *,
        repeatable: bool = True,
    ) -> bytes:
        """Send a request from the running process; return the body of the answer.

        A `repeatable` one may arrive twice, as after a retry by something in between.

        Raises:
            LeadlineError: the answer is this error, or ConnectionLost.

        """
        sender = OWNER.get()
        assert sender is not None
        future: asyncio.Future[Answer] = self.world.loop.create_future()
        self._send(sender.name, to, self._arrive, sender, to, path, body, content_type, future)
        if repeatable and self.world.chance(self.weather.repeat):
            self._send(sender.name, to, self._arrive, sender, to, path, body, content_type, None)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            raise ConnectionLost(f"no response from {to} to {path}") from None
        if answer.status == 0:
            raise ConnectionLost(f"{to} has closed the connection")
        if answer.status != 200:
            raise error_from_body(answer.status, msgspec.json.decode(answer.body))
        return answer.body

    def _send(self, sender: str, to: str, arrive: Callable[..., object], *args: Any) -> None:
        weather, world = self.weather, self.world
        if (sender, to) in self.cut or world.chance(weather.loss):
            return
        delay_s = world.between(0.0002, weather.delay_s)
        if world.chance(weather.late):
            delay_s += world.between(0, weather.late_s)
        world.loop.after(delay_s, arrive, *args)

    def _arrive(
        self,
        sender: Process,
        to: str,
        path: str,
        body: bytes,
        content_type: str,
        future: asyncio.Future[Answer] | None,
    ) -> None:
        found = self._listening.get(to)
        if found is None or not found[0].alive:
            self._send(to, sender.name, self._complete, future, Answer(0, b""))
            return
        process, routes = found
        if path not in routes.handlers:
            raise AssertionError(f"{to} does not serve {path}")
        self.world.loop.in_process(
            process, self._serve(process, routes, sender, path, body, content_type, future)
        )

    async def _serve(
        self,
        process: Process,
        routes: Routes,
        sender: Process,
        path: str,
        body: bytes,
        content_type: str,
        future: asyncio.Future[Answer] | None,
    ) -> None:
        answer = await routes.answer(path, body, content_type)
        self._send(process.name, sender.name, self._complete, future, answer)

    @staticmethod
    def _complete(future: asyncio.Future[Answer] | None, answer: Answer) -> None:
        if future is not None and not future.done():
            future.set_result(answer)


class SimulatedCalls(ServiceCalls):
    """The services' calls of each other, over the simulated network. URLs end in a name."""

    def __init__(self, network: Network) -> None:
        super().__init__(PeerConnections())
        self._network = network

    async def post_internal(
        self, to: InternalAddress, path: str, body: bytes, content_type: str, timeout_ms: int
    ) -> bytes:
        """Return the body of a successful response."""
        return await self._network.post(
            name_in(to.url), path, body, content_type, timeout_ms / 1000
        )

    async def post(
        self, to: ServiceAddress, path: str, body: bytes, content_type: str, timeout_ms: int
    ) -> bytes:
        """Return the body of a successful response."""
        return await self._network.post(
            name_in(to.url), path, body, content_type, timeout_ms / 1000
        )


def name_in(url: str) -> str:
    """Return the name of the process that a simulated URL points to."""
    return url.rpartition("/")[2]

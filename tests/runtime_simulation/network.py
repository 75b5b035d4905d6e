"""A simulated network: requests between processes that arrive late, twice, or not at all.

`Routes` are what a process serves: bodies are decoded by the types of the real routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from leadline_client.errors import (
    ConnectionLost,
    LeadlineError,
    error_from_body,
)
from leadline_common.rpc import MSGPACK
from tests.runtime_simulation.event_loop import OWNER
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.world import World

Response = TypeVar("Response")
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
        self._held: dict[tuple[str, str], list[Callable[[], object]]] = {}
        self._listening: dict[str, tuple[Process, Routes]] = {}

    def listen(self, process: Process, routes: Routes) -> None:
        """Let a process serve requests to its name, instead of an earlier one of that name."""
        self._listening[process.name] = process, routes

    def isolate(self, name: str, others: list[str]) -> None:
        """Cut a process off from others, in both directions."""
        self.cut |= both_ways(name, others)

    def heal(self) -> None:
        """Restore all links."""
        self.cut.clear()
        self._held.clear()

    def hold(self, sender: str, to: str) -> None:
        """Keep back what is sent over a link, until it is released."""
        self._held.setdefault((sender, to), [])

    def release(self, sender: str, to: str) -> list[Callable[[], object]]:
        """Keep nothing back any more; return what arrives when it is called, oldest first."""
        return self._held.pop((sender, to), [])

    async def post(
        self,
        to: str,
        path: str,
        body: bytes,
        content_type: str,
        timeout_s: float,
        *,
        repeatable: bool = True,
        on_repeat: Callable[[], object] | None = None,
    ) -> bytes:
        """Send a request from the running process; return the body of the answer.

        A `repeatable` one may arrive twice, as after a retry by something in between. It calls
        `on_repeat` then: what the answer refuses, the other copy may have brought about.

        Raises:
            LeadlineError: the answer is this error, or ConnectionLost.

        """
        sender = OWNER.get()
        assert sender is not None
        future: asyncio.Future[Answer] = self.world.loop.create_future()
        self.carry(sender.name, to, self._arrive, sender, to, path, body, content_type, future)
        if repeatable and self.world.chance(self.weather.repeat):
            if on_repeat is not None:
                on_repeat()
            self.carry(sender.name, to, self._arrive, sender, to, path, body, content_type, None)
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

    def carry(self, sender: str, to: str, arrive: Callable[..., object], *args: Any) -> None:
        """Let something arrive at a process some time later, or never."""
        held = self._held.get((sender, to))
        if held is not None:
            held.append(partial(arrive, *args))
        elif not self.loses(sender, to):
            self.world.loop.after(self.delay_s(), arrive, *args)

    def is_cut(self, sender: str, to: str) -> bool:
        """Tell whether nothing of one process arrives at another."""
        return (sender, to) in self.cut

    def loses(self, sender: str, to: str) -> bool:
        """Tell whether what is sent now gets lost."""
        return self.is_cut(sender, to) or self.world.chance(self.weather.loss)

    def delay_s(self) -> float:
        """Return how long something that is sent now takes to arrive."""
        delay_s = self.world.between(0.0002, self.weather.delay_s)
        if self.world.chance(self.weather.late):
            delay_s += self.world.between(0, self.weather.late_s)
        return delay_s

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
            self.carry(to, sender.name, complete, future, Answer(0, b""))
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
        self.carry(process.name, sender.name, complete, future, answer)


def both_ways(name: str, others: Iterable[str]) -> set[tuple[str, str]]:
    """Return the links between a process and others, in both directions."""
    return {link for other in others for link in ((name, other), (other, name))}


def complete(future: asyncio.Future[Response] | None, response: Response) -> None:
    """Let a response arrive, unless nobody waits for it any more."""
    if future is not None and not future.done():
        future.set_result(response)


def host_of(url: str) -> str:
    """Return the host of a simulated URL, which is the name of a process."""
    return urlsplit(url).netloc

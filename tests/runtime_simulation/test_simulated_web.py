"""Simulated HTTP requests and WebSockets end as real ones may: answered, refused, or unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from starlette.types import Receive, Scope, Send

from leadline_client.channel import Frame, Ping, Pong, encode
from leadline_client.errors import ConnectionLost, Unreachable
from leadline_client.security import Authenticator, Security
from leadline_client.transport import Request, Response
from tests.runtime_simulation.network import Network, NetworkWeather
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.web import Web, WebRequest, WebTransport
from tests.runtime_simulation.web_sockets import SimulatedChannel, WebSockets
from tests.runtime_simulation.world import World

PINGS = [Ping(id=number, coordinator_epoch=1, generation=1, acknowledged=0) for number in range(5)]


class Echo:
    """An application that answers with what it was asked, and counts requests."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        self.seen.append(f"{scope['method']} {scope['path']}?{scope['query_string'].decode()}")
        headers = [(b"X-Length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": body[:2], "more_body": True})
        await send({"type": "http.response.body", "body": body[2:]})


class Pinging:
    """An application that sends pings, and keeps what it receives until the connection ends."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"] == "/v1/groups/g/channel"
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        for ping in PINGS:
            await send({"type": "websocket.send", "text": encode(ping)})
        while (message := await receive())["type"] == "websocket.receive":
            self.received.append(message["text"])
        self.ended = True


class Place:
    """A client and a server in a world of their own."""

    def __init__(self) -> None:
        self.world = World(5)
        self.network = Network(self.world)
        self.web = Web(self.world, self.network)
        self.sockets = WebSockets(self.world, self.network, self.web)
        self.client, self.server = Process("client"), Process("server")

    def ask(self, method: str = "POST", timeout_s: float = 1.0) -> asyncio.Task[Response]:
        request = Request(
            method, "http://server/a%2Fb", {"x": "1 2"}, body=b"hello", timeout_s=timeout_s
        )
        task = self.world.loop.in_process(self.client, WebTransport(self.web).send(request))
        self.world.loop.run_until(self.world.loop.now_s + 10.0, task.done)
        return task

    def open(self) -> asyncio.Task[SimulatedChannel]:
        opening = self.sockets.open_channel("http://server", "g", Authenticator(Security()))
        task = self.world.loop.in_process(self.client, opening)
        self.world.loop.run_until(self.world.loop.now_s + 5.0, task.done)
        return task

    def received(self, channel: SimulatedChannel, within_s: float = 5.0) -> list[Frame]:
        """Return the frames that arrive within some time, or until the channel ends."""
        frames: list[Frame] = []

        async def receive() -> None:
            while True:
                frames.append(await channel.receive())

        task = self.world.loop.in_process(self.client, receive())
        self.world.loop.run_until(self.world.loop.now_s + within_s, task.done)
        if task.done():
            assert isinstance(task.exception(), ConnectionLost)
        task.cancel()
        return frames


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.world.loop.close()


def test_a_request_reaches_the_application_and_its_answer_comes_back(place: Place) -> None:
    app = Echo()
    place.web.serve(place.server, app)

    answer = place.ask().result()

    assert (answer.status, answer.headers, answer.body) == (201, {"x-length": "5"}, b"hello")
    assert app.seen == ["POST /a/b?x=1%202"]


def test_a_dead_process_refuses_connections(place: Place) -> None:
    place.web.serve(Process("server", alive=False), Echo())

    assert isinstance(place.ask().exception(), Unreachable)


def test_a_lost_answer_is_an_unknown_outcome(place: Place) -> None:
    app = Echo()
    place.web.serve(place.server, app)
    place.network.cut.add(("server", "client"))

    assert isinstance(place.ask().exception(), ConnectionLost)
    assert len(app.seen) == 1


def test_a_cut_link_either_has_no_connection_or_loses_the_request(place: Place) -> None:
    app = Echo()
    place.web.serve(place.server, app)
    place.network.cut.add(("client", "server"))

    failures = {type(place.ask().exception()) for _ in range(20)}

    assert failures == {Unreachable, ConnectionLost}
    assert not app.seen


def test_only_requests_that_do_no_harm_arrive_twice(place: Place) -> None:
    app = Echo()
    place.web.serve(place.server, app)
    place.network.weather = NetworkWeather(repeat=1.0)

    place.ask("POST")
    place.ask("GET")
    place.world.loop.run_until(place.world.loop.now_s + 1.0)

    assert [each.partition(" ")[0] for each in app.seen] == ["POST", "GET", "GET"]


def test_a_request_that_is_taken_arrives_when_that_is_wanted(place: Place) -> None:
    app, taken = Echo(), list[Callable[[], None]]()
    place.web.serve(place.server, app)

    def take(_: Process, request: WebRequest, arrive: Callable[[], None]) -> bool:
        if request.method == "POST":
            taken.append(arrive)
        return bool(taken)

    place.web.on_request.append(take)
    assert isinstance(place.ask().exception(), ConnectionLost)
    assert not app.seen

    taken[0]()
    assert place.ask().result().status == 201
    assert len(app.seen) == 2


def test_frames_arrive_in_order_even_if_a_link_loses_some(place: Place) -> None:
    place.web.serve(place.server, Pinging())
    channel = place.open().result()
    place.network.weather = NetworkWeather(loss=0.5, late=0.5)

    assert place.received(channel) == PINGS


def test_frames_wait_while_a_link_is_cut(place: Place) -> None:
    app = Pinging()
    place.web.serve(place.server, app)
    channel = place.open().result()
    place.network.isolate("client", ["server"])

    before = place.received(channel, 2.0)
    place.network.heal()

    assert len(before) < len(PINGS)
    assert [*before, *place.received(channel)] == PINGS
    assert not app.ended


def test_a_member_learns_that_the_coordinator_died_after_what_it_had_sent(place: Place) -> None:
    place.web.serve(place.server, Pinging())
    channel = place.open().result()
    place.server.alive = False
    place.sockets.disconnect(place.server)

    assert place.received(channel) == PINGS
    closed = place.world.loop.in_process(place.client, channel.receive())
    place.world.loop.run_until(place.world.loop.now_s + 1.0, closed.done)
    assert isinstance(closed.exception(), ConnectionLost)


def test_the_coordinator_learns_that_a_member_closed_or_died(place: Place) -> None:
    apps = Pinging(), Pinging()
    pong = Pong(id=1, coordinator_epoch=1, generation=1)
    for app in apps:
        place.web.serve(place.server, app)
        channel = place.open().result()
        place.world.loop.in_process(place.client, channel.send(pong))
        if app is apps[0]:
            place.world.loop.in_process(place.client, channel.close())
        else:
            place.world.loop.run_until(place.world.loop.now_s + 0.5)
            place.sockets.disconnect(place.client)
        place.world.loop.run_until(place.world.loop.now_s + 1.0)

    assert [(app.received, app.ended) for app in apps] == [([encode(pong)], True)] * 2


def test_a_channel_to_a_dead_coordinator_is_not_opened(place: Place) -> None:
    place.web.serve(place.server, Pinging())
    place.server.alive = False

    assert isinstance(place.open().exception(), Unreachable)


def test_a_coordinator_whose_acceptance_was_lost_learns_that_the_member_gave_up(
    place: Place,
) -> None:
    app = Pinging()
    place.web.serve(place.server, app)
    place.network.cut.add(("server", "client"))

    assert isinstance(place.open().exception(), Unreachable)
    place.world.loop.run_until(place.world.loop.now_s + 1.0)
    assert app.ended

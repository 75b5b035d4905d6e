"""WebSockets between clients and the services' own ASGI applications, over the simulated network.

Their messages arrive in order. One that a link loses, or that meets a link that is cut, is sent
again, as TCP does it: it arrives late. The end of a process ends its connections, and the other
side learns of it in the same way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest
from starlette.types import Message

from leadline_client import websocket
from leadline_client.channel import CHANNEL_PATH, Frame, FromConsumer, decode, encode
from leadline_client.errors import ConnectionLost
from leadline_client.security import Authenticator
from leadline_client.transport import no_connection
from tests.runtime_simulation.event_loop import OWNER
from tests.runtime_simulation.network import Network, complete, host_of
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.web import Listener, Web, scope_of
from tests.runtime_simulation.world import World

_AGAIN_S: Final = 0.2
_CONNECT_S: Final = 3.0
_ABNORMAL: Final = 1006

Text = str | None
"""A message; None is the end of the connection."""


@dataclass(eq=False)
class Pipe:
    """One direction of a connection."""

    world: World
    network: Network
    sender: str
    receiver: str
    received: asyncio.Queue[Text] = field(default_factory=asyncio.Queue, init=False)
    _under_way: deque[Text] = field(default_factory=deque, init=False)

    def send(self, text: Text) -> None:
        """Send a message."""
        self._under_way.append(text)
        if len(self._under_way) == 1:
            self.world.loop.after(self.network.delay_s(), self._try)

    def _try(self) -> None:
        if self.network.loses(self.sender, self.receiver):
            self.world.loop.after(_AGAIN_S, self._try)
            return
        self.received.put_nowait(self._under_way.popleft())
        if self._under_way:
            self.world.loop.after(self.network.delay_s(), self._try)


@dataclass(eq=False)
class Connection:
    """A connection of a client process with a service."""

    client: Process
    server: Process
    to_server: Pipe
    to_client: Pipe

    def ended(self, process: Process) -> None:
        """Tell the other side that a process of this connection is gone."""
        (self.to_server if process is self.client else self.to_client).send(None)


@dataclass(eq=False)
class _Socket:
    """A service's side of a connection, as its application sees it."""

    connection: Connection
    accept: Callable[[], None]
    _connected: bool = field(default=False, init=False)
    closed: bool = field(default=False, init=False)

    async def receive(self) -> Message:
        """Return the next message for the application."""
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        text = await self.connection.to_server.received.get()
        if text is None:
            self.closed = True
            return {"type": "websocket.disconnect", "code": _ABNORMAL}
        return {"type": "websocket.receive", "text": text}

    async def send(self, message: Message) -> None:
        """Take the next message of the application."""
        if message["type"] == "websocket.accept":
            self.accept()
        elif message["type"] == "websocket.send":
            self.connection.to_client.send(message["text"])
        else:
            self.close()

    def close(self) -> None:
        """End the connection, unless it has ended."""
        if not self.closed:
            self.closed = True
            self.connection.to_client.send(None)


@dataclass(eq=False)
class SimulatedChannel:
    """A member's side of its channel; see `leadline_client.group_session.FrameChannel`."""

    connection: Connection
    _closed: bool = field(default=False, init=False)

    async def send(self, frame: FromConsumer) -> None:
        """Send a frame; raises ConnectionLost."""
        if self._closed:
            raise ConnectionLost("the channel to the coordinator has ended")
        self.connection.to_server.send(encode(frame))

    async def receive(self) -> Frame:
        """Return the next frame; raises ConnectionLost."""
        text = None if self._closed else await self.connection.to_client.received.get()
        if text is None:
            self._closed = True
            raise ConnectionLost("the channel to the coordinator has ended")
        return decode(text)

    async def close(self) -> None:
        """Close the channel."""
        if not self._closed:
            self._closed = True
            self.connection.to_server.send(None)


@dataclass(eq=False)
class WebSockets:
    """Opens the channels of group members, in place of `leadline_client.websocket`."""

    world: World
    network: Network
    web: Web
    _connections: list[Connection] = field(default_factory=list, init=False)

    def disconnect(self, process: Process) -> None:
        """End the connections of a process that is gone."""
        for connection in self._connections:
            if process in (connection.client, connection.server):
                connection.ended(process)
        self._connections = [
            each for each in self._connections if process not in (each.client, each.server)
        ]

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Let members open their channels here within the block."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(websocket, "open_channel", self.open_channel)
            yield

    async def open_channel(
        self, coordinator_url: str, group: str, authenticator: Authenticator
    ) -> SimulatedChannel:
        """Open the channel of a member of `group`, from the running process.

        Raises:
            Unreachable: there was no connection.

        """
        del authenticator
        sender, to = OWNER.get(), host_of(coordinator_url)
        assert sender is not None
        connection = self._connection(sender, to)
        opened: asyncio.Future[bool] = self.world.loop.create_future()
        self.network.carry(sender.name, to, self._arrive, connection, group, opened)
        accepted = False
        try:
            async with asyncio.timeout(_CONNECT_S):
                accepted = await opened
        except TimeoutError as failure:
            raise no_connection(f"the channel to {to}", failure) from failure
        finally:
            if not accepted:
                connection.to_server.send(None)
        if not accepted:
            refused = ConnectionRefusedError("refused")
            raise no_connection(f"the channel to {to}", refused) from refused
        return SimulatedChannel(connection)

    def _connection(self, client: Process, to: str) -> Connection:
        listener = self.web.listener(to)
        server = Process(to, alive=False) if listener is None else listener.process
        there = Pipe(self.world, self.network, client.name, to)
        back = Pipe(self.world, self.network, to, client.name)
        return Connection(client, server, there, back)

    def _arrive(self, connection: Connection, group: str, opened: asyncio.Future[bool]) -> None:
        client, server = connection.client, connection.server
        listener = self.web.listener(server.name)

        def answer(accepted: bool) -> None:
            self.network.carry(server.name, client.name, complete, opened, accepted)

        if listener is None or listener.process is not server:
            answer(False)
            return
        self._connections.append(connection)
        socket = _Socket(connection, lambda: answer(True))
        self.world.loop.in_process(server, self._serve(listener, socket, group))

    async def _serve(self, listener: Listener, socket: _Socket, group: str) -> None:
        client = socket.connection.client.name
        path = CHANNEL_PATH.format(group=group)
        scope = scope_of("websocket", listener.process.name, client, path, [])
        await listener.app(scope | {"subprotocols": []}, socket.receive, socket.send)
        socket.close()

"""The channel of a consumer: a WebSocket with the frames of `leadline_client.channel`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from leadline_client.channel import (
    CHANNEL_PATH,
    Error,
    Frame,
    Hello,
    Pong,
    Started,
    Stopped,
    decode,
    encode,
)
from leadline_client.errors import InvalidRequest, LeadlineError
from leadline_common.access.caller import caller_scope, require
from leadline_common.access.rights import Action
from leadline_common.http.access import Authentication
from leadline_coordinator.api.polls import require_topics
from leadline_coordinator.runtime.group_manager import Channel
from leadline_coordinator.runtime.service import CoordinatorService

_SEND_WITHIN_S: Final = 10.0
"""How long a consumer may leave a frame unread before its channel is closed."""
_NORMAL: Final = 1000
_POLICY: Final = 1008


def channel_route(coordinator: CoordinatorService) -> WebSocketRoute:
    """Return the route of the channel."""

    async def serve(socket: WebSocket) -> None:
        await socket.accept()
        try:
            with _counted(coordinator, socket):
                await _serve(coordinator, socket)
        except LeadlineError as error:
            await _refuse(socket, error)
        except WebSocketDisconnect:
            return

    return WebSocketRoute(CHANNEL_PATH, serve, name="channel")


@contextlib.contextmanager
def _counted(coordinator: CoordinatorService, socket: WebSocket) -> Iterator[None]:
    address = socket.client.host if socket.client is not None else ""
    coordinator.channels.open(address)
    try:
        yield
    finally:
        coordinator.channels.close(address)


async def _first(coordinator: CoordinatorService, socket: WebSocket) -> Frame:
    try:
        async with asyncio.timeout(coordinator.hello_timeout_s):
            return decode(await _text(socket))
    except TimeoutError:
        raise InvalidRequest("hello: it did not come within group.hello.timeout.ms") from None


async def _serve(coordinator: CoordinatorService, socket: WebSocket) -> None:
    connection = coordinator.new_connection()
    hello = await _first(coordinator, socket)
    if not isinstance(hello, Hello):
        raise InvalidRequest(f"type: the first frame must be hello, not {hello.type}")
    require_topics(hello)
    channel = coordinator.open_channel(socket.path_params["group"], hello, connection)
    reading = asyncio.create_task(_read(coordinator, socket, channel, hello), name="channel-reader")
    writing = asyncio.create_task(_write(socket, channel), name="channel-writer")
    try:
        # The writer ends first if it is told to close, or if the consumer does not read.
        await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
    finally:
        coordinator.on_closed(channel)
        channel.end()
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)
        # The reader's exception refers to this frame, which would refer to the reader.
        del reading, writing, task


async def _read(
    coordinator: CoordinatorService, socket: WebSocket, channel: Channel, hello: Hello
) -> None:
    """Apply answers until the connection ends.

    Raises:
        InvalidRequest: a frame is not an answer, or one too many; the error is sent, and the
            channel closed.
        WebSocketDisconnect: the connection has ended.

    """
    rate = coordinator.new_frame_rate()
    while True:
        frame = decode(await _text(socket))
        rate.on_frame(coordinator.monotonic_ms())
        if not isinstance(frame, Pong | Stopped | Started):
            raise InvalidRequest(f"type: a consumer must not send {frame.type}")
        _require_still(socket, hello)
        coordinator.on_answer(frame, channel)


def _require_still(socket: WebSocket, hello: Hello) -> None:
    """Refuse a consumer whose token was revoked, or a right that it joined with.

    Raises:
        LeadlineError: it may not be a member any more.

    """
    authentication: Authentication = socket.app.authentication
    caller = authentication.caller_of(socket.scope)
    with caller_scope(caller):
        require(Action.CONSUME, "group", [socket.path_params["group"]])
        require_topics(hello)


async def _write(socket: WebSocket, channel: Channel) -> None:
    """Send what is queued, then close the connection; give up on a consumer that reads nothing."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        while (message := await channel.outgoing.get()) is not None:
            async with asyncio.timeout(_SEND_WITHIN_S):
                await socket.send_text(message)
        await socket.close(_NORMAL)


async def _text(socket: WebSocket) -> str:
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", _NORMAL))
    text = message.get("text")
    if text is None:
        raise InvalidRequest("frames must be text messages")
    return str(text)


async def _refuse(socket: WebSocket, error: LeadlineError) -> None:
    if socket.application_state is WebSocketState.CONNECTED:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await socket.send_text(encode(Error.of(error)))
            await socket.close(_POLICY)

"""The channel of a consumer: a WebSocket with the frames of `leadline_client.channel`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from leadline_client.channel import (
    CHANNEL_PATH,
    Error,
    Hello,
    Pong,
    Started,
    Stopped,
    decode,
    encode,
)
from leadline_client.errors import InvalidRequest, LeadlineError
from leadline_coordinator.runtime.group_manager import Channel
from leadline_coordinator.runtime.service import CoordinatorService

HELLO_WITHIN_S: Final = 10.0
_NORMAL: Final = 1000
_POLICY: Final = 1008


def channel_route(coordinator: CoordinatorService) -> WebSocketRoute:
    """Return the route of the channel."""

    async def serve(socket: WebSocket) -> None:
        await socket.accept()
        try:
            await _serve(coordinator, socket)
        except LeadlineError as error:
            await _refuse(socket, error)
        except (WebSocketDisconnect, TimeoutError):
            return

    return WebSocketRoute(CHANNEL_PATH, serve, name="channel")


async def _serve(coordinator: CoordinatorService, socket: WebSocket) -> None:
    connection = coordinator.new_connection()
    async with asyncio.timeout(HELLO_WITHIN_S):
        hello = decode(await _text(socket))
    if not isinstance(hello, Hello):
        raise InvalidRequest(f"type: the first frame must be hello, not {hello.type}")
    channel = coordinator.open_channel(socket.path_params["group"], hello, connection)
    writing = asyncio.create_task(_write(socket, channel), name="channel-writer")
    try:
        await _read(coordinator, socket, channel)
    finally:
        coordinator.on_closed(channel)
        channel.end()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def _read(coordinator: CoordinatorService, socket: WebSocket, channel: Channel) -> None:
    """Apply answers until the connection ends.

    Raises:
        InvalidRequest: a frame is not an answer; the error is sent, and the channel closed.
        WebSocketDisconnect: the connection has ended.

    """
    while True:
        frame = decode(await _text(socket))
        if not isinstance(frame, Pong | Stopped | Started):
            raise InvalidRequest(f"type: a consumer must not send {frame.type}")
        coordinator.on_answer(frame, channel)


async def _write(socket: WebSocket, channel: Channel) -> None:
    """Send what is queued, then close the connection."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while (message := await channel.outgoing.get()) is not None:
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

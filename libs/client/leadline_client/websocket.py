"""The channel of a group member on a real WebSocket: the one place that knows its library."""

from __future__ import annotations

import json
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from leadline_client.channel import CHANNEL_PATH, Frame, FromConsumer, decode, encode
from leadline_client.errors import ConnectionLost, LeadlineError, Unreachable, error_from_body

_OPEN_TIMEOUT_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 0.5
_LARGEST_FRAME: Final = 16 << 20


class FrameChannel(Protocol):
    """Carries the frames of one member, in order, until it breaks."""

    async def send(self, frame: FromConsumer) -> None:
        """Send a frame; raises ConnectionLost."""

    async def receive(self) -> Frame:
        """Return the next frame; raises ConnectionLost, and InvalidRequest for what is none."""

    async def close(self) -> None:
        """End the channel; no errors."""


class WebSocketChannel:
    """A channel on an open WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, frame: FromConsumer) -> None:
        """Send a frame; raises ConnectionLost."""
        try:
            await self._connection.send(encode(frame))
        except (OSError, WebSocketException) as failure:
            raise ConnectionLost(f"the channel to the coordinator broke: {failure}") from failure

    async def receive(self) -> Frame:
        """Return the next frame; raises ConnectionLost, and InvalidRequest for what is none."""
        try:
            text = await self._connection.recv()
        except (OSError, WebSocketException) as failure:
            raise ConnectionLost(f"the channel to the coordinator broke: {failure}") from failure
        return decode(text)

    async def close(self) -> None:
        """End the channel; no errors."""
        await self._connection.close()


async def open_channel(coordinator_url: str, group: str) -> FrameChannel:
    """Open the channel of one member of `group`.

    Raises:
        Unreachable: no connection.
        LeadlineError: the coordinator refused, and says why.

    """
    # Pings are the protocol's own, the frames are small, and the cluster is never behind a proxy.
    try:
        connection = await connect(
            _channel_url(coordinator_url, group),
            compression=None,
            proxy=None,
            ping_interval=None,
            open_timeout=_OPEN_TIMEOUT_S,
            close_timeout=_CLOSE_TIMEOUT_S,
            max_size=_LARGEST_FRAME,
        )
    except InvalidStatus as refusal:
        answer = refusal.response
        raise error_from_body(answer.status_code, _maybe_json(answer.body)) from refusal
    except (OSError, TimeoutError, WebSocketException) as failure:
        raise _unreachable(coordinator_url, failure) from failure
    return WebSocketChannel(connection)


def _unreachable(url: str, failure: Exception) -> LeadlineError:
    return Unreachable(f"no channel to {url}: {failure or type(failure).__name__}")


def _channel_url(coordinator_url: str, group: str) -> str:
    parts = urlsplit(coordinator_url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    path = parts.path.rstrip("/") + CHANNEL_PATH.format(group=quote(group, safe=""))
    return urlunsplit((scheme, parts.netloc, path, "", ""))


def _maybe_json(body: bytes | bytearray) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None

"""The channel of a group member over a WebSocket: the only module that imports `websockets`."""

from __future__ import annotations

import logging
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from leadline_client.channel import CHANNEL_PATH, Frame, FromConsumer, decode, encode
from leadline_client.errors import ConnectionLost
from leadline_client.groups import group_in_path
from leadline_client.payloads import error_of
from leadline_client.security import Authenticator
from leadline_client.transport import UNAUTHORIZED, Response, no_connection

_OPEN_TIMEOUT_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 0.5
_LARGEST_FRAME: Final = 16 << 20


class WebSocketChannel:
    """Carries the frames of one member, in order, over an open WebSocket until it breaks."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, frame: FromConsumer) -> None:
        """Send a frame; raises ConnectionLost, or UnicodeEncodeError for text that is none."""
        text = encode(frame).encode()  # Within `send` this error would break the connection.
        try:
            await self._connection.send(text, text=True)
        except (OSError, WebSocketException) as failure:
            raise ConnectionLost(f"the channel to the coordinator broke: {failure}") from failure

    async def receive(self) -> Frame:
        """Return the next frame; raises ConnectionLost, or InvalidRequest for an invalid frame."""
        try:
            text = await self._connection.recv()
        except (OSError, WebSocketException) as failure:
            raise ConnectionLost(f"the channel to the coordinator broke: {failure}") from failure
        return decode(text)

    async def close(self) -> None:
        """Close the channel; raises nothing."""
        await self._connection.close()


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """Logs nothing of level DEBUG: websockets would log the token, and members' secrets."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name of the standard library
        """Tell whether a message of this level is logged."""
        return level > logging.DEBUG and super().isEnabledFor(level)


_LOGGER: Final = _Logger(logging.getLogger(__name__), {})


class _Connect(connect):
    """Opens a connection, and follows no redirect: a token is for the server that was named."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the refusal as it is."""
        return exc


async def open_channel(
    coordinator_url: str, group: str, authenticator: Authenticator
) -> WebSocketChannel:
    """Open the channel of one member of `group`.

    Raises:
        TokenNotSent: others could read the token on its way.
        Unreachable: there was no connection.
        LeadlineError: the coordinator refused.

    """
    url = _channel_url(coordinator_url, group)
    try:
        return WebSocketChannel(await _connected(url, authenticator))
    except InvalidStatus as refusal:
        answer = refusal.response
        headers = {name.lower(): value for name, value in answer.headers.raw_items()}
        response = Response(answer.status_code, headers, bytes(answer.body or b""))
        raise error_of(response) from refusal
    except (OSError, TimeoutError, WebSocketException) as failure:
        raise no_connection(f"the channel to {coordinator_url}", failure) from failure


async def _connected(url: str, authenticator: Authenticator) -> ClientConnection:
    """Return a connection; a token that was replaced is tried once more."""
    parts = urlsplit(url)
    shown = authenticator.headers(parts.scheme, parts.hostname)
    try:
        return await _connect(url, shown, authenticator)
    except InvalidStatus as refusal:
        if refusal.response.status_code != UNAUTHORIZED or not authenticator.renew(shown):
            raise
    return await _connect(url, authenticator.headers(parts.scheme, parts.hostname), authenticator)


def _connect(url: str, headers: dict[str, str], authenticator: Authenticator) -> _Connect:
    # The protocol has its own pings, its frames are small, and clusters are not behind proxies.
    return _Connect(
        url,
        ssl=authenticator.tls if url.startswith("wss:") else None,
        additional_headers=headers,
        compression=None,
        proxy=None,
        ping_interval=None,
        open_timeout=_OPEN_TIMEOUT_S,
        close_timeout=_CLOSE_TIMEOUT_S,
        max_size=_LARGEST_FRAME,
        logger=_LOGGER,
    )


def _channel_url(coordinator_url: str, group: str) -> str:
    parts = urlsplit(coordinator_url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    path = parts.path.rstrip("/") + CHANNEL_PATH.format(group=group_in_path(group))
    return urlunsplit((scheme, parts.netloc, path, "", ""))

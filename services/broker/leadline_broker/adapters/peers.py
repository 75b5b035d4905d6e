"""Requests to other services over HTTP: leaders, followers and the controller.

Connections are kept alive; each long poll uses a separate one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, TypeVar

import aiohttp
import msgspec

from leadline_client.errors import ConnectionLost, error_from_body
from leadline_common.bulk_offsets import OFFSETS_PATH, BulkAnswer, BulkQuestion
from leadline_common.rpc import (
    CONTROLLED_SHUTDOWN_PATH,
    HEARTBEAT_PATH,
    JSON,
    MSGPACK,
    REPLICA_FETCH_PATH,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from leadline_common.staged_copies import (
    DROP_STAGED_PATH,
    KEEP_STAGED_PATH,
    READ_STAGED_PATH,
    DropStagedRequest,
    KeepStagedRequest,
    ReadStagedRequest,
    StagedDone,
    StagedRecords,
)

_T = TypeVar("_T")
_CONNECT_TIMEOUT_S = 2.0
_READ_BUFFER = 1 << 20
_CONGESTION = b"cubic"


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Create a socket for a long-lived connection between services.

    Some hosts default to a congestion control that paces short transfers; on a fast network
    cubic is up to twice as fast. The socket works without it.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is not None:
        try:
            made.setsockopt(socket.IPPROTO_TCP, option, _CONGESTION)
        except OSError:
            return made
    return made


class HttpPeers:
    """Implements `runtime.ports.Peers`; opens no connection before the first request."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._fetch_response = msgspec.msgpack.Decoder(ReplicaFetchResponse)
        self._heartbeat_response = msgspec.json.Decoder(HeartbeatResponse)
        self._shutdown_response = msgspec.json.Decoder(ControlledShutdownResponse)
        self._offsets_response = msgspec.json.Decoder(BulkAnswer)
        self._done = msgspec.msgpack.Decoder(StagedDone)
        self._staged = msgspec.msgpack.Decoder(StagedRecords)
        self._msgpack = msgspec.msgpack.Encoder()

    async def fetch(
        self, url: str, request: ReplicaFetchRequest, timeout_ms: int
    ) -> ReplicaFetchResponse:
        """Fetch records from a leader."""
        return await self._ask(
            url + REPLICA_FETCH_PATH, request, timeout_ms, self._fetch_response.decode
        )

    async def heartbeat(
        self, url: str, request: HeartbeatRequest, timeout_ms: int
    ) -> HeartbeatResponse:
        """Send a heartbeat to the controller."""
        return await self._ask_in_json(
            url + HEARTBEAT_PATH, request, timeout_ms, self._heartbeat_response.decode
        )

    async def controlled_shutdown(
        self, url: str, request: ControlledShutdownRequest, timeout_ms: int
    ) -> ControlledShutdownResponse:
        """Ask the controller to move the leaders off this broker."""
        return await self._ask_in_json(
            url + CONTROLLED_SHUTDOWN_PATH, request, timeout_ms, self._shutdown_response.decode
        )

    async def offsets(self, url: str, question: BulkQuestion, timeout_ms: int) -> BulkAnswer:
        """Ask a leader for the offsets of partitions."""
        return await self._ask_in_json(
            url + OFFSETS_PATH, question, timeout_ms, self._offsets_response.decode
        )

    async def keep_staged(
        self, url: str, request: KeepStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Store a copy of a staged upload on a follower."""
        return await self._ask(url + KEEP_STAGED_PATH, request, timeout_ms, self._done.decode)

    async def drop_staged(
        self, url: str, request: DropStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Delete copies of staged uploads on a follower."""
        return await self._ask(url + DROP_STAGED_PATH, request, timeout_ms, self._done.decode)

    async def read_staged(
        self, url: str, request: ReadStagedRequest, timeout_ms: int
    ) -> StagedRecords:
        """Read the copy of a staged upload from another replica."""
        return await self._ask(url + READ_STAGED_PATH, request, timeout_ms, self._staged.decode)

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(
        self, url: str, request: msgspec.Struct, timeout_ms: int, decode: Callable[[bytes], _T]
    ) -> _T:
        return await self._post(url, self._msgpack.encode(request), MSGPACK, timeout_ms, decode)

    async def _ask_in_json(
        self, url: str, request: msgspec.Struct, timeout_ms: int, decode: Callable[[bytes], _T]
    ) -> _T:
        return await self._post(url, msgspec.json.encode(request), JSON, timeout_ms, decode)

    async def _post(
        self,
        url: str,
        body: bytes,
        content_type: str,
        timeout_ms: int,
        decode: Callable[[bytes], _T],
    ) -> _T:
        """Return the decoded body of a successful response.

        Raises:
            LeadlineError: the error that the service returned, or ConnectionLost.

        """
        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000, sock_connect=_CONNECT_TIMEOUT_S)
        headers = {"Content-Type": content_type}
        try:
            async with self._open().post(
                url, data=body, headers=headers, timeout=timeout
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLost(f"no answer from {url}: {error!r}") from error
        if answer.status != 200:
            raise error_from_body(answer.status, _json(content))
        try:
            return decode(content)
        except msgspec.MsgspecError as error:
            raise ConnectionLost(f"the response cannot be decoded: {error}") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, socket_factory=_socket)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_BUFFER,
                auto_decompress=False,
            )
        return self._session


def _json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return None

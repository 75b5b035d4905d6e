"""Other services over HTTP: leaders to fetch from, the controller to report to.

One kept connection for each conversation; a long poll holds its own.
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
    """Make a socket for a long-lived connection between services.

    Some hosts default to a congestion control that paces short transfers; on a
    fast network cubic is up to twice as fast. Where it cannot be had, all works
    without.
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
    """See `runtime.ports.Peers`. Nothing is opened before the first request."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._fetched = msgspec.msgpack.Decoder(ReplicaFetchResponse)
        self._heard = msgspec.json.Decoder(HeartbeatResponse)
        self._relieved = msgspec.json.Decoder(ControlledShutdownResponse)
        self._ends = msgspec.json.Decoder(BulkAnswer)
        self._done = msgspec.msgpack.Decoder(StagedDone)
        self._staged = msgspec.msgpack.Decoder(StagedRecords)
        self._msgpack = msgspec.msgpack.Encoder()

    async def fetch(
        self, url: str, request: ReplicaFetchRequest, timeout_ms: int
    ) -> ReplicaFetchResponse:
        """Ask a leader for records."""
        return await self._ask(url + REPLICA_FETCH_PATH, request, timeout_ms, self._fetched.decode)

    async def heartbeat(
        self, url: str, request: HeartbeatRequest, timeout_ms: int
    ) -> HeartbeatResponse:
        """Tell the controller what this broker has applied."""
        return await self._ask_in_json(
            url + HEARTBEAT_PATH, request, timeout_ms, self._heard.decode
        )

    async def controlled_shutdown(
        self, url: str, request: ControlledShutdownRequest, timeout_ms: int
    ) -> ControlledShutdownResponse:
        """Ask the controller to let others lead what this broker leads."""
        return await self._ask_in_json(
            url + CONTROLLED_SHUTDOWN_PATH, request, timeout_ms, self._relieved.decode
        )

    async def offsets(self, url: str, question: BulkQuestion, timeout_ms: int) -> BulkAnswer:
        """Ask a leader where partitions begin and end."""
        return await self._ask_in_json(url + OFFSETS_PATH, question, timeout_ms, self._ends.decode)

    async def keep_staged(
        self, url: str, request: KeepStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Have a follower keep what is staged."""
        return await self._ask(url + KEEP_STAGED_PATH, request, timeout_ms, self._done.decode)

    async def drop_staged(
        self, url: str, request: DropStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Have a follower let go of what is staged."""
        return await self._ask(url + DROP_STAGED_PATH, request, timeout_ms, self._done.decode)

    async def read_staged(
        self, url: str, request: ReadStagedRequest, timeout_ms: int
    ) -> StagedRecords:
        """Ask another replica for what was staged with a former leader."""
        return await self._ask(url + READ_STAGED_PATH, request, timeout_ms, self._staged.decode)

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(
        self, url: str, request: msgspec.Struct, timeout_ms: int, decode: Callable[[bytes], _T]
    ) -> _T:
        body = self._msgpack.encode(request)
        return _decoded(decode, await self._post(url, body, MSGPACK, timeout_ms))

    async def _ask_in_json(
        self, url: str, request: msgspec.Struct, timeout_ms: int, decode: Callable[[bytes], _T]
    ) -> _T:
        body = msgspec.json.encode(request)
        return _decoded(decode, await self._post(url, body, JSON, timeout_ms))

    async def _post(self, url: str, body: bytes, content_type: str, timeout_ms: int) -> bytes:
        """Return the body of a successful answer.

        Raises:
            LeadlineError: what the service answered, or ConnectionLost.

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
        return content

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


def _decoded(decode: Callable[[bytes], _T], content: bytes) -> _T:
    try:
        return decode(content)
    except msgspec.MsgspecError as error:
        raise ConnectionLost(f"an answer that cannot be read: {error}") from error


def _json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return None

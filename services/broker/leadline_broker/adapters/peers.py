"""Requests to other services over HTTP: leaders, followers and the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

import msgspec

from leadline_client.errors import ConnectionLost, CoordinatorNotAvailable, LeaderNotAvailable
from leadline_common.bulk_offsets import OFFSETS_PATH, BulkAnswer, BulkQuestion, PartitionEnds
from leadline_common.group_polls import SYNC_PATH, SyncAnswer, SyncRequest
from leadline_common.http.service_calls import NotSent, ServiceCalls
from leadline_common.identity import InternalAddress, ServiceAddress
from leadline_common.long_lived import collector_paused
from leadline_common.routed_records import (
    ROUTED_APPEND_PATH,
    ROUTED_OFFSETS_PATH,
    ROUTED_READ_PATH,
    RoutedAppend,
    RoutedAppended,
    RoutedData,
    RoutedOffsets,
    RoutedRead,
)
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


class HttpPeers:
    """Implements `runtime.ports.Peers`."""

    def __init__(self, calls: ServiceCalls) -> None:
        self._calls = calls
        self._fetch_response = msgspec.msgpack.Decoder(ReplicaFetchResponse)
        self._heartbeat_response = msgspec.json.Decoder(HeartbeatResponse)
        self._shutdown_response = msgspec.json.Decoder(ControlledShutdownResponse)
        self._offsets_response = msgspec.json.Decoder(BulkAnswer)
        self._done = msgspec.msgpack.Decoder(StagedDone)
        self._staged = msgspec.msgpack.Decoder(StagedRecords)
        self._appended = msgspec.msgpack.Decoder(RoutedAppended)
        self._read = msgspec.msgpack.Decoder(RoutedData)
        self._ends = msgspec.msgpack.Decoder(PartitionEnds)
        self._synced = msgspec.json.Decoder(SyncAnswer)
        self._msgpack = msgspec.msgpack.Encoder()

    async def fetch(
        self, to: InternalAddress, request: ReplicaFetchRequest, timeout_ms: int
    ) -> ReplicaFetchResponse:
        """Fetch records from a leader."""
        return await self._ask(to, REPLICA_FETCH_PATH, request, timeout_ms, self._decode_fetched)

    def _decode_fetched(self, body: bytes) -> ReplicaFetchResponse:
        with collector_paused():  # It may tell of hundreds of thousands of producers.
            return self._fetch_response.decode(body)

    async def heartbeat(
        self, to: InternalAddress, request: HeartbeatRequest, timeout_ms: int
    ) -> HeartbeatResponse:
        """Send a heartbeat to the controller."""
        return await self._ask_in_json(
            to, HEARTBEAT_PATH, request, timeout_ms, self._heartbeat_response.decode
        )

    async def controlled_shutdown(
        self, to: InternalAddress, request: ControlledShutdownRequest, timeout_ms: int
    ) -> ControlledShutdownResponse:
        """Ask the controller to move the leaders off this broker."""
        return await self._ask_in_json(
            to, CONTROLLED_SHUTDOWN_PATH, request, timeout_ms, self._shutdown_response.decode
        )

    async def offsets(
        self, leader: ServiceAddress, question: BulkQuestion, timeout_ms: int
    ) -> BulkAnswer:
        """Ask a leader for the offsets of partitions."""
        body = msgspec.json.encode(question)
        content = await self._calls.post(leader, OFFSETS_PATH, body, JSON, timeout_ms)
        return _decoded(content, self._offsets_response.decode)

    async def keep_staged(
        self, to: InternalAddress, request: KeepStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Store a copy of a staged upload on a follower."""
        return await self._ask(to, KEEP_STAGED_PATH, request, timeout_ms, self._done.decode)

    async def drop_staged(
        self, to: InternalAddress, request: DropStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Delete copies of staged uploads on a follower."""
        return await self._ask(to, DROP_STAGED_PATH, request, timeout_ms, self._done.decode)

    async def read_staged(
        self, to: InternalAddress, request: ReadStagedRequest, timeout_ms: int
    ) -> StagedRecords:
        """Read the copy of a staged upload from another replica."""
        return await self._ask(to, READ_STAGED_PATH, request, timeout_ms, self._staged.decode)

    async def append_routed(
        self, to: InternalAddress, request: RoutedAppend, timeout_ms: int
    ) -> RoutedAppended:
        """Pass an append on to a leader; LeaderNotAvailable if it cannot have received it."""
        try:
            return await self._ask(
                to, ROUTED_APPEND_PATH, request, timeout_ms, self._appended.decode
            )
        except NotSent as error:
            raise LeaderNotAvailable(f"the leader cannot be reached: {error.message}") from error

    async def read_routed(
        self, to: InternalAddress, request: RoutedRead, timeout_ms: int
    ) -> RoutedData:
        """Pass a read on to a leader, or to an in-sync replica."""
        return await self._ask(to, ROUTED_READ_PATH, request, timeout_ms, self._read.decode)

    async def offsets_routed(
        self, to: InternalAddress, request: RoutedOffsets, timeout_ms: int
    ) -> PartitionEnds:
        """Pass a lookup of offsets on to a leader."""
        return await self._ask(to, ROUTED_OFFSETS_PATH, request, timeout_ms, self._ends.decode)

    async def sync_consumer(
        self, to: ServiceAddress, group: str, member: str, request: SyncRequest, timeout_ms: int
    ) -> SyncAnswer:
        """Synchronize a polling consumer; CoordinatorNotAvailable if that was not sent."""
        path = SYNC_PATH.format(group=quote(group, safe=""), member=quote(member, safe=""))
        body = msgspec.json.encode(request)
        try:
            content = await self._calls.post_for_client(to, path, body, JSON, timeout_ms)
        except NotSent as error:
            raise CoordinatorNotAvailable(
                f"the coordinator cannot be reached: {error.message}"
            ) from error
        return _decoded(content, self._synced.decode)

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.close()

    async def _ask(
        self,
        to: InternalAddress,
        path: str,
        request: msgspec.Struct,
        timeout_ms: int,
        decode: Callable[[bytes], _T],
    ) -> _T:
        body = self._msgpack.encode(request)
        return _decoded(
            await self._calls.post_internal(to, path, body, MSGPACK, timeout_ms), decode
        )

    async def _ask_in_json(
        self,
        to: InternalAddress,
        path: str,
        request: msgspec.Struct,
        timeout_ms: int,
        decode: Callable[[bytes], _T],
    ) -> _T:
        body = msgspec.json.encode(request)
        return _decoded(await self._calls.post_internal(to, path, body, JSON, timeout_ms), decode)


def _decoded(content: bytes, decode: Callable[[bytes], _T]) -> _T:
    try:
        return decode(content)
    except msgspec.MsgspecError as error:
        raise ConnectionLost(f"the response cannot be decoded: {error}") from error

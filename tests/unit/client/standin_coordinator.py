"""A coordinator that the test controls: a real WebSocket, and the requests that came over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request as Handshake
from websockets.http11 import Response as Refusal

from leadline_client.channel import (
    Frame,
    FromCoordinator,
    Hello,
    Ping,
    Start,
    Stop,
    Welcome,
    decode,
    encode,
    group_partitions,
)
from leadline_client.errors import LeadlineError
from leadline_client.http_transport import AsyncHttpTransport
from leadline_client.transport import Request, Response
from leadline_client.wire import TopicPartition

F = TypeVar("F", bound=Frame)
STOP_LIMIT_MS = 60_000


class Conversation:
    """One channel, seen from the coordinator. `epoch` and `generation` go with every frame."""

    def __init__(self, connection: ServerConnection) -> None:
        self.epoch = 1
        self.generation = 1
        self._connection = connection
        self._id = 0

    async def expect(self, kind: type[F]) -> F:
        async with asyncio.timeout(10):
            frame = decode(await self._connection.recv())
        assert isinstance(frame, kind), frame
        return frame

    async def welcome(self, member: str = "m", stop_limit_ms: int = STOP_LIMIT_MS) -> Hello:
        hello = await self.expect(Hello)
        await self.send(
            Welcome(
                member=member,
                coordinator_epoch=self.epoch,
                generation=self.generation,
                ping_interval_ms=1000,
                stop_limit_ms=stop_limit_ms,
            )
        )
        return hello

    async def start(
        self,
        assignment: dict[TopicPartition, int | None],
        leader_epoch: int | None = None,
        topic_id: str | None = None,
    ) -> int:
        frame = Start(
            id=self._next_id(),
            coordinator_epoch=self.epoch,
            generation=self.generation,
            attempt=1,
            assignment=group_partitions(assignment),
            offsets=tuple((*one, offset, leader_epoch) for one, offset in assignment.items()),
            topic_ids=() if topic_id is None else (("t", topic_id),),
        )
        await self.send(frame)
        return frame.id

    async def stop(self, *partitions: TopicPartition) -> int:
        self.generation += 1
        frame = Stop(
            id=self._next_id(),
            coordinator_epoch=self.epoch,
            generation=self.generation,
            attempt=1,
            partitions=group_partitions(partitions),
        )
        await self.send(frame)
        return frame.id

    async def ping(self, acknowledged: int) -> None:
        await self.send(
            Ping(
                id=self._next_id(),
                coordinator_epoch=self.epoch,
                generation=self.generation,
                acknowledged=acknowledged,
            )
        )

    async def send(self, frame: FromCoordinator) -> None:
        await self._connection.send(encode(frame))

    async def close(self) -> None:
        await self._connection.close()

    async def closed(self) -> None:
        """Wait until the member has closed the channel."""
        async with asyncio.timeout(10):
            await self._connection.wait_closed()

    def _next_id(self) -> int:
        self._id += 1
        return self._id


class StandInCoordinator:
    """Carries requests of a client, too: those about groups are answered here, by hand.

    `refusals` are for the next commits, `handshakes` for the next channels: a status with its
    `Retry-After`. `events` holds what was asked, in order.
    """

    def __init__(self) -> None:
        self.url = ""
        self.epoch = 1
        self.events: list[Any] = []
        self.commits: list[dict[str, Any]] = []
        self.committed = asyncio.Event()
        self.refusals: deque[LeadlineError] = deque()
        self.handshakes: deque[tuple[int, str]] = deque()
        self.refused = asyncio.Event()
        self._channels: asyncio.Queue[Conversation] = asyncio.Queue()
        self._http = AsyncHttpTransport()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[StandInCoordinator]:
        async with serve(self._serve, "127.0.0.1", 0, process_request=self._refuse) as server:
            port = server.sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            yield self

    async def channel(self) -> Conversation:
        """Return the next channel that a member opens."""
        async with asyncio.timeout(10):
            return await self._channels.get()

    async def send(self, request: Request) -> Response:
        path = urlsplit(request.url).path
        if path == "/v1/consult":
            named = {"id": 1, "url": self.url, "epoch": self.epoch}
            return _json(200, {"brokers": [], "coordinator": named})
        if path.startswith("/v1/groups/"):
            return self._on_group(path, json.loads(request.body or b"{}"))
        return await self._http.send(request)

    async def aclose(self) -> None:
        await self._http.aclose()

    def _on_group(self, path: str, body: dict[str, Any]) -> Response:
        if not path.endswith("/offsets"):
            self.events.append(path.rpartition("/")[2])
            return _json(200, {})
        if self.refusals:
            refusal = self.refusals.popleft()
            self.refused.set()
            return _json(refusal.status, refusal.body())
        self.commits.append(body)
        self.committed.set()
        rows = {(row["topic"], row["partition"]): row["offset"] for row in body["offsets"]}
        self.events.append(rows)
        answers = [{"topic": t, "partition": p, "error_code": 0, "message": None} for t, p in rows]
        return _json(200, {"offsets": answers})

    async def _refuse(self, connection: ServerConnection, _: Handshake) -> Refusal | None:
        if not self.handshakes:
            return None
        status, retry_after = self.handshakes.popleft()
        refusal = connection.respond(HTTPStatus(status), "")
        refusal.headers["Retry-After"] = retry_after
        return refusal

    async def _serve(self, connection: ServerConnection) -> None:
        self._channels.put_nowait(Conversation(connection))
        try:
            await connection.wait_closed()
        except ConnectionClosed:
            return


def _json(status: int, document: Any) -> Response:
    return Response(status, {"content-type": "application/json"}, json.dumps(document).encode())

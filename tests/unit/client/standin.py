"""Brokers of a toy cluster for client tests: real HTTP servers, records in memory.

They keep the outward contract (routes, refusals, hints, idempotence) and none of
the inner one. A batch that comes before its predecessor is refused at once. `faults` makes the next
appends at a partition go wrong.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from leadline_broker.domain.epochs import NO_EPOCH, EpochHistory
from leadline_broker.domain.producers import Duplicate, ProducerStates
from leadline_client import batches
from leadline_client.batch_header import header_at, parse_headers
from leadline_client.errors import (
    BodyTooLarge,
    BrokerFenced,
    ForeignProducerId,
    LeaderHint,
    LeaderNotAvailable,
    LeadlineError,
    LogTruncated,
    NotLeader,
    OffsetOutOfRange,
    RequestInDoubt,
    UnknownTopic,
)
from leadline_client.payloads import OutgoingRecord

Fault = Literal["append, then hang up", "hang up"] | LeadlineError


@dataclass
class Partition:
    """One partition: who leads it and what is in it, whichever broker is asked."""

    leader: int
    epoch: int = 0
    log: bytearray = field(default_factory=bytearray)
    end: int = 0
    producers: ProducerStates = field(default_factory=ProducerStates)
    faults: deque[Fault] = field(default_factory=deque)
    appends: int = 0
    foreign_id: int | None = None
    """The producer id of somebody else."""
    max_bytes: int | None = None
    too_large: int = 0
    """How many appends were refused because they had more than `max_bytes`."""

    def epochs(self) -> EpochHistory:
        headers = parse_headers(bytes(self.log))
        return EpochHistory((one.leader_epoch, one.base_offset) for one in headers)


class HangUp(Response):
    """Promises a body and sends none: the connection breaks."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"100")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})


class StandInCluster:
    """The state that all stand-in brokers share."""

    def __init__(self, brokers: int, partitions: int) -> None:
        self.version = 1
        self.topic_id = "id-1"
        self.log_start = 0
        self.offsets_refused = False
        self.urls: dict[int, str] = {}
        self.partitions = {p: Partition(1 + p % brokers) for p in range(partitions)}
        self.requests: Counter[str] = Counter()
        self.keys: list[str | None] = []
        self.stale_metadata: dict[str, Any] | None = None
        self.cut_off: dict[int, dict[str, Any]] = {}
        """Brokers without a lease, and the metadata that they have for ever."""
        self.stale_fetches: deque[tuple[int, bytes]] = deque()
        self.next_producer_id = 1000
        self.isr = [1]
        self.racks: dict[int, str] = {}
        self._brokers = brokers
        self._servers: dict[int, tuple[uvicorn.Server, threading.Thread]] = {}

    @property
    def bootstrap(self) -> list[str]:
        return list(self.urls.values())

    def move(self, partition: int, leader: int) -> None:
        row = self.partitions[partition]
        row.leader, row.epoch = leader, row.epoch + 1
        self.version += 1

    def truncate(self, partition: int, end: int) -> None:
        """Let another broker lead in the next epoch, with a log that ends at `end`."""
        row = self.partitions[partition]
        kept = (one for one in parse_headers(bytes(row.log)) if one.next_offset <= end)
        del row.log[sum(one.size for one in kept) :]
        row.end = end
        # At last: a request that comes meanwhile finds nothing in the new epoch that will be cut.
        self.move(partition, leader=1 + row.leader % self._brokers)

    def metadata(self) -> dict[str, Any]:
        rows = [
            [p, one.leader, one.epoch, self.isr, self.isr] for p, one in self.partitions.items()
        ]
        return {
            "cluster_id": "toy",
            "version": self.version,
            "controller": {"id": 1, "url": "http://127.0.0.1:1", "epoch": 1},
            "brokers": [
                {"id": one, "url": url, "rack": self.racks.get(one), "incarnation": 1}
                for one, url in self.urls.items()
            ],
            "topics": {"t": {"topic_id": self.topic_id, "partitions": rows}},
        }

    def values(self, partition: int) -> list[bytes | None]:
        return [one.value for one in batches.decode(bytes(self.partitions[partition].log))]

    def kill(self, broker: int) -> None:
        server, thread = self._servers.pop(broker)
        server.force_exit = server.should_exit = True
        thread.join()

    @contextmanager
    def running(self) -> Iterator[StandInCluster]:
        for broker in range(1, self._brokers + 1):
            self._start(broker)
        try:
            yield self
        finally:
            for server, _ in self._servers.values():  # each takes a moment: all at once
                server.force_exit = server.should_exit = True
            for broker in list(self._servers):
                self.kill(broker)

    def _start(self, broker: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.urls[broker] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            Broker(self, broker).app, log_level="critical", lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)

        def serve() -> None:
            asyncio.run(server.serve([listener]))
            listener.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self._servers[broker] = (server, thread)


class Broker:
    """One stand-in broker."""

    def __init__(self, cluster: StandInCluster, broker: int) -> None:
        self._cluster = cluster
        self._id = broker
        path = "/v1/topics/{topic}/partitions/{partition:int}"
        self.app = Starlette(
            routes=[
                Route("/v1/metadata", self._metadata),
                Route("/v1/brokers", self._brokers),
                Route("/v1/producer-ids", self._producer_id, methods=["POST"]),
                Route("/v1/topics", self._create, methods=["POST"]),
                Route(f"{path}/offsets", self._at_leader(self._offsets)),
                Route(f"{path}/epochs/{{epoch:int}}", self._at_leader(self._epoch_end)),
                Route(f"{path}/records", self._at_leader(self._fetch)),
                Route(f"{path}/records", self._at_leader(self._produce), methods=["POST"]),
            ],
            exception_handlers={LeadlineError: _refuse},
        )

    async def _metadata(self, request: Request) -> Response:
        self._cluster.requests["metadata"] += 1
        stale = self._cluster.cut_off.get(self._id, self._cluster.stale_metadata)
        document = stale or self._cluster.metadata()
        asked = request.query_params.get("topics")
        if asked is not None:
            names = asked.split(",")
            kept = {name: one for name, one in document["topics"].items() if name in names}
            document = {**document, "topics": kept}
        return JSONResponse(document)

    async def _brokers(self, _: Request) -> Response:
        """Answer as a controller of release 0.1.0, which names no releases."""
        return JSONResponse({"brokers": [{"id": number} for number in self._cluster.urls]})

    async def _producer_id(self, _: Request) -> Response:
        self._cluster.next_producer_id += 1
        return JSONResponse({"producer_id": self._cluster.next_producer_id, "producer_epoch": 0})

    async def _create(self, request: Request) -> Response:
        """Lose the first response to each key, and all without one; `doubtful` stays unknown."""
        self._cluster.requests["create"] += 1
        key = request.headers.get("idempotency-key")
        name = (await request.json())["name"]
        if key is not None and key in self._cluster.keys:
            if name == "doubtful":
                raise RequestInDoubt("its response was lost")
            return JSONResponse({"name": name}, 201)
        self._cluster.keys.append(key)
        return HangUp()

    def _at_leader(
        self, handler: Callable[[Request, Partition], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if request.path_params["topic"] != "t":
                raise UnknownTopic("no such topic")
            if self._id in self._cluster.cut_off:
                raise BrokerFenced("no lease")
            row = self._cluster.partitions[request.path_params["partition"]]
            follows = request.query_params.get("replica") == "any" and self._id in self._cluster.isr
            if row.leader != self._id and not follows:
                url = self._cluster.urls[row.leader]
                raise NotLeader("elsewhere", leader=LeaderHint(row.leader, url, row.epoch))
            return await handler(request, row)

        return endpoint

    async def _offsets(self, request: Request, row: Partition) -> Response:
        if self._cluster.offsets_refused:
            raise LeaderNotAvailable("nobody leads it")
        found = {"log_start_offset": 0, "high_watermark": row.end, "log_end_offset": row.end}
        at_or_after = None
        if stated := request.query_params.get("timestamp"):
            records = batches.decode(bytes(row.log))
            late = (one.offset for one in records if one.timestamp >= int(stated))
            at_or_after = row.end if stated == "-1" else next(late, None)
        begin = row.end if at_or_after is None else at_or_after
        last = row.epochs().epoch_at(begin - 1)
        return JSONResponse(
            {
                **found,
                "leader_epoch": row.epoch,
                "offset": at_or_after,
                "last_epoch": None if last == NO_EPOCH else last,
            }
        )

    async def _fetch(self, request: Request, row: Partition) -> Response:
        self._cluster.requests["fetch"] += 1
        self._cluster.requests[f"fetch at {self._id}"] += 1
        offset = int(request.query_params["offset"])
        if last_epoch := request.query_params.get("last_epoch"):
            self._validate(row, offset, int(last_epoch))
        if offset > row.end:
            raise OffsetOutOfRange(f"{offset} is beyond {row.end}")
        if request.headers["accept"] == "application/json":
            return JSONResponse(self._as_json(row, offset))
        epoch, data = row.epoch, b""
        if self._cluster.stale_fetches:
            epoch, data = self._cluster.stale_fetches.popleft()
        elif offset < row.end:
            stored = parse_headers(bytes(row.log))
            first = next(one for one in stored if one.next_offset > offset)
            data = bytes(row.log[first.position : first.position + first.size])
        end = max((one.next_offset for one in parse_headers(data)), default=offset)
        headers = {
            "X-Leadline-High-Watermark": str(row.end),
            "X-Leadline-Log-Start-Offset": str(self._cluster.log_start),
            "X-Leadline-Leader-Epoch": str(epoch),
            "X-Leadline-Next-Offset": str(end),
            "X-Leadline-Topic-Id": self._cluster.topic_id,
        }
        last = row.epochs().epoch_at(end - 1)
        if last != NO_EPOCH:
            headers["X-Leadline-Last-Epoch"] = str(last)
        return Response(data, media_type="application/octet-stream", headers=headers)

    @staticmethod
    def _validate(row: Partition, offset: int, epoch: int) -> None:
        if not row.epochs().has_read(offset, epoch, log_start_offset=0, log_end_offset=row.end):
            found, end = row.epochs().end_of(epoch, row.end)
            raise LogTruncated.below("t", 0, (offset, epoch), (end, found), row.epoch, None)

    async def _epoch_end(self, request: Request, row: Partition) -> Response:
        self._cluster.requests["epoch end"] += 1
        found, end = row.epochs().end_of(request.path_params["epoch"], row.end)
        return JSONResponse({"epoch": found, "end_offset": end, "leader_epoch": row.epoch})

    def _as_json(self, row: Partition, offset: int) -> dict[str, Any]:
        records = [one for one in batches.decode(bytes(row.log)) if one.offset >= offset]
        return {
            "records": [
                {
                    "offset": one.offset,
                    "timestamp": one.timestamp,
                    "key": None,
                    "value": b64encode(one.value or b"").decode(),
                    "headers": [],
                }
                for one in records
            ],
            "high_watermark": row.end,
            "log_start_offset": 0,
            "leader_epoch": row.epoch,
            "next_offset": row.end,
        }

    async def _produce(self, request: Request, row: Partition) -> Response:
        fault = row.faults.popleft() if row.faults else None
        row.appends += 1
        if isinstance(fault, LeadlineError):
            raise fault
        if fault == "hang up":
            return HangUp()
        data = await _as_batches(request)
        if row.max_bytes is not None and len(data) > row.max_bytes:
            row.too_large += 1
            raise BodyTooLarge("a batch is too large")
        answer = _append(row, data)
        return HangUp() if fault else JSONResponse(answer)


async def _as_batches(request: Request) -> bytes:
    body = await request.body()
    if request.headers["content-type"] != "application/json":
        return body
    values = [one["value"].encode() for one in json.loads(body)["records"]]
    return batches.encode([OutgoingRecord(value) for value in values], now_ms=1)


def _append(row: Partition, data: bytes) -> dict[str, Any]:
    first = header_at(data)
    if first.producer_id == row.foreign_id:
        raise ForeignProducerId("it is somebody else's")
    verdict = row.producers.check(
        first.producer_id, first.producer_epoch, first.base_sequence, first.record_count
    )
    if isinstance(verdict, LeadlineError):
        raise verdict
    if isinstance(verdict, Duplicate):
        return _answer(row, verdict.base_offset, first.record_count, duplicate=True)
    base, stamped = row.end, bytearray(data)
    for header in batches.validate(data):
        batches.stamp(stamped, header, row.end, row.epoch)
        row.producers.apply(header._replace(base_offset=row.end))
        row.end += header.record_count
    row.log += stamped
    return _answer(row, base, row.end - base, duplicate=False)


def _answer(row: Partition, base: int, count: int, *, duplicate: bool) -> dict[str, Any]:
    return {
        "base_offset": base,
        "leader_epoch": row.epoch,
        "count": count,
        "duplicate": duplicate,
    }


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, LeadlineError)
    return JSONResponse(error.body(), status_code=error.status)

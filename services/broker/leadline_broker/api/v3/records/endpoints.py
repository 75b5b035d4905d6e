"""The endpoints that append records, and their documentation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from leadline_broker.api.v3.content_types import LATIN, check_content_type
from leadline_broker.api.v3.errors import (
    INVALID_PAYLOAD,
    MALFORMED,
    V3Error,
    response_of,
)
from leadline_broker.api.v3.lookup import find_rows
from leadline_broker.api.v3.records.appends import Appended, Result, TopicAppender
from leadline_broker.api.v3.records.batch import answer_batch
from leadline_broker.api.v3.records.documents import ObjectSplitter
from leadline_broker.api.v3.records.reports import SUCCESS, report_of
from leadline_broker.api.v3.records.requests import ParsedRecord, parse_record
from leadline_broker.api.v3.routes import ClusterView, V3Context, get_cluster
from leadline_client.errors import BrokerFenced, LeadlineError
from leadline_common.access.rights import Action
from leadline_common.http.access import receive_of_stream, require_still
from leadline_common.http.bulk import read_body, send_body
from leadline_common.http.middleware import limit_body
from leadline_common.http.quotas import payer_of
from leadline_common.quotas.gate import QuotaGate
from leadline_common.quotas.limits import Quota
from leadline_common.rpc import JSON
from leadline_common.slices import SLICE, in_turns

TIMEOUT_MS: Final = 30_000
MULTI_STATUS: Final = 207
_LINE_END: Final = b"\r\n"
_UNLIMITED: Final = 2**62
"""Streams have no limit; what they hold at a time has."""
_SLICE: Final = 64 * 1024
"""How much of a body is appended at a time, if it arrives at once."""
_TURN: Final = 4 * 1024
"""How much of that is read at a time, between other requests: it may have 2,000 records."""
_WINDOW: Final = 4 * SLICE
"""How many records are appended and reported at a time, and a turn of them more."""
Record = ParsedRecord | V3Error
Records = Sequence[Record]
"""Records, and the errors of those that are malformed."""


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """A request that appends records, before its body is read."""

    scope: Scope
    receive: Receive
    cluster: ClusterView
    topic: str
    charset: str

    def decoded(self, data: bytes) -> bytes:
        """Return a part of the body in UTF-8."""
        return data.decode(LATIN).encode() if self.charset == LATIN else data


@dataclass(frozen=True, slots=True)
class RecordIntake:
    """What both endpoints do before and after they have read records."""

    context: V3Context
    quotas: QuotaGate
    max_bytes: int

    async def begin(self, scope: Scope, receive: Receive) -> RecordRequest:
        """Return a request whose cluster and topic exist, and whose body may be read.

        Raises:
            V3Error: it is refused, whatever its records are.
            QuotaExceeded: its sender has produced too much.

        """
        path = scope["path_params"]
        cluster = await get_cluster(Request(scope), path["cluster_id"])
        find_rows(cluster, path["topic_name"])
        charset = check_content_type(Headers(scope=scope).get("content-type", JSON))
        self.quotas.admit(Quota.PRODUCE, payer_of(scope))
        return RecordRequest(scope, receive, cluster, path["topic_name"], charset)

    def pay(self, request: RecordRequest, size: int) -> None:
        """Count bytes of records.

        Raises:
            QuotaExceeded: the sender has produced too much.

        """
        self.quotas.admit(Quota.PRODUCE, payer_of(request.scope), size)

    async def whole_body(self, request: RecordRequest) -> bytes:
        """Return the body of a request that is not a stream, once it is paid for."""
        limit_body(request.scope, self.max_bytes)
        body = await read_body(request.receive)
        self.pay(request, len(body))
        return request.decoded(body)

    def appender(self, request: RecordRequest) -> TopicAppender:
        """Return what appends the records of a request."""
        return TopicAppender(request.topic, self.context.engine().topic_appends, TIMEOUT_MS)

    def parsed(self, document: bytes) -> ParsedRecord | V3Error:
        """Return a record, or why it is none."""
        try:
            return parse_record(document, self.context.now_ms())
        except V3Error as error:
            return error


@dataclass(frozen=True, slots=True)
class ProduceEndpoint:
    """Appends one record, or many in one body or a stream, with a report for each."""

    intake: RecordIntake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Append the records of the body."""
        try:
            request = await self.intake.begin(scope, receive)
            if "transfer-encoding" in Headers(scope=scope):
                limit_body(scope, _UNLIMITED)
                await self._answer_stream(request, send)
            else:
                body = await self.intake.whole_body(request)
                slices = in_turns(_pieces(body, _SLICE))
                await self._answer(request, send, self._windows(slices), reports_from=2)
        except (V3Error, LeadlineError) as error:
            await response_of(error)(scope, receive, send)

    async def _answer_stream(self, request: RecordRequest, send: Send) -> None:
        """Answer a stream until it ends, or the broker stops."""
        finder = self.intake.context.engine().offset_finder
        stopping = asyncio.create_task(finder.until_stopping())
        try:
            await self._answer(request, send, self._stream(request, stopping), reports_from=1)
        finally:
            stopping.cancel()

    async def _answer(
        self, request: RecordRequest, send: Send, windows: AsyncIterator[Records], reports_from: int
    ) -> None:
        """Answer with a report for each record, from so many records on.

        Fewer have the status of the response for what became of them.
        """
        appender = self.intake.appender(request)
        held: list[Record] = []
        started = False
        async for records in windows:
            held += records
            if started or len(held) >= reports_from:
                results = await appender.append_all(held)
                if not started:
                    started = True
                    await _start(send)
                await _send_part(send, _reports(request, held, results))
                held = []
        if started:
            await send({"type": "http.response.body", "body": b""})
            return
        if not held:
            raise V3Error(INVALID_PAYLOAD, "the body has no record")
        [result] = await appender.append_all(held)
        if not isinstance(result, Appended):
            raise result
        await send_body(send, _reports(request, held, [result]), JSON.encode())

    async def _stream(
        self, request: RecordRequest, stopping: asyncio.Future[None]
    ) -> AsyncIterator[Records]:
        """Yield the records of a stream as they arrive, if their sender may produce them.

        An error is the last one once the broker is `stopping`, which would cut the stream off.
        """
        paid: list[int] = []
        receive = receive_of_stream(request.scope)

        async def parts() -> AsyncIterator[bytes]:
            more = True
            while more:
                message = await _received(receive, stopping)
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                more = message.get("more_body", False)
                part: bytes = message.get("body", b"")
                paid.append(len(part))
                yield request.decoded(part)

        try:
            async for records in self._windows(parts()):
                yield self._admitted(request, sum(paid), records)
                paid.clear()
        except BrokerFenced as stopped:
            yield [V3Error.of(stopped)]

    async def _windows(self, parts: AsyncIterator[bytes]) -> AsyncIterator[Records]:
        """Yield the records that have arrived together; what is no record ends them."""
        splitter = ObjectSplitter(self.intake.max_bytes)
        async for part in parts:
            records: list[Record] = []
            async for piece in in_turns(_pieces(part, _TURN)):
                records += map(self.intake.parsed, splitter.feed(piece))
                if len(records) >= _WINDOW:
                    yield records
                    records = []
            if records:
                yield records
            if splitter.problem is not None:
                break
        splitter.end()
        if splitter.problem is not None:
            yield [V3Error(MALFORMED, splitter.problem)]

    def _admitted(self, request: RecordRequest, size: int, records: Records) -> Records:
        """Return records, or errors if their sender may not append them, or not so much."""
        try:
            require_still(request.scope, Action.WRITE, [request.topic])
            self.intake.pay(request, size)
        except LeadlineError as error:
            refused = V3Error.of(error)
            return [refused if isinstance(one, ParsedRecord) else one for one in records]
        return records


@dataclass(frozen=True, slots=True)
class BatchEndpoint:
    """Appends a few records with an id for each; the results tell which were appended."""

    intake: RecordIntake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Append the records of a batch."""
        try:
            request = await self.intake.begin(scope, receive)
            body = await self.intake.whole_body(request)
            report = await answer_batch(
                body,
                self.intake.appender(request),
                request.cluster.cluster_id,
                self.intake.context.now_ms(),
            )
        except (V3Error, LeadlineError) as error:
            await response_of(error)(scope, receive, send)
            return
        await send_body(send, msgspec.json.encode(report), JSON.encode(), status=MULTI_STATUS)


async def _received(receive: Receive, stopping: asyncio.Future[None]) -> Message:
    """Return the next message of a stream.

    Raises:
        BrokerFenced: the broker is stopping; nothing that came then is appended.

    """
    receiving: asyncio.Future[Message] = asyncio.ensure_future(receive())
    either: list[asyncio.Future[Any]] = [receiving, stopping]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            return receiving.result()
    finally:
        receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    raise BrokerFenced("the broker is stopping: continue the stream at another one")


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def _reports(request: RecordRequest, records: Records, results: Sequence[Result]) -> bytes:
    encode = msgspec.json.Encoder().encode
    return b"".join(
        encode(report_of(request.cluster.cluster_id, request.topic, record, result)) + _LINE_END
        for record, result in zip(records, results, strict=True)
    )


async def _start(send: Send) -> None:
    headers: list[Any] = [(b"content-type", JSON.encode())]
    await send({"type": "http.response.start", "status": SUCCESS, "headers": headers})


async def _send_part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})

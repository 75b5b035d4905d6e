"""`leadline produce` and `leadline consume`: lines in, lines out."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, BinaryIO, Final, Literal, cast

import typer

from leadline_cli.admin import RETRY_POLICY, AdminContext, admin_command
from leadline_cli.output import (
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    print_error,
    print_json,
    print_note,
    reported,
)
from leadline_client.client import AsyncLeadlineClient, LeadlineClient
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import LeadlineError, OutcomeUnknown
from leadline_client.fetching import ConsumedRecord
from leadline_client.producer import AsyncProducer, ProducerSettings, RecordMetadata
from leadline_client.reading import Start
from leadline_client.wire import TopicPartition

_STDIN = cast("typer.FileBinaryRead", "-")
"""Typer opens this default as standard input."""

_CHUNK: Final = 1 << 16


@admin_command
def produce(
    admin: AdminContext,
    topic: str,
    file: Annotated[
        typer.FileBinaryRead, typer.Argument(metavar="FILE|-", help="Lines to send; - is stdin.")
    ] = _STDIN,
    key_separator: Annotated[
        str | None, typer.Option(help="The text before it in a line is the key.")
    ] = None,
    acks: Annotated[
        Literal["all", "1", "0"], typer.Option(help="When a record counts as acknowledged.")
    ] = "all",
    partition: Annotated[
        int | None, typer.Option(min=0, help="Send all records to this partition.")
    ] = None,
) -> None:
    """Send each line as a record as it arrives; with acks=all no record is stored twice.

    Ctrl-C ends the input: lines that were read are still delivered.
    """
    settings = ProducerSettings(acks=acks, delivery_timeout_s=30.0)
    urls = admin.urls
    with reported(as_json=admin.as_json):
        records = (_split(line, key_separator) async for line in lines_of(file))
        counter = asyncio.run(_send_all(urls, settings, topic, partition, records))
    _report(counter, as_json=admin.as_json)


@admin_command
def consume(
    admin: AdminContext,
    topic: str,
    *,
    group: Annotated[
        str | None,
        typer.Option(help="Join this group: share its partitions, and commit offsets."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|OFFSET", help="Where to start.")
    ] = "earliest",
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    limit: Annotated[
        int | None, typer.Option("--max", min=1, help="Stop after this many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more records at the end.")
    ] = False,
) -> None:
    """Print records, each partition in order, up to the current end unless --follow.

    In a group, --from applies to partitions without a committed offset, and printed records
    count as consumed.
    """
    begin = _parse_start(start)
    if group is not None and (partition is not None or isinstance(begin, int)):
        raise typer.BadParameter("the group chooses partitions and offsets", param_hint="--group")
    with admin.connect() as client:
        ends = _end_offsets(client, topic, partition)
    try:
        with reported(as_json=admin.as_json):
            asyncio.run(_print_records(admin, group, ends, begin, limit, follow=follow))
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The reader of the pipe has gone. Python would fail at exit if it had text to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@dataclass(slots=True)
class RecordCounter:
    """How many records were acknowledged, refused, or have an unknown outcome.

    `failure` is the first error.
    """

    counts: Counter[str] = field(default_factory=Counter)
    failure: LeadlineError | None = None

    def count(self, done: asyncio.Future[RecordMetadata]) -> None:
        """Count the outcome of one record."""
        failure = asyncio.CancelledError() if done.cancelled() else done.exception()
        if failure is None:
            self.counts["acknowledged"] += 1
            return
        definite = isinstance(failure, LeadlineError) and not isinstance(failure, OutcomeUnknown)
        self.counts["refused" if definite else "unknown"] += 1
        if isinstance(failure, LeadlineError):
            self.failure = self.failure or failure


async def _send_all(
    urls: list[str],
    settings: ProducerSettings,
    topic: str,
    partition: int | None,
    records: AsyncIterator[tuple[bytes | None, bytes]],
) -> RecordCounter:
    counter = RecordCounter()
    policy = replace(RETRY_POLICY, timeout_s=settings.delivery_timeout_s)
    async with (
        AsyncLeadlineClient(urls, policy=policy) as client,
        AsyncProducer(client, settings) as producer,
    ):
        try:
            async for key, value in records:
                future = await producer.send(topic, value, key=key, partition=partition)
                future.add_done_callback(counter.count)
        except asyncio.CancelledError:
            # Ctrl-C ends the input: the producer still delivers what was read. A second Ctrl-C
            # ends the command at once.
            pass
    return counter


def _report(counter: RecordCounter, *, as_json: bool) -> None:
    summary = {name: counter.counts[name] for name in ("acknowledged", "refused", "unknown")}
    if as_json:
        print_json(summary)
    else:
        print_note(", ".join(f"{count} {name}" for name, count in summary.items()))
    if counter.failure is not None:
        print_error(counter.failure, as_json=as_json)
    if summary["unknown"]:
        raise typer.Exit(EXIT_UNKNOWN)
    if summary["refused"]:
        raise typer.Exit(EXIT_REFUSED)


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if not separator:
        return None, line
    key, found, value = line.partition(separator.encode())
    return (key, value) if found else (None, line)


def _parse_start(text: str) -> Start:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if not text.isdigit():
        raise typer.BadParameter(
            f"takes earliest, latest or an offset, not {text!r}", param_hint="--from"
        )
    return int(text)


def _end_offsets(
    client: LeadlineClient, topic: str, partition: int | None
) -> dict[TopicPartition, int]:
    found = client.describe(topic)
    chosen = range(len(found.partitions)) if partition is None else (partition,)
    return {
        TopicPartition(topic, number): client.offsets(topic, number).high_watermark
        for number in chosen
    }


async def _print_records(
    admin: AdminContext,
    group: str | None,
    ends: dict[TopicPartition, int],
    start: Start,
    limit: int | None,
    *,
    follow: bool,
) -> None:
    async with AsyncLeadlineClient(admin.urls) as client:
        if group is None:
            await _print_all(client, ends, start, limit, follow=follow, as_json=admin.as_json)
            return
        settings = ConsumerSettings("latest" if start == "latest" else "earliest")
        consumer = AsyncConsumer(client, group, settings=settings)
        await _print_owned(consumer, ends, limit, follow=follow, as_json=admin.as_json)


async def _print_all(
    client: AsyncLeadlineClient,
    ends: dict[TopicPartition, int],
    start: Start,
    limit: int | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the records of the partitions in `ends`."""
    printed = 0
    async with AsyncConsumer(client) as consumer:
        await consumer.assign(list(ends), start)
        while await _unfinished(consumer, ends, follow=follow):
            for consumed in await consumer.poll():
                if not follow and consumed.record.offset >= ends[consumed.topic_partition]:
                    continue
                _print_record(consumed, as_json=as_json)
                printed += 1
                if printed == limit:
                    return


async def _print_owned(
    consumer: AsyncConsumer,
    ends: dict[TopicPartition, int],
    limit: int | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the records of the partitions that the group assigns to this consumer."""
    printed = 0
    await consumer.subscribe([topic for topic, _ in ends][:1])
    complete = False
    try:
        while (limit is None or printed < limit) and not complete:
            most = None if limit is None else limit - printed
            for consumed in await consumer.poll(max_records=most):
                _print_record(consumed, as_json=as_json)
                printed += 1
            complete = not follow and await _at_the_end(consumer, ends)
    except asyncio.CancelledError:
        # Ctrl-C interrupts a poll; all records of the previous poll are printed.
        await consumer.aclose()
        raise
    except BaseException:
        await consumer.aclose(consumed=False)
        raise
    await consumer.aclose()


async def _at_the_end(consumer: AsyncConsumer, ends: dict[TopicPartition, int]) -> bool:
    """Tell whether this consumer has read each partition that it owns to the offset in `ends`."""
    owned = consumer.assignment
    at_end = [await consumer.position(key) >= ends.get(key, 0) for key in owned]
    return bool(owned) and all(at_end)


async def _unfinished(
    consumer: AsyncConsumer, ends: dict[TopicPartition, int], *, follow: bool
) -> bool:
    """Unassign the partitions that are read to their ends; tell whether any remain."""
    if follow:
        return True
    left = [key for key in consumer.assignment if await consumer.position(key) < ends[key]]
    await consumer.assign(left)
    return bool(left)


def _print_record(consumed: ConsumedRecord, *, as_json: bool) -> None:
    record = consumed.record
    if not as_json:
        sys.stdout.buffer.write((record.value or b"") + b"\n")
        sys.stdout.buffer.flush()
        return
    line: dict[str, Any] = {
        "topic": consumed.topic,
        "partition": consumed.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_text_or_base64("key", record.key),
        **_text_or_base64("value", record.value),
    }
    if record.headers:
        line["headers"] = [
            [name, (value or b"").decode("latin-1")] for name, value in record.headers
        ]
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as text, or as base64 under another name if they are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


async def lines_of(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield each line of a file, a pipe or a terminal as it arrives, without its end."""
    parts: list[bytes] = []
    async for chunk in _chunks(file):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            yield _without_end(parts)
            parts = [other]
    if any(parts):
        yield _without_end(parts)


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield bytes as soon as there are any."""
    try:
        descriptor = file.fileno()
        await _readable(descriptor)
    except OSError:
        # Bytes in memory, or a file on disk: a read never waits.
        while chunk := file.read(_CHUNK):
            yield chunk
        return
    while chunk := os.read(descriptor, _CHUNK):
        yield chunk
        await _readable(descriptor)


async def _readable(descriptor: int) -> None:
    """Wait until there are bytes to read, or the writer has closed the pipe.

    Raises:
        OSError: the event loop cannot wait for files of this kind.

    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _without_end(parts: list[bytes]) -> bytes:
    return b"".join(parts).rstrip(b"\r")

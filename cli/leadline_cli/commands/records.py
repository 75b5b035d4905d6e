"""`leadline produce` and `leadline consume`: lines in, lines out."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Literal, cast

import typer

from leadline_cli.connection import (
    DEFAULT_DATA_DIR,
    PATIENCE,
    Bootstrap,
    DataDir,
    Json,
    connect,
    find_bootstrap,
)
from leadline_cli.line_input import lines_of
from leadline_cli.output import (
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    err,
    print_error,
    print_json,
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
"""What the command line's parser opens as standard input."""


def produce(
    topic: str,
    file: Annotated[
        typer.FileBinaryRead, typer.Argument(metavar="FILE|-", help="Lines to send; - is stdin.")
    ] = _STDIN,
    key_separator: Annotated[
        str | None, typer.Option(help="What comes before it in a line is the key.")
    ] = None,
    acks: Annotated[
        Literal["all", "1", "0"], typer.Option(help="When a record counts as acknowledged.")
    ] = "all",
    partition: Annotated[int | None, typer.Option(min=0, help="Send everything there.")] = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Send each line as a record, as it comes. With acks=all none is in the log twice.

    Ctrl-C ends the input: what was read is still delivered.
    """
    urls = find_bootstrap(bootstrap, data_dir)
    settings = ProducerSettings(acks=acks, delivery_timeout_s=30.0)
    with reported(as_json=as_json):
        records = (_split(line, key_separator) async for line in lines_of(file))
        tally = asyncio.run(_send_all(urls, settings, topic, partition, records))
    _report(tally, as_json=as_json)


def consume(
    topic: str,
    *,
    group: Annotated[
        str | None,
        typer.Option(help="Share the partitions with this group's members, and commit."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|OFFSET", help="Where to begin.")
    ] = "earliest",
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.")] = None,
    limit: Annotated[
        int | None, typer.Option("--max", min=1, help="End after so many records.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end.")] = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Print records: each partition in order, up to the present end unless --follow.

    In a group, --from says where to begin without a committed offset; what is printed
    counts as consumed.
    """
    begin = _parse_start(start)
    if group is not None and (partition is not None or isinstance(begin, int)):
        raise typer.BadParameter("the group chooses partitions and offsets", param_hint="--group")
    with reported(as_json=as_json):
        with connect(bootstrap, data_dir) as client:
            ends = _end_offsets(client, topic, partition)
        urls = find_bootstrap(bootstrap, data_dir)
        try:
            if group is None:
                printing = _print_all(urls, ends, begin, limit, follow=follow, as_json=as_json)
            else:
                settings = ConsumerSettings("latest" if begin == "latest" else "earliest")
                printing = _print_shared(
                    urls, group, settings, ends, limit, follow=follow, as_json=as_json
                )
            asyncio.run(printing)
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            # The reader of the pipe has had enough; nothing more is to be written at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Tally:
    """How many lines were acknowledged, refused, or are of unknown fate, and the first failure."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failure: LeadlineError | None = None

    def count(self, done: asyncio.Future[RecordMetadata]) -> None:
        """Take note of one line's end."""
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
) -> Tally:
    tally = Tally()
    policy = replace(PATIENCE, timeout_s=settings.delivery_timeout_s)
    async with (
        AsyncLeadlineClient(urls, policy=policy) as client,
        AsyncProducer(client, settings) as producer,
    ):
        try:
            async for key, value in records:
                future = await producer.send(topic, value, key=key, partition=partition)
                future.add_done_callback(tally.count)
        except asyncio.CancelledError:
            # Ctrl-C is the end of the input: what was read is delivered, and told of. Another
            # one ends the command at once.
            pass
    return tally


def _report(tally: Tally, *, as_json: bool) -> None:
    summary = {name: tally.counts[name] for name in ("acknowledged", "refused", "unknown")}
    if as_json:
        print_json(summary)
    else:
        err.print(", ".join(f"{count} {name}" for name, count in summary.items()))
    if tally.failure is not None:
        print_error(tally.failure, as_json=as_json)
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


async def _print_all(
    urls: list[str],
    ends: dict[TopicPartition, int],
    start: Start,
    limit: int | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    printed = 0
    async with AsyncLeadlineClient(urls) as client, AsyncConsumer(client) as consumer:
        await consumer.assign(list(ends), start)
        while await _unfinished(consumer, ends, follow=follow):
            for one in await consumer.poll():
                if not follow and one.record.offset >= ends[one.topic_partition]:
                    continue
                _print_record(one, as_json=as_json)
                printed += 1
                if printed == limit:
                    return


async def _print_shared(
    urls: list[str],
    group: str,
    settings: ConsumerSettings,
    ends: dict[TopicPartition, int],
    limit: int | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Print what a group leaves to this member."""
    printed = 0
    async with AsyncLeadlineClient(urls) as client:
        consumer = AsyncConsumer(client, group, settings=settings)
        await consumer.subscribe([topic for topic, _ in ends][:1])
        complete = False
        try:
            while (limit is None or printed < limit) and not complete:
                most = None if limit is None else limit - printed
                for one in await consumer.poll(max_records=most):
                    _print_record(one, as_json=as_json)
                    printed += 1
                complete = not follow and await _at_the_end(consumer, ends)
        except asyncio.CancelledError:
            # Ctrl-C ends a poll, and everything that the poll before it gave is printed.
            await consumer.aclose()
            raise
        except BaseException:
            await consumer.aclose(consumed=False)
            raise
        await consumer.aclose()


async def _at_the_end(consumer: AsyncConsumer, ends: dict[TopicPartition, int]) -> bool:
    """Tell whether everything that this member owns was read to what was its end."""
    owned = consumer.assignment
    positions = [await consumer.position(one) >= ends.get(one, 0) for one in owned]
    return bool(owned) and all(positions)


async def _unfinished(
    consumer: AsyncConsumer, ends: dict[TopicPartition, int], *, follow: bool
) -> bool:
    """Leave the partitions that were read to their ends; tell whether any is left."""
    if follow:
        return True
    left = [key for key in consumer.assignment if await consumer.position(key) < ends[key]]
    await consumer.assign(left)
    return bool(left)


def _print_record(one: ConsumedRecord, *, as_json: bool) -> None:
    record = one.record
    if not as_json:
        sys.stdout.buffer.write((record.value or b"") + b"\n")
        sys.stdout.buffer.flush()
        return
    line: dict[str, Any] = {
        "topic": one.topic,
        "partition": one.partition,
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
    """Return bytes as text; those that are none as base64, under a name that says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}

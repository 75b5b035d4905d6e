"""`leadline consume`: lines out."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final, Literal

import typer

from leadline_cli.admin import AdminContext, admin_command
from leadline_cli.arguments import TIME_HELP, unix_ms
from leadline_cli.interruption import run
from leadline_cli.output import print_note, reported
from leadline_cli.record_output import print_record
from leadline_client.client import AsyncClient, Client
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import (
    LeadlineError,
    OutcomeUnknown,
    PartitionNotOwned,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.fetching import ConsumedRecord
from leadline_client.reading import Start
from leadline_client.retry import RetryPolicy
from leadline_client.wire import ReplicaChoice, TopicPartition

_PATIENT: Final = RetryPolicy(timeout_s=5.0)
"""For a command that goes on after an error: it says soon that it is waiting."""
_PAUSE_S: Final = 0.2
"""Before the next attempt after an error."""


@dataclass(frozen=True, slots=True)
class _Time:
    """A time to start at, in Unix ms."""

    unix_ms: int


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
        str,
        typer.Option(
            "--from",
            metavar="earliest|latest|OFFSET|TIME",
            help=f"Where to start. TIME: {TIME_HELP.partition(',')[0]}.",
        ),
    ] = "earliest",
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    limit: Annotated[
        int | None, typer.Option("--max", min=1, help="Stop after this many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more records at the end.")
    ] = False,
    headers: Annotated[
        bool, typer.Option("--headers", help="Print each record's headers, and a tab, first.")
    ] = False,
    replica: Annotated[
        Literal["leader", "any"],
        typer.Option(help="any: read from in-sync followers too."),
    ] = "leader",
    rack: Annotated[
        str | None, typer.Option(help="With --replica any: replicas in this rack first.")
    ] = None,
) -> None:
    """Print records, each partition in order, up to the current end unless --follow.

    In a group, --from applies to partitions without a committed offset, and printed records
    count as consumed. With --group or --follow it waits while the cluster is out of reach.
    """
    begin = _parse_start(start)
    _check_options(group, partition, begin, replica, rack)
    settings = ConsumerSettings("latest" if begin == "latest" else None, replica=replica, rack=rack)
    with admin.connect(reads=True) as client:
        ends = _end_offsets(client, topic, partition)
    waits = follow or group is not None
    printing = _Printing(ends, limit, follow, waits, as_json=admin.as_json, headers=headers)
    with reported(as_json=admin.as_json, reads=group is None):
        _run(_print_records(admin, group, settings, begin, printing))


def _check_options(
    group: str | None,
    partition: int | None,
    begin: Start | _Time,
    replica: ReplicaChoice,
    rack: str | None,
) -> None:
    """Raise typer.BadParameter for options that contradict each other."""
    if group is not None and (partition is not None or not isinstance(begin, str)):
        raise typer.BadParameter(
            "the group chooses partitions and offsets (see `leadline groups reset`)",
            param_hint="--group",
        )
    if rack is not None and replica == "leader":
        raise typer.BadParameter("needs --replica any", param_hint="--rack")


def _run(printing: Coroutine[Any, Any, None]) -> None:
    """Print until the end, Ctrl-C or SIGTERM, or the end of a pipe's reader."""
    try:
        run(printing)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The reader of the pipe has gone. Python would fail at exit if it had text to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse_start(text: str) -> Start | _Time:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdecimal():
        return int(text)
    try:
        return _Time(unix_ms(text))
    except typer.BadParameter:
        raise typer.BadParameter(
            f"takes earliest, latest, an offset, or a time such as 2026-01-31T12:00:00, "
            f"not {text!r}",
            param_hint="--from",
        ) from None


def _end_offsets(client: Client, topic: str, partition: int | None) -> dict[TopicPartition, int]:
    found = client.describe(topic)
    chosen = range(len(found.partitions)) if partition is None else (partition,)
    return {
        TopicPartition(topic, number): client.offsets(topic, number).high_watermark
        for number in chosen
    }


@dataclass(slots=True)
class _Printing:
    """What is printed, and how far: to `ends` unless `follow`, at most `limit` records.

    `waits`: an error that may pass is noted, and reading goes on.
    """

    ends: dict[TopicPartition, int]
    limit: int | None
    follow: bool
    waits: bool
    _: KW_ONLY
    as_json: bool
    headers: bool
    printed: int = 0
    waiting: bool = False

    @property
    def left(self) -> int | None:
        """How many records may still be printed; None: any number."""
        return None if self.limit is None else self.limit - self.printed

    async def poll(self, consumer: AsyncConsumer) -> list[ConsumedRecord]:
        """Return new records; none after an error that may pass."""
        try:
            records = await consumer.poll(max_records=self.left)
        except LeadlineError as error:
            self.check(error)
            await asyncio.sleep(_PAUSE_S)
            return []
        if records and self.waiting:
            print_note("reading again")
            self.waiting = False
        return records

    def print(self, consumed: ConsumedRecord) -> None:
        """Print a record."""
        print_record(consumed, as_json=self.as_json, headers=self.headers)
        self.printed += 1

    def check(self, error: LeadlineError) -> None:
        """Raise an error that ends the command; note one that may pass, the first of a series."""
        passes = error.retriable or isinstance(error, OutcomeUnknown)
        missing = isinstance(error, UnknownTopic | UnknownPartition)
        if not self.waits or missing or not passes:
            raise error
        if not self.waiting:
            print_note(f"waiting: error {error.code}: {error.message}")
        self.waiting = True


async def _print_records(
    admin: AdminContext,
    group: str | None,
    settings: ConsumerSettings,
    start: Start | _Time,
    printing: _Printing,
) -> None:
    policy = _PATIENT if printing.waits else None
    async with AsyncClient(admin.urls, policy=policy, security=admin.security) as client:
        consumer = AsyncConsumer(client, group, settings=settings)
        if group is None:
            await _print_all(consumer, start, printing)
        else:
            await _print_owned(consumer, printing)


async def _print_all(consumer: AsyncConsumer, start: Start | _Time, printing: _Printing) -> None:
    """Print the records of the partitions in `printing.ends`."""
    async with consumer:
        await consumer.assign(list(printing.ends), 0 if isinstance(start, _Time) else start)
        if isinstance(start, _Time):
            for topic_partition in printing.ends:
                await consumer.seek_to_time(topic_partition, start.unix_ms)
        while printing.left != 0 and await _unfinished(consumer, printing):
            for consumed in await printing.poll(consumer):
                end = printing.ends[consumed.topic_partition]
                if printing.follow or consumed.offset < end:
                    printing.print(consumed)


async def _print_owned(consumer: AsyncConsumer, printing: _Printing) -> None:
    """Print the records of the partitions that the group assigns to this consumer."""
    await consumer.subscribe([topic for topic, _ in printing.ends][:1])
    complete = False
    try:
        while printing.left != 0 and not complete:
            for consumed in await printing.poll(consumer):
                printing.print(consumed)
            complete = not printing.follow and await _at_the_end(consumer, printing)
    except asyncio.CancelledError:
        # Ctrl-C interrupts a poll; all records of the previous poll are printed.
        await consumer.aclose()
        raise
    except BaseException:
        await consumer.aclose(consumed=False)
        raise
    await consumer.aclose()


async def _at_the_end(consumer: AsyncConsumer, printing: _Printing) -> bool:
    """Tell whether this consumer has read each partition that it owns to the offset in `ends`."""
    owned = consumer.assignment
    try:
        at_end = [await consumer.position(key) >= printing.ends.get(key, 0) for key in owned]
    except PartitionNotOwned:
        return False  # It was lost since: the next poll tells the consumer.
    except LeadlineError as error:
        printing.check(error)
        return False
    return bool(owned) and all(at_end)


async def _unfinished(consumer: AsyncConsumer, printing: _Printing) -> bool:
    """Unassign the partitions that are read to their ends; tell whether any remain."""
    if printing.follow:
        return True
    ends = printing.ends
    left = [key for key in consumer.assignment if await consumer.position(key) < ends[key]]
    await consumer.assign(left)
    return bool(left)

"""`leadline produce`: lines in."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, cast

import typer

from leadline_cli.admin import RETRY_POLICY, AdminContext, admin_command
from leadline_cli.arguments import name_value
from leadline_cli.interruption import run
from leadline_cli.line_input import UnreadableInput, lines_of
from leadline_cli.output import (
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    print_error,
    print_json,
    print_note,
    reported,
)
from leadline_client.client import AsyncClient
from leadline_client.errors import InvalidRequest, LeadlineError, OutcomeUnknown
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.security import Security
from leadline_client.sent_records import RecordMetadata

_STDIN = cast("typer.FileBinaryRead", "-")
"""Typer opens this default as standard input."""


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
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A header of every record; repeatable."),
    ] = None,
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        typer.Option(help="How batches are compressed."),
    ] = "none",
) -> None:
    """Send each line as a record as it arrives; with acks=all no record is stored twice.

    Ctrl-C or SIGTERM ends the input: lines that were read are still delivered.
    """
    settings = ProducerSettings(acks=acks, delivery_timeout_s=30.0, compression=compression)
    pairs = (name_value(text, "--header") for text in header or ())
    # The bytes of the command line, which need not be text.
    headers = tuple((name, os.fsencode(value)) for name, value in pairs)
    separator = os.fsencode(key_separator) if key_separator else None
    target = _Target(topic, partition, headers)
    urls, security = admin.urls, admin.security
    with reported(as_json=admin.as_json):
        records = (_split(line, separator) async for line in lines_of(file))
        counter = run(_send_all(urls, security, settings, target, records))
    _report(counter, as_json=admin.as_json)


@dataclass(slots=True)
class RecordCounter:
    """How many records were acknowledged, refused, or have an unknown outcome.

    `failure` is the first error, of a record or of the input.
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

    def count_unsent(self, failure: LeadlineError) -> None:
        """Count a record that was not sent at all, whatever the outcome of its error."""
        self.counts["refused"] += 1
        self.failure = self.failure or failure

    def cut_off(self, problem: UnreadableInput) -> None:
        """Note that the input could not be read to its end."""
        message = f"the input cannot be read further ({problem}): what came before was sent"
        self.failure = self.failure or InvalidRequest(message)


@dataclass(frozen=True, slots=True)
class _Target:
    """Where lines go, and the headers of each; without a partition, the key chooses it."""

    topic: str
    partition: int | None
    headers: tuple[tuple[str, bytes], ...]


async def _send_all(
    urls: list[str],
    security: Security,
    settings: ProducerSettings,
    target: _Target,
    records: AsyncIterator[tuple[bytes | None, bytes]],
) -> RecordCounter:
    counter = RecordCounter()
    policy = replace(RETRY_POLICY, timeout_s=settings.delivery_timeout_s)
    async with (
        AsyncClient(urls, policy=policy, security=security) as client,
        AsyncProducer(client, settings) as producer,
    ):
        # Without any line, too, a topic or partition that does not exist is an error.
        await producer.partition_count(target.topic, target.partition)
        try:
            async for key, value in records:
                future = await producer.send(
                    target.topic,
                    value,
                    key=key,
                    partition=target.partition,
                    headers=target.headers,
                )
                future.add_done_callback(counter.count)
        except asyncio.CancelledError:
            # Ctrl-C ends the input: the producer still delivers what was read. A second Ctrl-C
            # ends the command at once. So does SIGTERM.
            pass
        except UnreadableInput as problem:
            counter.cut_off(problem)
        except LeadlineError as error:
            # The topic or the partition is gone. That says nothing of the records sent before:
            # some are acknowledged, and the outcome of others may be unknown.
            counter.count_unsent(error)
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
    if counter.failure is not None:
        raise typer.Exit(EXIT_REFUSED)


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if not separator:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)

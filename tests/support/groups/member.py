"""A consumer of a group as a process of its own, which writes down all that happens to it.

Run by `tests.support.groups.group`, as a script: it needs the client library alone. It
commits after every poll, and ends cleanly at SIGTERM. Each line of its log is one
event as `tests.support.groups.log` reads it, written whole before it goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from leadline_client.client import AsyncClient
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings, RebalanceListener
from leadline_client.errors import FencedInstance, LeadlineError, LogTruncated
from leadline_client.fetching import ConsumedRecord
from leadline_client.wire import TopicPartition

_POLL_S = 0.2
_COMMIT_WITHIN_S = 1.5

Row = tuple[str, int, int, int]


class Log(Protocol):
    """Where a member writes down what happens to it."""

    def write(
        self, kind: str, rows: Iterable[Row] = (), detail: str = "", at_s: float | None = None
    ) -> None:
        """Write an event down, with the present time unless it is of an earlier one."""


class EventLog:
    """Appends one line for each event."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(
        self, kind: str, rows: Iterable[Row] = (), detail: str = "", at_s: float | None = None
    ) -> None:
        """Write an event down, with the present time unless it is of an earlier one."""
        now_s = time.monotonic() if at_s is None else at_s
        event = {"at_s": now_s, "kind": kind, "rows": list(rows), "detail": detail}
        self._file.write(json.dumps(event).encode() + b"\n")


class Member:
    """One consumer and its log."""

    def __init__(self, client: AsyncClient, options: argparse.Namespace, log: Log) -> None:
        self._log = log
        self._due: dict[TopicPartition, int] = {}
        """Offsets to commit: what is refused is due again."""
        self._options = options
        self.fenced = False
        """Whether another consumer has taken its place."""
        self._consumer = AsyncConsumer(
            client,
            options.group,
            settings=ConsumerSettings(
                auto_commit_ms=None,
                offset_reset=options.offset_reset,
                assignor=options.assignor,
                protocol=options.protocol,
                instance_id=options.instance_id,
                instance_secret=options.instance_secret,
                client_id=options.client_id,
            ),
            listener=RebalanceListener(self._assigned, self._revoked, self._lost),
            clock=_now_s,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Consume until `stopping`, then leave."""
        if self._options.begin_at:
            told = asyncio.Event()
            number = signal.Signals[self._options.begin_at]
            asyncio.get_running_loop().add_signal_handler(number, told.set)
            self._log.write("waiting")
            await told.wait()
        topics = self._options.topics.split(",") if self._options.topics else None
        await self._consumer.subscribe(topics, pattern=self._options.pattern)
        self._log.write("joining")
        while not stopping.is_set():
            try:
                records = await self._consumer.poll(_POLL_S)
                given_s = time.monotonic()
            except FencedInstance:
                self.fenced = True
                self._log.write("fenced")
                break
            except LeadlineError as error:
                self._log.write("failed", detail=f"{type(error).__name__}: {error}")
                if isinstance(error, LogTruncated):
                    await self._go_back(error)
                await asyncio.sleep(_POLL_S)
                continue
            if records:
                self._consumed(records, given_s)
            await self._commit(self._due)
        await self._consumer.aclose()
        self._log.write("closed")

    async def _go_back(self, error: LogTruncated) -> None:
        """Read again from where the log has other records than those that were consumed."""
        one = TopicPartition(error.details["topic"], error.details["partition"])
        self._due.pop(one, None)
        await self._consumer.seek(one, error.details["divergence_offset"])

    def _consumed(self, records: Sequence[ConsumedRecord], given_s: float) -> None:
        rows: list[Row] = []
        for one in records:
            offset = one.offset
            if rows and rows[-1][:2] == (one.topic, one.partition) and rows[-1][3] == offset:
                rows[-1] = (*rows[-1][:3], offset + 1)
            else:
                rows.append((one.topic, one.partition, offset, offset + 1))
        self._log.write("consumed", rows, at_s=given_s)
        self._due.update({TopicPartition(topic, number): after for topic, number, _, after in rows})

    async def _commit(self, partitions: Iterable[TopicPartition]) -> bool:
        """Commit what is due; return whether it was not refused."""
        offsets = {one: self._due[one] for one in partitions if one in self._due}
        if not offsets:
            return True
        rows = [(topic, number, 0, after) for (topic, number), after in offsets.items()]
        began_s = time.monotonic()
        try:
            named = offsets if self._options.names_offsets else None
            await self._consumer.commit(named, timeout_s=_COMMIT_WITHIN_S)
        except LeadlineError as error:
            self._log.write("refused", rows, f"{type(error).__name__}: {error}")
            return False
        self._log.write("committed", rows, str(began_s))
        for one in offsets:
            del self._due[one]
        return True

    def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        known = self._consumer.group_metadata
        if known is not None:
            self._log.write("member", detail=f"{known.member} {known.secret}")
        generation = "" if known is None else str(known.generation)
        self._log.write("assigned", _rows(partitions), generation)

    async def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        # While a commit is refused, the lease may end: it has held them until it was asked.
        asked_s = time.monotonic()
        committed = await self._commit(partitions)
        self._forget("revoked", partitions, None if committed else asked_s)

    def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._forget("lost", partitions)

    def _forget(
        self, kind: str, partitions: Sequence[TopicPartition], at_s: float | None = None
    ) -> None:
        for one in partitions:
            self._due.pop(one, None)
        self._log.write(kind, _rows(partitions), at_s=at_s)


def _now_s() -> float:
    """Return the time of the module `time`, which a simulated world may have replaced by now."""
    return time.monotonic()


def _rows(partitions: Sequence[TopicPartition]) -> list[Row]:
    return [(topic, number, 0, 0) for topic, number in partitions]


async def consume(options: argparse.Namespace) -> None:
    """Be a member until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with AsyncClient(options.bootstrap) as client:
        await Member(client, options, EventLog(options.log)).run(stopping)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--topics")
    parser.add_argument("--pattern")
    parser.add_argument("--assignor", default="sticky")
    parser.add_argument("--protocol", default="cooperative")
    parser.add_argument("--instance-id")
    parser.add_argument("--instance-secret")
    parser.add_argument("--client-id", default="")
    parser.add_argument("--offset-reset", choices=("earliest", "latest", "error"))
    parser.add_argument(
        "--commit-positions",
        dest="names_offsets",
        action="store_false",
        help="let the consumer choose the offsets that it commits",
    )
    parser.add_argument("--begin-at", metavar="SIGNAL", help="join only when this signal comes")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(consume(parse(sys.argv[1:])))

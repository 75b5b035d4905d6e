"""Runs the cases of the data path: both systems are up, and all sides take turns in each round.

Before each turn the disk gets what is still in memory. A Kafka that does not flush leaves hundreds
of megabytes there, and the next fsync of anybody would have to wait for them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from peers.clients.work import Stopwatch
from peers.processes import Client, ClientFailed
from peers.report.samples import Metric, Samples
from peers.sequences.case import Case
from peers.sequences.sizes import Sizes
from peers.systems.system import System

FLUSHED: Final = "kafka-sync"
UNFLUSHED: Final = "kafka"
TLS: Final = "+tls"
"""Added to a label where Kafka's brokers speak TLS with each other."""
SYNC: Final = {"flush.messages": "1"}
"""A Kafka that has every record on disk before it acknowledges it, as Leadline does."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A system with one durability, and one of its clients."""

    label: str
    system: System
    client: Client
    configs: Mapping[str, str]


def sides(
    kafka: System, leadline: System, clients: Sequence[Client], *, tls: bool = False
) -> list[Side]:
    """Return all sides, in the order of their turns: the peers, then us.

    `tls`: whether Kafka's brokers speak it with each other.
    """
    suffix = TLS if tls else ""
    ours = [one for one in clients if one.name == "leadline"]
    theirs = [one for one in clients if one.name != "leadline"]
    return [
        *(Side(FLUSHED + suffix, kafka, client, SYNC) for client in theirs),
        *(Side(UNFLUSHED + suffix, kafka, client, {}) for client in theirs),
        *(Side("leadline", leadline, client, {}) for client in ours),
    ]


def taking_part(case: Case, everyone: Iterable[Side]) -> list[Side]:
    """Return the sides of a case."""
    return [
        side
        for side in everyone
        if side.client.name in case.clients and not (case.reads and side.configs == SYNC)
    ]


async def run(
    case: Case, everyone: Sequence[Side], sizes: Sizes, say: Callable[[str], None]
) -> tuple[list[Samples], list[str]]:
    """Return the samples of a case, and a line for each side that failed."""
    taking = taking_part(case, everyone)
    found: dict[Side, list[Mapping[Metric, float]]] = {side: [] for side in taking}
    failures: dict[Side, str] = {}
    topics = {side: f"bench-{next(_numbers)}" for side in taking}
    for side in taking:
        await side.system.create_topic(topics[side], case.work.partitions, configs=side.configs)
        if case.reads:
            await _do(side, "produce", topics[side], case)
    for number, side in itertools.product(range(-sizes.warm_up_rounds, sizes.data_rounds), taking):
        if side in failures:
            continue
        await asyncio.to_thread(os.sync)
        try:
            figures = case.figures(await _do(side, case.task, topics[side], case))
        except ClientFailed as problem:
            failures[side] = f"{case.name}, {side.label}: {problem}"
            say(failures[side])
            continue
        if number >= 0:
            found[side].append(figures)
        say(f"{case.name}, round {number + 1}, {side.label} {side.client.name}: {_line(figures)}")
    for side, topic in topics.items():
        await side.system.delete_topic(topic)
    return list(_samples(case, found)), list(failures.values())


async def _do(side: Side, task: str, topic: str, case: Case) -> Stopwatch:
    work = dataclasses.replace(case.work, topic=topic)
    if task == "produce" and case.reads:  # What is read comes with the records of the warm-up.
        work = dataclasses.replace(work, records=work.records - work.partitions)
    return await side.client.do(task, side.system.bootstrap, work)


def _samples(
    case: Case, found: Mapping[Side, Sequence[Mapping[Metric, float]]]
) -> Iterator[Samples]:
    for side, rows in found.items():
        for metric in rows[0] if rows else ():
            values = tuple(row[metric] for row in rows)
            yield Samples(case.sequence, case.name, metric, side.label, side.client.name, values)


def _line(figures: Mapping[Metric, float]) -> str:
    return ", ".join(
        f"{metric.name} {value:.4g} {metric.unit}" for metric, value in figures.items()
    )

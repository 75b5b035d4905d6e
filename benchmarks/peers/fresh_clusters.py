"""Runs what changes or breaks a cluster: both systems in turn, a fresh one in each round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from peers.processes import Client
from peers.report.samples import Metric, Samples
from peers.sequences.on_cluster import Measure, Subject
from peers.sequences.sizes import Sizes
from peers.systems.system import System

Open = Callable[[], AbstractAsyncContextManager[System]]
Key = tuple[str, Metric, str, str]


async def run(
    measures: Mapping[str, Measure],
    systems: Sequence[tuple[Open, Client]],
    sizes: Sizes,
    say: Callable[[str], None],
) -> tuple[list[Samples], list[str]]:
    """Return the samples of all measures on one cluster, and a line for each that failed.

    The measures run one after another on the same cluster, which the later ones find as the earlier
    ones left it; after a failure the rest of them is left out in that round.
    """
    found: dict[Key, list[float]] = defaultdict(list)
    failures: list[str] = []
    for number in range(sizes.cluster_rounds):
        for opened, client in systems:
            try:
                async with opened() as system:
                    subject = Subject(system, client, sizes)
                    await _measure(subject, measures, number, found, say)
            except Exception as problem:
                failures.append(f"round {number + 1}, {client.name}: {problem!r}")
                say(failures[-1])
    samples = [
        Samples(name, "", metric, system_name, client_name, tuple(values))
        for (name, metric, system_name, client_name), values in found.items()
    ]
    return samples, failures


async def _measure(
    subject: Subject,
    measures: Mapping[str, Measure],
    number: int,
    found: dict[Key, list[float]],
    say: Callable[[str], None],
) -> None:
    for name, measure in measures.items():
        async for figures in measure(subject):
            for metric, value in figures.items():
                found[name, metric, subject.system.name, ""].append(value)
                side = f"round {number + 1}, {subject.system.name}"
                say(f"{side}: {metric.name} {value:.4g} {metric.unit}")

"""What is measured on fresh clusters: in turn, and without losing what came before a failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import cast

from peers import fresh_clusters
from peers.processes import Client
from peers.report.samples import Metric
from peers.sequences.on_cluster import Subject
from peers.sequences.sizes import Sizes
from peers.systems.system import System

FIRST, SECOND, LATER = Metric("first", "s"), Metric("second", "s"), Metric("later", "s")
SIZES = Sizes(cluster_rounds=2)


@asynccontextmanager
async def opened(name: str, log: list[str]) -> AsyncIterator[System]:
    log.append(f"start {name}")
    try:
        yield cast("System", SimpleNamespace(name=name))
    finally:
        log.append(f"stop {name}")


async def breaking(subject: Subject) -> AsyncIterator[Mapping[Metric, float]]:
    yield {FIRST: 1.0}
    if subject.system.name == "kafka":
        raise TimeoutError("not in 300 s: it is whole")
    yield {SECOND: 2.0}


async def later(_: Subject) -> AsyncIterator[Mapping[Metric, float]]:
    yield {LATER: 3.0}


async def test_systems_take_turns_and_a_failure_ends_only_its_own_turn() -> None:
    log: list[str] = []
    systems = [
        (partial(opened, "kafka", log), Client("aiokafka")),
        (partial(opened, "leadline", log), Client("leadline")),
    ]

    found, failures = await fresh_clusters.run(
        {"breaking": breaking, "later": later}, systems, SIZES, lambda _: None
    )

    assert log == ["start kafka", "stop kafka", "start leadline", "stop leadline"] * 2
    assert {(one.system, one.metric.name): one.values for one in found} == {
        ("kafka", "first"): (1.0, 1.0),
        ("leadline", "first"): (1.0, 1.0),
        ("leadline", "second"): (2.0, 2.0),
        ("leadline", "later"): (3.0, 3.0),
    }
    assert [line.partition(": ")[0] for line in failures] == [
        "round 1, aiokafka",
        "round 2, aiokafka",
    ]
    assert "it is whole" in failures[0]

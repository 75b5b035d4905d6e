"""The replicas of a broker as its API shows them: whole, ordered, and in turns of the loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from leadline_broker.api.shown_replicas import (
    REPORTS,
    ReplicasBody,
    replicas_response,
    shown_replicas,
)
from leadline_broker.runtime.engine import Engine
from leadline_broker.runtime.replication.partition import FollowerInfo, ReplicaInfo
from leadline_common.slices import SLICE
from tests.support.turns import answer_and_turns
from tests.unit.broker.small_cluster import TOPIC, three

MANY = 5 * SLICE


def info(number: int) -> ReplicaInfo:
    followers = (FollowerInfo(2, 42, 100, 0),)
    return ReplicaInfo(
        TOPIC, "id", number, "leader", 5, 5, 0, 42, 42, 40, (1, 2), "/logs", 700, followers
    )


class ManyReplicas:
    """Stands in for the replicas of a broker; those of `removed` partitions are gone."""

    def __init__(self) -> None:
        self.removed: set[int] = set()
        self._all = [
            SimpleNamespace(partition=number, describe=lambda number=number: info(number))
            for number in range(MANY)
        ]

    def ordered(self, topic: str | None) -> list[SimpleNamespace]:
        assert topic in (None, TOPIC)
        return self._all

    def __contains__(self, partition: SimpleNamespace) -> bool:
        return partition.partition not in self.removed


def engine_with(replicas: ManyReplicas) -> Engine:
    clock = SimpleNamespace(wall_ms=lambda: 1_000_000, monotonic_ms=lambda: 400)
    return cast("Engine", SimpleNamespace(replicas=replicas, clock=clock))


async def test_many_replicas_are_described_and_encoded_in_turns() -> None:
    shown, described = await answer_and_turns(shown_replicas(engine_with(ManyReplicas())))
    response, encoded = await answer_and_turns(replicas_response(shown))

    assert min(described, encoded) >= MANY / SLICE
    body = ReplicasBody.model_validate_json(bytes(response.body), strict=True)
    assert [one.partition for one in body.replicas] == list(range(MANY))
    [follower] = body.replicas[0].followers or []
    assert (follower.last_fetch_ms, follower.last_caught_up_ms) == (999_700, -1)
    report = await REPORTS.decode(bytes(response.body))
    assert report is not None
    assert report.replicas == shown


async def test_a_replica_that_is_removed_meanwhile_is_left_out() -> None:
    replicas = ManyReplicas()
    shown, _ = await answer_and_turns(
        shown_replicas(engine_with(replicas)), lambda: replicas.removed.add(MANY - 1)
    )
    assert [one.partition for one in shown] == list(range(MANY - 1))


async def test_a_range_of_partitions_is_shown_alone() -> None:
    shown = await shown_replicas(engine_with(ManyReplicas()), TOPIC, 3, 5)
    assert [one.partition for one in shown] == [3, 4, 5]


async def test_what_a_broker_shows_is_what_its_replicas_are(tmp_path: Path) -> None:
    async with await three(tmp_path) as cluster:
        engine = cluster.brokers[1].engine
        shown = await shown_replicas(engine)
        described = engine.replicas.describe()
    assert [replace(one, followers=None) for one in shown] == [
        replace(one, followers=None) for one in described
    ]
    assert {one.topic for one in shown} == {TOPIC}

"""The greedy balance: hand-made cases, and what holds for any cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_client.wire import TopicPartition
from leadline_spark.jobs.balance import reassignment_json
from leadline_spark.jobs.balancing.balance_state import PartitionLoad, Replicas, excess
from leadline_spark.jobs.balancing.cluster_snapshot import snapshot_of
from leadline_spark.jobs.balancing.greedy import BalanceLimits, Proposal, propose

EAGER = BalanceLimits(max_moves=1000, tolerance=0.0)
NO_RACKS: dict[int, str | None] = {}


def partition(
    number: int, replicas: Replicas, *, size: int = 100, rate: float = 10
) -> PartitionLoad:
    return PartitionLoad(TopicPartition("t", number), replicas, size, rate)


def test_leaders_are_handed_over_before_anything_is_copied() -> None:
    partitions = [partition(n, (1, 2, 3)) for n in range(3)]
    found = propose(partitions, (1, 2, 3), NO_RACKS, EAGER)
    assert sorted(replicas[0] for replicas in found.targets.values()) == [2, 3]
    assert (found.swaps, found.moves, found.bytes_to_move) == (2, 0, 0)
    assert (found.before.leaders, found.after.leaders) == (2, 0)


def test_a_leader_moves_where_no_follower_can_take_over_and_the_smallest_goes() -> None:
    partitions = [
        partition(0, (1,), size=100),
        partition(1, (1,), size=70),
        partition(2, (2,), size=300, rate=0),
    ]
    found = propose(partitions, (1, 2, 3), NO_RACKS, BalanceLimits(tolerance=0.6))
    assert found.targets == {("t", 1): (3,)}
    assert (found.moves, found.bytes_to_move) == (1, 70)


def test_disks_are_evened_out_and_busy_leaders_stay() -> None:
    partitions = [partition(n, (1, 2), rate=0, size=50) for n in range(4)]
    partitions.append(partition(4, (1,), rate=90, size=10))
    found = propose(partitions, (1, 2, 3), NO_RACKS, BalanceLimits(tolerance=0.1))
    assert {b: share.disk for b, share in found.shares_after.items()} == {1: 110, 2: 150, 3: 150}
    assert found.bytes_to_move == 150
    assert ("t", 4) not in found.targets, "another broker would be as busy"


def test_the_caps_hold() -> None:
    partitions = [partition(n, (1, 2), rate=0, size=50) for n in range(8)]
    assert propose(partitions, (1, 2, 3, 4), NO_RACKS, BalanceLimits(2, None, 0)).moves == 2
    assert (
        propose(partitions, (1, 2, 3, 4), NO_RACKS, BalanceLimits(9, 120, 0)).bytes_to_move == 100
    )
    assert propose(partitions, (1, 2, 3, 4), NO_RACKS, BalanceLimits(0, None, 0)).targets == {}


def test_racks_are_kept_and_nothing_is_copied_in_vain() -> None:
    partitions = [partition(n, (1, 2), rate=0) for n in range(4)]
    # Broker 3 shares the rack of 1 and may relieve it, but never 2, which stays as full.
    racks = {1: "a", 2: "b", 3: "a"}
    assert propose(partitions, (1, 2, 3), racks, EAGER).targets == {}
    found = propose(partitions, (1, 2, 3, 4), racks | {4: "b"}, EAGER)
    assert set(found.targets.values()) <= {(3, 2), (1, 4), (3, 4)}
    assert found.after.disk == 0


def test_an_even_cluster_is_left_alone() -> None:
    partitions = [partition(n, (n + 1, (n + 1) % 3 + 1)) for n in range(3)]
    assert propose(partitions, (1, 2, 3), NO_RACKS, EAGER).targets == {}
    assert propose([], (1, 2), NO_RACKS, EAGER).targets == {}


def test_the_document_is_kafka_s() -> None:
    found = propose([partition(n, (1, 2)) for n in range(2)], (1, 2), NO_RACKS, EAGER)
    (row,) = reassignment_json(found)["partitions"]
    assert row["replicas"] == [2, 1]


def test_a_view_leaves_out_who_is_leaving_and_what_is_moving() -> None:
    metadata = {
        "brokers": [{"id": b, "url": f"http://b{b}", "rack": None} for b in (1, 2, 3)],
        "topics": {
            "t": {
                "partitions": [[0, 1, 0, [1], [1, 2]], [1, 1, 0, [1], [1, 9]], [2, 1, 0, [1], [1]]]
            }
        },
    }
    brokers = [{"id": b, "draining": b == 3, "stopping": False} for b in (1, 2, 3)]
    snapshot = snapshot_of(metadata, '"e"', brokers, [{"topic": "t", "partition": 2}])
    assert snapshot.members == (1, 2)
    assert snapshot.assignment == {("t", 0): (1, 2)}


# -- whatever the cluster is like ----------------------------------------------


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    brokers = list(range(1, draw(st.integers(2, 6)) + 1))
    with_racks = draw(st.booleans())
    racks = {b: draw(st.sampled_from("xyz")) if with_racks else None for b in brokers}
    partitions = []
    for number in range(draw(st.integers(0, 14))):
        replicas = draw(st.permutations(brokers))[: draw(st.integers(1, min(3, len(brokers))))]
        size, rate = draw(st.integers(0, 1000)), float(draw(st.integers(0, 1000)))
        partitions.append(partition(number, tuple(replicas), size=size, rate=rate))
    members = draw(st.sets(st.sampled_from(brokers), min_size=1))
    limits = BalanceLimits(
        draw(st.integers(0, 12)),
        draw(st.none() | st.integers(0, 3000)),
        draw(st.sampled_from((0.0, 0.1))),
    )
    return {"partitions": partitions, "members": members, "racks": racks, "limits": limits}


@settings(max_examples=400)
@given(clusters())
def test_no_proposal_breaks_a_rule(cluster: dict[str, Any]) -> None:
    found = propose(**cluster)
    known = {one.topic_partition: one for one in cluster["partitions"]}
    for topic_partition, replicas in found.targets.items():
        before = known[topic_partition].replicas
        assert replicas != before
        assert len(set(replicas)) == len(before), "as many replicas, all on different brokers"
        assert set(replicas) - set(before) <= set(cluster["members"]), "nobody else gets anything"
        if all(cluster["racks"][broker] for broker in cluster["members"]):
            racks_are_kept(cluster["racks"], before, replicas)
    limits = cluster["limits"]
    assert found.moves <= limits.max_moves
    assert limits.max_bytes is None or found.bytes_to_move <= limits.max_bytes
    costs_are_told(found, known)
    assert found.after.leaders <= found.before.leaders + 1e-9
    assert found.after.disk <= found.before.disk + 1e-9
    assert found == propose(**cluster), "the same again"


def racks_are_kept(racks: dict[int, str], before: Replicas, after: Replicas) -> None:
    was, now = (Counter(racks[broker] for broker in one) for one in (before, after))
    assert max(now.values()) <= max(was.values())
    assert len(now) >= len(was)


def costs_are_told(found: Proposal, known: dict[TopicPartition, PartitionLoad]) -> None:
    copies = {p: len(set(r) - set(known[p].replicas)) for p, r in found.targets.items()}
    assert found.moves == sum(copies.values())
    assert found.bytes_to_move == sum(known[p].size * n for p, n in copies.items())
    assert found.swaps == sum(not n for n in copies.values())
    shares = found.shares_after.values()
    assert found.after.disk == excess([share.disk for share in shares])

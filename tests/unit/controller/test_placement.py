"""Placement: Kafka's worked examples, and properties of balance and racks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.errors import PolicyViolation
from leadline_controller.domain.placement import alternate_racks, assign_replicas

NO_RACKS: dict[int, str | None] = dict.fromkeys(range(5))
RACKS: dict[int, str | None] = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}


def test_without_racks_as_kafka_documents_it() -> None:
    assert assign_replicas(NO_RACKS, 10, 3, start_index=0) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_racks_alternate() -> None:
    assert alternate_racks({0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}) == [0, 2, 4, 1, 3]


def test_with_racks_as_kafka_documents_it() -> None:
    # AdminUtils: racks r1 (0, 5), r2 (3, 4), r3 (1, 2): ring 0, 3, 1, 5, 4, 2.
    assert assign_replicas(RACKS, 7, 3, start_index=0) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_growth_continues_where_the_topic_ended() -> None:
    whole = assign_replicas(NO_RACKS, 12, 3, start_index=2)
    grown = assign_replicas(NO_RACKS, 5, 3, start_index=2, shift=2 + 1, start_partition=7)
    assert grown == {p: whole[p] for p in range(7, 12)}


@given(
    st.integers(1, 9),
    st.integers(1, 60),
    st.data(),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_replicas_are_distinct_and_first_ones_even(
    brokers: int, partitions: int, data: st.DataObject, start: int, shift: int
) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = assign_replicas(
        dict.fromkeys(range(brokers)), partitions, factor, start_index=start, shift=shift
    )
    assert sorted(placed) == list(range(partitions))
    assert all(len(set(replicas)) == factor for replicas in placed.values())
    firsts = Counter(replicas[0] for replicas in placed.values())
    assert max(firsts.values()) - min(firsts[b] for b in range(brokers)) <= 1


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=9), st.data(), st.integers(0, 20))
def test_replicas_reach_as_many_racks_as_they_can(
    racks: list[str], data: st.DataObject, start: int
) -> None:
    brokers = dict(enumerate(racks))
    factor = data.draw(st.integers(1, len(brokers)))
    for replicas in assign_replicas(brokers, 30, factor, start_index=start).values():
        assert len(set(replicas)) == factor
        assert len({brokers[b] for b in replicas}) == min(factor, len(set(racks)))


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "words"),
    [
        ({0: None}, 0, 1, "partitions"),
        ({0: None}, 1, 0, "replication factor"),
        ({0: None}, 1, 2, "larger"),
        ({0: None, 1: "a"}, 1, 2, "rack"),
    ],
)
def test_refusals(brokers: dict[int, str | None], partitions: int, factor: int, words: str) -> None:
    with pytest.raises(PolicyViolation, match=words):
        assign_replicas(brokers, partitions, factor)

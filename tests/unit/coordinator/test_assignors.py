"""The assignors by example, and sticky against a search of all assignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadline_client.channel import Assignor
from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.assignors.assign import assign, split_among_threads

ASSIGNORS: tuple[Assignor, ...] = get_args(Assignor)


def of(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


# -- range -------------------------------------------------------------------------


def test_range_cuts_each_topic_by_thread_in_order_of_member_ids() -> None:
    outcome = assign("range", {"t": 10}, {"b": ["t"], "a": ["t"]}, threads={"a": 2})

    assert outcome.assignment == {"a": of("t", *range(7)), "b": of("t", 7, 8, 9)}
    assert split_among_threads("range", outcome.assignment["a"], 2) == [
        of("t", 0, 1, 2, 3),
        of("t", 4, 5, 6),
    ]


def test_defect_18_range_counts_the_threads_of_each_topic() -> None:
    """As Kafka 0.8 did with its map from topics to numbers of streams."""
    asked = {"a": ["t", "u"], "b": ["t", "u"]}
    counts = {"a": {"t": 3, "u": 1}}

    outcome = assign("range", {"t": 8, "u": 4}, asked, topic_threads=counts)

    assert outcome.assignment["a"] == of("t", *range(6)) + of("u", 0, 1)
    assert outcome.assignment["b"] == of("t", 6, 7) + of("u", 2, 3)
    assert split_among_threads("range", outcome.assignment["a"], 3, counts["a"]) == [
        of("t", 0, 1) + of("u", 0, 1),
        of("t", 2, 3),
        of("t", 4, 5),
    ]


def test_defect_18_round_robin_deals_a_topic_only_to_the_threads_that_read_it() -> None:
    asked = {"a": ["t", "u"], "b": ["t", "u"]}
    counts = {"a": {"t": 2, "u": 1}}

    outcome = assign("roundrobin", {"t": 3, "u": 4}, asked, topic_threads=counts)

    assert outcome.assignment["a"] == of("t", 0, 1) + of("u", 0, 2)
    assert outcome.assignment["b"] == of("t", 2) + of("u", 1, 3)
    assert split_among_threads("roundrobin", outcome.assignment["a"], 2, counts["a"]) == [
        of("t", 0) + of("u", 0, 2),
        of("t", 1),
    ]


def test_defect_18_sticky_weighs_a_member_by_all_its_threads() -> None:
    asked = {"a": ["t", "u"], "b": ["t", "u"]}

    outcome = assign("sticky", {"t": 4, "u": 4}, asked, topic_threads={"a": {"t": 3}})

    assert [len(part) for part in outcome.assignment.values()] == [6, 2]


def test_range_counts_partitions_as_numbers() -> None:
    """As text, 10 comes before 2."""
    assignment = assign("range", {"t": 12}, {"a": ["t"], "b": ["t"]}).assignment

    assert assignment == {"a": of("t", *range(6)), "b": of("t", *range(6, 12))}


def test_range_gives_the_same_numbers_of_two_topics_to_the_same_member() -> None:
    assignment = assign(
        "range", {"t": 3, "u": 3}, {"a": ["t", "u"], "b": ["u", "t"], "c": ["t"]}
    ).assignment

    assert assignment == {
        "a": [("t", 0), ("u", 0), ("u", 1)],
        "b": [("t", 1), ("u", 2)],
        "c": [("t", 2)],
    }


# -- round robin -------------------------------------------------------------------


def test_round_robin_goes_on_from_topic_to_topic() -> None:
    assignment = assign("roundrobin", {"t": 3, "u": 3}, {m: ["t", "u"] for m in "ab"}).assignment

    assert assignment == {
        "a": [("t", 0), ("t", 2), ("u", 1)],
        "b": [("t", 1), ("u", 0), ("u", 2)],
    }


def test_round_robin_passes_over_who_did_not_ask() -> None:
    """Kafka's documented example: topics of 1, 2 and 3 partitions."""
    assignment = assign(
        "roundrobin",
        {"t0": 1, "t1": 2, "t2": 3},
        {"c0": ["t0"], "c1": ["t0", "t1"], "c2": ["t0", "t1", "t2"]},
    ).assignment

    assert assignment == {
        "c0": of("t0", 0),
        "c1": of("t1", 0),
        "c2": [("t1", 1), *of("t2", 0, 1, 2)],
    }


# -- sticky ------------------------------------------------------------------------


def test_sticky_moves_one_partition_of_each_to_who_joins() -> None:
    before = assign("sticky", {"t": 12}, {m: ["t"] for m in "abc"})
    after = assign("sticky", {"t": 12}, {m: ["t"] for m in "abcd"}, before.assignment)

    assert [len(part) for part in after.assignment.values()] == [3, 3, 3, 3]
    assert set(after.moved) == set(after.assignment["d"])


def test_sticky_deals_only_what_a_leaver_had() -> None:
    """Kafka's documented example, in which round robin would move five partitions."""
    topics = {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
    before = assign("sticky", topics, {m: list(topics) for m in "abc"})
    after = assign("sticky", topics, {m: list(topics) for m in "ac"}, before.assignment)

    assert set(after.moved) == set(before.assignment["b"])
    assert [len(part) for part in after.assignment.values()] == [4, 4]


def test_sticky_relieves_a_member_through_another() -> None:
    """Members a and c share no topic: b takes over t-0 and gives up one of u."""
    before = {"a": of("t", 0, 1, 2, 3), "b": of("u", 0, 1)}
    asked = {"a": ["t"], "b": ["t", "u"], "c": ["u"]}

    outcome = assign("sticky", {"t": 4, "u": 2}, asked, before)

    assert {m: len(part) for m, part in outcome.assignment.items()} == {"a": 2, "b": 2, "c": 2}
    assert len(outcome.moved) == 4


def test_sticky_is_balanced_by_thread() -> None:
    outcome = assign("sticky", {"t": 12}, {"a": ["t"], "b": ["t"]}, threads={"a": 3})

    assert [len(part) for part in outcome.assignment.values()] == [9, 3]


def test_of_two_claims_the_one_of_the_lower_generation_loses() -> None:
    asked = {"a": ["t"], "b": ["t"]}
    claims = {"a": of("t", 0, 1), "b": of("t", 0, 1)}

    outcome = assign("sticky", {"t": 2}, asked, claims, generations={"a": 4, "b": 5})

    assert len(outcome.moved) == 1
    assert len(outcome.assignment["a"]) == 1


def test_defect_18_no_validly_owned_partition_moves_for_one_that_two_members_claim() -> None:
    """Kafka's StickyAssignor: a partition claimed twice in one generation has no valid owner."""
    asked = {"a": ["t"], "b": ["t"]}
    claims = {"a": of("t", 0, 1), "b": of("t", 0)}

    outcome = assign("sticky", {"t": 2}, asked, claims, generations={"a": 4, "b": 4})

    assert outcome.assignment == {"a": of("t", 1), "b": of("t", 0)}
    assert outcome.moved == ()


def test_defect_18_a_partition_that_two_members_claim_goes_where_there_is_room() -> None:
    asked = {"a": ["t"], "b": ["t"], "c": ["t"]}
    claims = {"a": of("t", 0, 1), "b": of("t", 0, 2)}

    outcome = assign("sticky", {"t": 3}, asked, claims)

    assert outcome.assignment == {"a": of("t", 1), "b": of("t", 2), "c": of("t", 0)}
    assert outcome.moved == ()


def test_defect_18_a_disputed_claim_is_void_too_if_members_asked_for_different_topics() -> None:
    asked = {"a": ["t", "u"], "b": ["t"]}
    claims = {"a": of("t", 0, 1), "b": of("t", 0)}

    outcome = assign("sticky", {"t": 2, "u": 0}, asked, claims)
    levelled = assign("sticky", {"t": 3, "u": 1}, asked, claims | {"a": of("t", 0, 1)})

    assert outcome.assignment == {"a": of("t", 1), "b": of("t", 0)}
    assert set(of("t", 1)) <= set(levelled.assignment["a"])
    assert levelled.moved == ()


def test_defect_18_a_later_claim_ends_the_dispute() -> None:
    asked = {"a": ["t"], "b": ["t"], "c": ["t"]}
    claims = {"a": of("t", 0), "b": of("t", 0), "c": of("t", 0)}

    outcome = assign("sticky", {"t": 1}, asked, claims, generations={"a": 4, "b": 4, "c": 5})

    assert outcome.assignment["c"] == of("t", 0)
    assert outcome.moved == ()


def test_a_claim_that_nobody_disputes_counts_whatever_its_generation() -> None:
    asked = {"a": ["t"], "b": ["t"]}
    claims = {"a": of("t", 1), "b": of("t", 0)}

    outcome = assign("sticky", {"t": 2}, asked, claims, generations={"a": 2, "b": 5})

    assert outcome.assignment == claims


# -- all ---------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_static_member_that_comes_back_has_its_part(assignor: Assignor) -> None:
    topics = {"t": 7, "u": 4}
    instances = {"m1": "blue", "m2": "red", "m9": "blue"}
    before = assign(
        assignor, topics, {m: list(topics) for m in ("m1", "m2", "m5")}, instance_ids=instances
    )
    after = assign(
        assignor,
        topics,
        {m: list(topics) for m in ("m9", "m2", "m5")},
        before.assignment,
        instance_ids=instances,
    )

    assert after.assignment.pop("m9") == before.assignment.pop("m1")
    assert after.assignment == before.assignment
    assert after.moved == ()


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize(
    ("topics", "subscriptions"),
    [({}, {}), ({"t": 3}, {}), ({}, {"a": ["t"]}), ({"t": 0}, {"a": ["t"]}), ({"t": 3}, {"a": []})],
)
def test_nothing_to_assign_is_no_error(
    assignor: Assignor, topics: dict[str, int], subscriptions: dict[str, list[str]]
) -> None:
    outcome = assign(assignor, topics, subscriptions, {"gone": of("t", 0, 1)})

    assert outcome.assignment == {member: [] for member in subscriptions}
    assert outcome.moved == ()


# -- against a search of all assignments -------------------------------------------

TOPICS = ("t", "u", "v")
MEMBERS = ("a", "b", "c")


@st.composite
def small_groups(
    draw: st.DrawFn,
) -> tuple[dict[str, int], dict[str, list[str]], dict[str, list[TopicPartition]], dict[str, int]]:
    """Topics, subscriptions, claims (also of one who left) and threads of a small group."""
    topics = {topic: draw(st.integers(0, 3)) for topic in TOPICS}
    some_topics = st.lists(st.sampled_from(TOPICS), unique=True)
    subscriptions = draw(st.dictionaries(st.sampled_from(MEMBERS), some_topics, min_size=1))
    previous: dict[str, list[TopicPartition]] = {}
    for partition in all_partitions(topics):
        owner = draw(st.sampled_from([*MEMBERS, "gone", ""]))
        if owner:
            previous.setdefault(owner, []).append(partition)
    threads = draw(st.dictionaries(st.sampled_from(MEMBERS), st.integers(1, 2)))
    return topics, subscriptions, previous, threads


def all_partitions(topics: dict[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)
    ]


def unlevelness(
    owners: dict[TopicPartition, str], members: Iterable[str], threads: dict[str, int]
) -> int:
    """Return the sum of squares of partitions per thread."""
    loads = Counter(owners.values())
    return sum(
        ((loads[member] + thread) // threads.get(member, 1)) ** 2
        for member in members
        for thread in range(threads.get(member, 1))
    )


def cost(
    owners: dict[TopicPartition, str],
    previous: dict[str, list[TopicPartition]],
    threads: dict[str, int],
) -> tuple[int, int]:
    """Return (how far from level the threads are, how many partitions lost their owner)."""
    lost = sum(owners.get(p, m) != m for m, part in previous.items() for p in part)
    return unlevelness(owners, MEMBERS, threads), lost


def possible(
    topics: dict[str, int], subscriptions: dict[str, list[str]]
) -> Iterator[dict[TopicPartition, str]]:
    """Iterate over all assignments of a group."""
    asked = {topic for wanted in subscriptions.values() for topic in wanted}
    partitions = [p for p in all_partitions(topics) if p[0] in asked]
    choices = [[m for m, ts in subscriptions.items() if topic in ts] for topic, _ in partitions]
    return (dict(zip(partitions, owners, strict=True)) for owners in product(*choices))


@given(small_groups())
@example(
    (
        {"t": 3, "u": 1, "v": 0},
        {"a": ["t"], "b": ["t", "u"], "c": ["u"]},
        {"a": of("t", 0, 1), "b": [("t", 2), ("u", 0)]},
        {},
    )
)
def test_no_assignment_is_better_than_sticky(
    group: tuple[
        dict[str, int], dict[str, list[str]], dict[str, list[TopicPartition]], dict[str, int]
    ],
) -> None:
    topics, subscriptions, previous, threads = group

    outcome = assign("sticky", topics, subscriptions, previous, threads=threads)

    owners = {p: member for member, part in outcome.assignment.items() for p in part}
    best = min(cost(one, previous, threads) for one in possible(topics, subscriptions))
    assert cost(owners, previous, threads) == best


@pytest.mark.parametrize(
    ("topics", "asked", "claims", "threads", "best"),
    [
        pytest.param(
            {"t": 5, "u": 2, "v": 4, "w": 5, "x": 5, "y": 4},
            {"a": "yvu", "b": "xy", "c": "v", "d": "twx", "e": "vx", "f": "ytw", "g": "uvt"}
            | {"h": "yu"},
            {"a": "u1 w3 y1", "b": "u0", "c": "v0", "d": "v3 w0 x0", "f": "w2 x3", "h": "t2"}
            | {"e": "t0 t1 t3 v2 w1 w4 x2 x4", "g": "t4 v1 x1 y2 y3"},
            {"a": 2, "h": 2},
            (67, 16),
            id="a partition that moved already is given on rather than another",
        ),
        pytest.param(
            {"t": 5, "u": 1, "v": 4, "w": 3, "x": 5},
            {"a": "wxt", "b": "u", "c": "xw", "d": "uv", "e": "t", "f": "vw", "g": "vwx", "h": "w"},
            {"a": "x1", "b": "u0 v1 x2", "c": "w1 w2", "d": "t0 t2 t3 v2 w0 x0 x4"}
            | {"e": "t4", "f": "t1 v0 v3 x3"},
            {"a": 2, "d": 2, "e": 2},
            (32, 10),
            id="a chain that levels nothing saves a move",
        ),
        pytest.param(
            {"t": 2, "u": 2},
            {"a": "tu", "b": "u", "c": "tu", "d": "t"},
            {"a": "t0", "b": "u0"},
            {},
            (4, 0),
            id="what nobody had goes where nobody gives up a partition for it",
        ),
    ],
)
def test_sticky_is_the_best_where_chains_are_long(
    topics: dict[str, int],
    asked: dict[str, str],
    claims: dict[str, str],
    threads: dict[str, int],
    best: tuple[int, int],
) -> None:
    """The best is what a solver of flow problems found; that of the last is plain."""
    previous = {m: [(p[0], int(p[1:])) for p in part.split()] for m, part in claims.items()}

    outcome = assign(
        "sticky", topics, {m: list(ts) for m, ts in asked.items()}, previous, threads=threads
    )

    owners = {p: member for member, part in outcome.assignment.items() for p in part}
    assert (unlevelness(owners, list(asked), threads), len(outcome.moved)) == best


@given(small_groups(), st.sampled_from(ASSIGNORS))
def test_the_order_in_which_a_group_is_told_does_not_matter(
    group: tuple[
        dict[str, int], dict[str, list[str]], dict[str, list[TopicPartition]], dict[str, int]
    ],
    assignor: Assignor,
) -> None:
    topics, subscriptions, previous, threads = group
    forwards = assign(assignor, topics, subscriptions, previous, threads=threads)

    backwards = assign(
        assignor,
        dict(reversed(topics.items())),
        {m: wanted[::-1] for m, wanted in reversed(subscriptions.items())},
        {m: part[::-1] for m, part in reversed(previous.items())},
        threads=threads,
    )

    assert list(forwards.assignment.items()) == list(backwards.assignment.items())
    assert forwards.moved == backwards.moved

"""Long work in slices: nothing is left out, and others run in between."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from leadline_common.slices import TURN_MS, in_order, in_turns, parts, slices, timed_turns


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(0, 3, []), (1, 3, [1]), (3, 3, [3]), (4, 3, [3, 1]), (9, 3, [3, 3, 3])],
)
async def test_the_items_come_in_order_and_in_full_slices(
    count: int, size: int, expected: list[int]
) -> None:
    items = list(range(count))

    found = [some async for some in slices(items, size)]

    assert [len(some) for some in found] == expected
    assert [item for some in found for item in some] == items


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([], []),
        ([9], [[9]]),
        ([1, 2, 1], [[1, 2], [1]]),
        ([3, 3], [[3], [3]]),
        ([1, 9, 1, 1], [[1], [9], [1, 1]]),
    ],
)
def test_a_part_weighs_at_most_so_much_or_is_one_item(
    weights: list[int], expected: list[list[int]]
) -> None:
    assert list(parts(weights, lambda weight: weight, 3)) == expected


async def test_others_run_between_two_turns_but_not_before_the_first() -> None:
    seen: list[str] = []
    asyncio.get_running_loop().call_soon(seen.append, "another")

    async for turn in in_turns(["first", "second"]):
        seen += [turn]

    assert seen == ["first", "another", "second"]


@pytest.mark.parametrize(
    ("each_ms", "expected"),
    [(TURN_MS, [1, 1, 1, 1, 1]), (TURN_MS // 2, [2, 2, 1]), (0, [4, 1]), (1, [4, 1])],
)
async def test_a_timed_turn_ends_when_its_time_is_over_or_it_is_full(
    each_ms: int, expected: list[int]
) -> None:
    found: list[list[int]] = []

    async for turn in timed_turns(range(5), lambda: each_ms * sum(map(len, found)), size=4):
        found.append([])
        for item in turn:
            found[-1].append(item)

    assert [len(some) for some in found] == expected
    assert [item for some in found for item in some] == list(range(5))


async def test_what_a_timed_turn_leaves_comes_in_the_next() -> None:
    clock = count()
    found = [next(turn) async for turn in timed_turns("abc", lambda: next(clock))]
    assert found == ["a", "b", "c"]


def test_items_come_by_topic_and_partition_as_they_are_at_the_first_step() -> None:
    items = [("b", 2), ("a", 10), ("b", 1), ("a", 9)]
    found = in_order(items, lambda item: item)
    first = next(found)
    items.append(("c", 1))
    assert [first, *found] == [("a", 9), ("a", 10), ("b", 1), ("b", 2)]

"""Long work in slices: nothing is left out, and others run in between."""

from __future__ import annotations

import asyncio

import pytest

from leadline_common.slices import in_turns, parts, slices


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

"""Computations for requests: short ones on the loop, long ones beside it, and not too many."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.errors import ComputationsBusy, InvalidRequest
from leadline_common.computing import (
    BURST_S,
    FREE_WORK,
    INLINE_WORK,
    LONGEST_DELAY_S,
    MAX_WAITING,
    SHARE,
    Computer,
    ComputingBudget,
    check_work,
)
from tests.support.services.zookeeper import until

LONG = INLINE_WORK + 1


def test_work_beyond_a_limit_is_refused_by_its_name() -> None:
    check_work("partitions x brokers", 10, 10)
    with pytest.raises(InvalidRequest, match="partitions x brokers is 11; at most 10 "):
        check_work("partitions x brokers", 11, 10)


async def test_short_work_runs_on_the_loop_and_long_work_beside_it() -> None:
    computer = Computer()
    assert await computer.run(threading.get_ident, INLINE_WORK) == threading.get_ident()
    assert await computer.run(threading.get_ident, LONG) != threading.get_ident()


async def test_the_loop_runs_while_one_computation_does_and_further_ones_are_refused() -> None:
    computer, go_on, running, most = Computer(), threading.Event(), list[int](), list[int]()

    def compute() -> int:
        running.append(1)
        most.append(len(running))
        assert go_on.wait(20)
        running.pop()
        return 7

    asked = [asyncio.create_task(computer.run(compute, LONG)) for _ in range(MAX_WAITING)]
    await until(lambda: bool(running), "the first one runs")
    with pytest.raises(ComputationsBusy):
        await computer.run(compute, LONG)
    assert await computer.run(lambda: 1, 1) == 1, "short work needs no room"
    asked[-1].cancel()
    go_on.set()
    assert await asyncio.gather(*asked[:-1]) == [7] * (MAX_WAITING - 1)
    assert set(most) == {1}
    await until(lambda: computer._waiting == 0, "there is room again")
    assert await computer.run(compute, LONG) == 7


async def test_a_failed_computation_fails_its_request_and_makes_room() -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    computer = Computer()
    for _ in range(2 * MAX_WAITING):
        with pytest.raises(RuntimeError):
            await computer.run(fail, LONG)


@given(costs=st.lists(st.floats(0.0, 20.0), min_size=1, max_size=50))
def test_computations_get_their_share_and_a_burst_whatever_each_of_them_takes(
    costs: list[float],
) -> None:
    budget, now_s, computed_s = ComputingBudget(), 1_000.0, 0.0
    for cost_s in costs:
        now_s += budget.delay_s(now_s)
        assert computed_s <= BURST_S + SHARE * (now_s - 1_000) + 1e-6
        now_s += cost_s
        computed_s += cost_s
        budget.charge(cost_s, now_s)


def test_a_few_questions_wait_for_nothing_and_what_was_saved_has_a_limit() -> None:
    budget = ComputingBudget()
    budget.charge(BURST_S, 1_000.0)
    assert budget.delay_s(1_000.0) == 0
    budget.charge(BURST_S, 1_000.0)
    assert budget.delay_s(1_000.0) == pytest.approx(BURST_S / SHARE)
    assert budget.delay_s(1_000.0 + BURST_S / SHARE) == 0
    budget.charge(2 * BURST_S, 9_000.0)
    assert budget.delay_s(9_000.0) == pytest.approx(BURST_S / SHARE)


async def test_short_work_beyond_the_budget_waits_beside_the_loop_like_long_work() -> None:
    computer = Computer()
    computer._budget.charge(BURST_S + 0.01, time.monotonic())
    assert await computer.run(threading.get_ident, FREE_WORK + 1) != threading.get_ident()
    assert await computer.run(threading.get_ident, FREE_WORK) == threading.get_ident()


async def test_what_would_wait_for_too_long_is_refused() -> None:
    computer = Computer()
    computer._budget.charge(BURST_S + 1.1 * LONGEST_DELAY_S * SHARE, time.monotonic())
    with pytest.raises(ComputationsBusy):
        await computer.run(threading.get_ident, FREE_WORK + 1)
    assert await computer.run(lambda: 1, FREE_WORK) == 1, "what costs next to nothing is done"

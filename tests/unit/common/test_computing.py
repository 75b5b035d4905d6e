"""Computations for requests: short ones on the loop, long ones beside it, and not too many."""

from __future__ import annotations

import asyncio
import threading

import pytest

from leadline_client.errors import ComputationsBusy, InvalidRequest
from leadline_common.computing import INLINE_WORK, MAX_WAITING, Computer, check_work
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

"""What only seeds from 70,000 on have: each kind happens, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest

from leadline_broker.domain import leadership
from tests.runtime_simulation.additions import (
    FIRST_WITH_CONFIG_CHANGES,
    FIRST_WITH_CUT_OFF_CONTROLLERS,
    FIRST_WITH_DUPLICATE_INSTANCES,
    FIRST_WITH_GROUP_OPERATORS,
    FIRST_WITH_UNREADABLE_SEGMENTS,
    FIRST_WITH_WRONG_CLOCKS,
)
from tests.runtime_simulation.commits import COMMITTED
from tests.runtime_simulation.configuring import ALL
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.drawing import make_plan
from tests.runtime_simulation.event_loop import SimulatedLoop
from tests.runtime_simulation.faults import SUCCEEDED
from tests.runtime_simulation.group_operators import EVICTED, SET_BACK
from tests.runtime_simulation.member_processes import FENCED
from tests.runtime_simulation.plan import (
    CLOCK,
    CUT_OFF,
    DELETE_GROUP,
    DUPLICATE,
    EVICT,
    MIN_INSYNC,
    RESET,
    RETAIN,
    UNREADABLE,
    Action,
    Fault,
    Plan,
)
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.reading_faults import REFUSED
from tests.runtime_simulation.run import report, simulate
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.runtime_simulation.test_runtime_simulation import check_clean, seeds_with

pytestmark = pytest.mark.timeout(1200)

FEW, MANY = 4, 40


def seeds_with_actions(first: int, last: int, *kinds: str) -> list[int]:
    """Return the seeds whose plans have an action of one of these kinds."""
    plans = {seed: make_plan(seed) for seed in range(first, last)}
    return [s for s, p in plans.items() if any(action.kind in kinds for action in p.actions)]


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_nothing_is_lost_while_operators_change_the_configuration(count: int) -> None:
    first = FIRST_WITH_CONFIG_CHANGES
    seeds = seeds_with_actions(first, first + 4 * count, MIN_INSYNC, RETAIN)[:count]

    assert len(seeds) == count
    assert check_clean(seeds).keys() >= {MIN_INSYNC, RETAIN}


def test_only_later_seeds_have_operators_who_change_the_configuration() -> None:
    first = FIRST_WITH_CONFIG_CHANGES
    assert seeds_with_actions(first - 100, first, MIN_INSYNC, RETAIN) == []


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_nothing_is_lost_while_wall_clocks_are_wrong(count: int) -> None:
    first = FIRST_WITH_WRONG_CLOCKS
    seeds = seeds_with(CLOCK, first, first + 4 * count)[:count]

    assert len(seeds) == count
    assert CLOCK in check_clean(seeds)


def test_only_later_seeds_have_wrong_clocks() -> None:
    assert seeds_with(CLOCK, FIRST_WITH_WRONG_CLOCKS - 100, FIRST_WITH_WRONG_CLOCKS) == []


def test_a_wall_clock_is_set_for_one_process() -> None:
    loop = SimulatedLoop(1_000.0)
    system = SimulatedSystem(loop, Random(1), wall_offset_s=5_000.0)
    system.set_clock("broker-1", 3_600.0)

    async def now() -> tuple[float, float, float]:
        return time.time(), time.time_ns() / 1e9, time.monotonic()

    with system.in_force():
        tasks = [loop.in_process(Process(f"broker-{number}"), now()) for number in (1, 2)]
        loop.run_until(1_001.0)
        system.set_clock("broker-1", -90.0)
        tasks.append(loop.in_process(Process("broker-1"), now()))
        loop.run_until(1_001.0)
    loop.close()

    assert [task.result() for task in tasks] == [
        (9_600.0, 9_600.0, 1_000.0),
        (6_000.0, 6_000.0, 1_000.0),
        (5_911.0, 5_911.0, 1_001.0),
    ]


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_nothing_is_lost_while_segments_cannot_be_read(count: int) -> None:
    first = FIRST_WITH_UNREADABLE_SEGMENTS
    seeds = seeds_with(UNREADABLE, first, first + 8 * count)[:count]

    assert len(seeds) == count
    assert check_clean(seeds).keys() >= {UNREADABLE, REFUSED}


def test_only_later_seeds_have_segments_that_cannot_be_read() -> None:
    first = FIRST_WITH_UNREADABLE_SEGMENTS
    assert seeds_with(UNREADABLE, first - 100, first) == []


def test_what_too_few_replicas_hold_is_found_as_it_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ends_of_leader(*_: object, leader_end: int, **__: object) -> int:
        return leader_end

    assert simulate(0, plan=Plan(partitions=1)).sometimes[COMMITTED] > 10
    monkeypatch.setattr(leadership, "committed_end", ends_of_leader)

    result = simulate(0, plan=Plan(partitions=1))

    assert result.message.startswith("R5: broker"), report(result)


def seeds_with_group_operators(first: int, last: int) -> list[int]:
    return sorted(
        {s for kind in (EVICT, RESET, DELETE_GROUP) for s in seeds_with(kind, first, last)}
    )


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_nothing_is_lost_while_operators_change_a_group(count: int) -> None:
    first = FIRST_WITH_GROUP_OPERATORS
    seeds = seeds_with_group_operators(first, first + 10 * count)[:count]

    assert len(seeds) == count
    assert EVICTED in check_clean(seeds)


@pytest.mark.slow
def test_operators_of_groups_do_what_they_are_meant_to_do() -> None:
    first = FIRST_WITH_GROUP_OPERATORS
    reached = check_clean(seeds_with_group_operators(first, first + 160))

    assert reached.keys() >= {f"{RESET}: done", f"{DELETE_GROUP}: done", SET_BACK}


def test_only_later_seeds_have_operators_of_groups() -> None:
    first = FIRST_WITH_GROUP_OPERATORS
    assert seeds_with_group_operators(first - 100, first) == []


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_a_replaced_member_ends(count: int) -> None:
    first = FIRST_WITH_DUPLICATE_INSTANCES
    seeds = seeds_with(DUPLICATE, first, first + 20 * count)[:count]

    assert len(seeds) == count
    assert check_clean(seeds).keys() >= {DUPLICATE, FENCED}


def test_only_later_seeds_have_second_consumers_of_instances() -> None:
    first = FIRST_WITH_DUPLICATE_INSTANCES
    assert seeds_with(DUPLICATE, first - 100, first) == []


def test_only_segments_of_the_broken_part_of_a_disk_cannot_be_read(tmp_path: Path) -> None:
    loop = SimulatedLoop(1_000.0)
    disk = Disk(tmp_path / "broker-1", Random(1))
    system = SimulatedSystem(loop, Random(1), [disk])
    disk.unreadable = str(disk.root / "t-0")
    names = ("t-0/0.log", "t-0/0.index", "t-1/0.log")
    for name in names:
        disk.root.joinpath(name).parent.mkdir(exist_ok=True)
        disk.root.joinpath(name).write_bytes(b"records")

    async def read(name: str) -> bytes:
        descriptor = os.open(disk.root / name, os.O_RDONLY)
        try:
            return os.pread(descriptor, 3, 2)
        finally:
            os.close(descriptor)

    with system.in_force():
        tasks = [loop.in_process(Process("broker-1"), read(name)) for name in names]
        loop.run_until(1_001.0)
    loop.close()

    with pytest.raises(OSError, match="Input/output error"):
        tasks[0].result()
    assert [task.result() for task in tasks[1:]] == [b"cor", b"cor"]
    assert disk.refused_reads == 1


def test_defect_32_brokers_wait_for_a_topics_own_retention() -> None:
    """Two are started while no controller is there, and keep nothing by default."""
    plan = Plan(
        controllers=1,
        partitions=1,
        pause_s=0.01,
        retention=ALL,
        actions=(Action(0.5, RETAIN, 0, 0, 0),),
        faults=(
            Fault(3.0, "kill controller", 0, 2.5),
            Fault(3.1, "kill", 0, 0.1),
            Fault(3.5, "kill", 1, 0.1),
        ),
    )

    result = simulate(0, plan=plan)

    assert not result.failed, report(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [70_005, 70_213, 74_390, 74_730, 78_022, 78_075, 78_173, 78_315, 78_897]
)
def test_seeds_that_have_failed_once_pass(seed: int) -> None:
    check_clean([seed])


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_nothing_is_lost_while_controllers_are_cut_off_from_brokers(count: int) -> None:
    first = FIRST_WITH_CUT_OFF_CONTROLLERS
    seeds = seeds_with(CUT_OFF, first, first + 4 * count)[:count]

    assert len(seeds) == count
    assert check_clean(seeds).keys() >= {CUT_OFF, SUCCEEDED}


def test_only_later_seeds_have_controllers_that_are_cut_off_from_brokers() -> None:
    first = FIRST_WITH_CUT_OFF_CONTROLLERS
    assert seeds_with(CUT_OFF, first - 100, first) == []

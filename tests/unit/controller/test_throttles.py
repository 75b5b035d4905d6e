"""How the rate of a broker is allotted to the tasks that move replicas on it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline_common.reassignments import ThrottleBound
from leadline_controller.domain.reassignment.throttles import (
    RESERVED_PERCENT,
    Ceilings,
    Mover,
    allot,
)

RATES = st.none() | st.integers(0, 10_000)
UNLIMITED = 1 << 62


@st.composite
def movers(draw: st.DrawFn) -> list[Mover]:
    rows = draw(st.lists(st.tuples(RATES, st.booleans()), max_size=6))
    return [Mover(str(n), own, is_healing) for n, (own, is_healing) in enumerate(rows)]


def test_defect_15_a_slow_task_does_not_slow_the_others() -> None:
    """A task at 1 MB/s fell to 100 kB/s beside a slower one."""
    found = allot([Mover("slow", 100_000), Mover("fast", 1_000_000), Mover("free")], Ceilings())
    assert {task: one.bytes_per_s for task, one in found.items()} == {
        "slow": 100_000,
        "fast": 1_000_000,
        "free": None,
    }
    assert [found[task].bound_by for task in ("slow", "fast", "free")] == ["own", "own", None]


def test_defect_15_healing_goes_first_and_stalls_nobody() -> None:
    tasks = [Mover("heal", is_healing=True), Mover("a"), Mover("b", 10)]
    found = allot(tasks, Ceilings(cluster=1_000))
    assert {task: one.bytes_per_s for task, one in found.items()} == {"heal": 900, "a": 90, "b": 10}
    found = allot(tasks, Ceilings(cluster=1_000, healing=300))
    assert {task: one.bytes_per_s for task, one in found.items()} == {
        "heal": 300,
        "a": 690,
        "b": 10,
    }
    assert found["heal"].bound_by == ThrottleBound.HEALING_CEILING


@given(tasks=movers(), cluster=RATES, healing=RATES)
def test_defect_15_no_ceiling_is_exceeded_and_nothing_is_wasted(
    tasks: list[Mover], cluster: int | None, healing: int | None
) -> None:
    found = allot(tasks, Ceilings(cluster, healing))
    assert found.keys() == {task.task for task in tasks}
    rate = {
        task: UNLIMITED if one.bytes_per_s is None else one.bytes_per_s
        for task, one in found.items()
    }
    heals = [task for task in tasks if task.is_healing]
    others = [task for task in tasks if not task.is_healing]

    def total(some: list[Mover]) -> int:
        return sum(rate[task.task] for task in some)

    def demand(some: list[Mover]) -> int:
        return min(UNLIMITED, sum(UNLIMITED if t.own is None else t.own for t in some))

    if cluster is not None:
        assert total(tasks) <= cluster
    if healing is not None:
        assert total(heals) <= healing
    for task in tasks:
        assert task.own is None or rate[task.task] <= task.own
        assert (found[task.task].bound_by is None) == (found[task.task].bytes_per_s is None)
        assert (found[task.task].bound_by == ThrottleBound.OWN) == (task.own == rate[task.task])
    slack = len(tasks)  # what is lost by rounding
    wanted = min(
        UNLIMITED, demand(others) + min(demand(heals), UNLIMITED if healing is None else healing)
    )
    ceiling = UNLIMITED if cluster is None else cluster
    assert total(tasks) >= min(wanted, ceiling) - slack, "what can be used is given"
    if cluster is not None:
        kept = cluster - cluster * RESERVED_PERCENT // 100
        first = min(demand(heals), kept, UNLIMITED if healing is None else healing)
        assert total(heals) >= first - slack, "healing goes first"
        assert total(others) >= min(demand(others), cluster * RESERVED_PERCENT // 100) - slack

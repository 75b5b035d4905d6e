"""Several wall clocks that are wrong at once: nothing is deleted that is too old by few of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pytest

from leadline_controller.domain.clocks import BrokerClocks
from tests.runtime_simulation.additions import FIRST_WITH_SEVERAL_WRONG_CLOCKS
from tests.runtime_simulation.clock import several_wrong_times
from tests.runtime_simulation.cluster_clocks import OUTVOTED, UNSAID
from tests.runtime_simulation.plan import CLOCKS, Fault, Plan, Retention
from tests.runtime_simulation.run import report, simulate
from tests.runtime_simulation.test_runtime_simulation import check_clean, seeds_with

pytestmark = pytest.mark.timeout(1200)

FEW, MANY = 6, 40
FIRST: Final = FIRST_WITH_SEVERAL_WRONG_CLOCKS
A_MONTH_AHEAD: Final = Fault(0.0, CLOCKS, 0, 6.0, 5)
"""The clocks of both controllers and of a broker, while controllers are elected again and again."""
ELECTED_AGAIN: Final = Plan(
    partitions=1,
    pause_s=0.01,
    retention=Retention(-1, 60_000),
    faults=(
        A_MONTH_AHEAD,
        *(Fault(0.8 + 0.6 * turn, "kill controller", turn, 0.1, 1) for turn in range(8)),
    ),
)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_nothing_is_lost_while_several_wall_clocks_are_wrong(count: int) -> None:
    seeds = seeds_with(CLOCKS, FIRST, FIRST + 4 * count)[:count]

    assert len(seeds) == count
    assert check_clean(seeds).keys() >= {CLOCKS, OUTVOTED}


def test_only_later_seeds_have_several_wrong_clocks() -> None:
    assert seeds_with(CLOCKS, FIRST - 100, FIRST) == []


def test_the_clocks_of_all_controllers_and_of_one_broker_are_set() -> None:
    controllers, brokers = ["controller-1", "controller-2"], ["broker-1", "broker-2", "broker-3"]

    found = dict(several_wrong_times(A_MONTH_AHEAD, controllers, brokers, []))

    assert found.keys() > set(controllers)
    assert len(found.keys() & brokers) == 1
    assert set(found.values()) == {2_592_000.0}


@pytest.mark.parametrize("seed", [8, 9])
def test_a_new_controller_says_no_time_by_few_clocks(seed: int) -> None:
    result = simulate(seed, plan=ELECTED_AGAIN)

    assert not result.failed, report(result)
    assert result.sometimes.keys() >= {OUTVOTED, UNSAID}


@pytest.mark.parametrize("seed", [8, 9])
def test_what_is_deleted_by_few_clocks_is_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def say_by_known(
        clocks: BrokerClocks, live: Collection[int], own_ms: int, monotonic_ms: int
    ) -> int:
        known = (clocks._at_zero_ms[one] for one in live if one in clocks._at_zero_ms)
        times_ms = sorted([own_ms, *(one + monotonic_ms for one in known)])
        return times_ms[(len(times_ms) - 1) // 2]

    monkeypatch.setattr(BrokerClocks, "cluster_time_ms", say_by_known)

    result = simulate(seed, plan=ELECTED_AGAIN)

    assert result.message.endswith("retention asks for more"), report(result)

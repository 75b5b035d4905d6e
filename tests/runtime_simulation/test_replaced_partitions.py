"""Partitions that a group reads, removed and added again: no record of the next one is skipped."""

from __future__ import annotations

import pytest

from tests.runtime_simulation.additions import FIRST_WITH_REPLACED_PARTITIONS
from tests.runtime_simulation.plan import REPLACE
from tests.runtime_simulation.test_later_faults import FEW, MANY, seeds_with_actions
from tests.runtime_simulation.test_runtime_simulation import check_clean

pytestmark = pytest.mark.timeout(1200)

FIRST = FIRST_WITH_REPLACED_PARTITIONS


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_a_group_misses_nothing_of_a_partition_that_is_added_again(count: int) -> None:
    seeds = seeds_with_actions(FIRST, FIRST + 20 * count, REPLACE)[:count]

    assert len(seeds) == count
    assert REPLACE in check_clean(seeds)


def test_only_later_seeds_have_partitions_of_a_group_added_again() -> None:
    assert seeds_with_actions(FIRST - 100, FIRST, REPLACE) == []


def test_defect_41_an_offset_without_an_epoch_does_not_outlive_its_partition() -> None:
    """A member that polls has committed it; its commit comes late."""
    check_clean([74_174])

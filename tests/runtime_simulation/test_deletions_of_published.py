"""Topics that applications publish to, deleted and created again: each batch is there once."""

from __future__ import annotations

from typing import Any, Final

import pytest

from leadline_broker.domain.publishes import Publishes
from tests.runtime_simulation.additions import FIRST_WITH_DELETIONS_OF_PUBLISHED
from tests.runtime_simulation.drawing import make_plan
from tests.runtime_simulation.plan import DELETE, Action, Plan
from tests.runtime_simulation.publishers import BEGAN_AGAIN, KNOWN, MET_DELETED, REPEATED
from tests.runtime_simulation.run import report, simulate
from tests.runtime_simulation.test_runtime_simulation import check_clean

pytestmark = pytest.mark.timeout(1200)

FEW, MANY = 4, 40
FIRST: Final = FIRST_WITH_DELETIONS_OF_PUBLISHED
DELETES: Final = Plan(
    partitions=1,
    publishes=True,
    pause_s=0.02,
    actions=tuple(Action(1.0 + turn, DELETE, 0, 0, 0) for turn in range(4)),
)


def seeds_with_deletions(first: int, last: int) -> list[int]:
    """Return the seeds whose plans have applications, and topics that are deleted."""
    plans = {seed: make_plan(seed) for seed in range(first, last)}
    return [
        seed
        for seed, plan in plans.items()
        if plan.publishes and any(action.kind == DELETE for action in plan.actions)
    ]


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_each_batch_is_in_one_topic_once(count: int) -> None:
    seeds = seeds_with_deletions(FIRST, FIRST + 10 * count)[:count]

    assert len(seeds) == count
    assert check_clean(seeds).keys() >= {DELETE, MET_DELETED, BEGAN_AGAIN, REPEATED, KNOWN}


def test_only_later_seeds_delete_topics_to_which_applications_publish() -> None:
    assert seeds_with_deletions(FIRST - 100, FIRST) == []


def test_a_topic_knows_nothing_of_what_was_published_to_the_one_before() -> None:
    result = simulate(0, plan=DELETES)

    assert not result.failed, report(result)
    assert result.sometimes.keys() >= {MET_DELETED, BEGAN_AGAIN}


def test_a_topic_that_knows_the_batches_of_the_one_before_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled, ever = Publishes.settled, dict[tuple[int, int], Any]()

    def settled_ever(publishes: Publishes, publisher: int, batch: int) -> Any:
        found = settled(publishes, publisher, batch)
        if found is not None:
            ever[publisher, batch] = found
        return ever.get((publisher, batch))

    monkeypatch.setattr(Publishes, "settled", settled_ever)

    result = simulate(0, plan=DELETES)

    assert "is new, and a duplicate" in result.message, report(result)

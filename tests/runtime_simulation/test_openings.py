"""Directed openings lead where they say, and a cluster with all its rules survives them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.runtime_simulation.additions import FIRST_WITH_POLLED_MEMBERS
from tests.runtime_simulation.drawing import make_plan
from tests.runtime_simulation.faults import PUT_BACK
from tests.runtime_simulation.openings import LATER_OPENINGS, OPENINGS
from tests.runtime_simulation.plan import FORMER
from tests.runtime_simulation.run import report, simulate

REACHED = {
    "R1 away and back": "leadership moved back",
    "R4 durable ends": "power cut of all at an acknowledgement",
    "R5 R7 growing ISR": "ISR grew in an ambush",
    "R6 epoch start": "a broker behind returned with the last member",
    "R9 restarted leader": "a leader with less than its followers lost power",
    "R11 replaced controller": "a topic was created again as a controller was replaced",
    "R16 former coordinator": FORMER,
    "R16 late commit": "a commit was held back",
    "R17 older copy": PUT_BACK,
    "R17 lost directory": "eligible replica elected after a wiped disk",
}
SEEDS = 400
ALL = {**OPENINGS, **LATER_OPENINGS}


@pytest.mark.parametrize("name", ALL)
def test_an_opening_leads_to_its_event_and_nothing_is_lost(name: str) -> None:
    result = simulate(1, plan=ALL[name](Random(f"opening {name}")))

    assert not result.failed, report(result)
    assert REACHED[name] in result.sometimes


def test_every_opening_is_drawn_and_most_plans_have_none() -> None:
    drawn = Counter(make_plan(seed).opening for seed in range(SEEDS))

    assert drawn.keys() == {"", *OPENINGS}
    assert drawn[""] > 0.8 * SEEDS


def test_later_openings_are_drawn_by_later_seeds_alone() -> None:
    first = FIRST_WITH_POLLED_MEMBERS
    drawn = Counter(make_plan(seed).opening for seed in range(first, first + SEEDS))

    assert drawn.keys() == {"", *ALL}

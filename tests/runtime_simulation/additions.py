"""What plans may have besides, drawn from random streams of their own.

Seeds that are pinned are below `FIRST_WITH_ADDITIONS`. Their plans stay as they are.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.runtime_simulation.plan import Plan, Retention

FIRST_WITH_ADDITIONS: Final = 300


def with_additions(plan: Plan, seed: int) -> Plan:
    """Add to a plan what its seed draws; directed openings stay as they are."""
    if plan.opening:
        return plan
    return _with_retention(plan, Random(f"retention {seed}"))


def _with_retention(plan: Plan, random: Random) -> Plan:
    """Let topics keep few records in four plans of ten."""
    if random.random() >= 0.4:
        return plan
    size_bytes = random.choice((-1, 0, 1_000, 3_000, 3_000))
    age_ms = random.choice((500, 2_000)) if size_bytes < 0 else random.choice((-1, -1, 2_000))
    return replace(plan, pause_s=0.03, retention=Retention(size_bytes, age_ms))

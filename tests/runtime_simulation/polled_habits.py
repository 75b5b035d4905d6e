"""How programs differ that poll over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.runtime_simulation.plan import Group


@dataclass(frozen=True, slots=True)
class Habits:
    """What a program asks for, how it commits, and how often it is slow (a probability)."""

    session_ms: int
    max_records: int
    commits_itself: bool
    slow: float


def draw_habits(random: Random, group: Group) -> Habits:
    """Return the habits of one program."""
    # Only brokers know which incarnation of a topic an offset is of.
    commits_itself = not group.commits_positions and random.random() < 0.5
    return Habits(
        session_ms=random.choice((1_200, 2_000, 3_000)),
        max_records=random.choice((5, 20, 500)),
        commits_itself=commits_itself,
        slow=random.choice((0.0, 0.03, 0.1)),
    )

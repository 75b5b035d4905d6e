"""What operators change of the configuration: of a topic, or of the whole cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.runtime_simulation.messages import Configure
from tests.runtime_simulation.plan import MIN_INSYNC, RETAIN, Action, Plan, Retention

_MIN_INSYNC: Final = "min.insync.replicas"
_OF_CLUSTER, _REMOVED = 8, 16
"""Bits of an action's choice."""
ALL: Final = Retention(-1, -1)
_RETENTIONS: Final = (
    ALL,
    Retention(0, -1),
    Retention(1_000, -1),
    Retention(3_000, -1),
    Retention(-1, 500),
    Retention(-1, 2_000),
)


def changes_retention(plan: Plan) -> bool:
    """Tell whether operators change how many records topics keep."""
    return any(action.kind == RETAIN for action in plan.actions)


def config_change(action: Action, topics: Sequence[str]) -> Configure:
    """Return the request of an action.

    Every topic states its own retention: brokers keep nothing by default in such a plan.
    """
    name, choice = topics[action.topic % len(topics)], action.choice
    if action.kind == RETAIN:
        return Configure(name, _RETENTIONS[choice % len(_RETENTIONS)].configs())
    assert action.kind == MIN_INSYNC
    owner = "" if choice & _OF_CLUSTER else name
    if choice & _REMOVED:
        return Configure(owner, {}, (_MIN_INSYNC,))
    return Configure(owner, {_MIN_INSYNC: str(action.partition + 1)})

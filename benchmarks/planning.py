"""Time and quality of plans for many partitions, against a copy of the assignment.

Run `python benchmarks/planning.py [--partitions N] [--rounds N]`. For each plan it prints the
spread of replicas and of leaders over the brokers, moves in relation to the least possible number,
and the median time in relation to the median of the baseline, taken in turns: a copy of
every replica list, which is the least that a planner could do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from leadline_client.wire import TopicPartition
from leadline_controller.domain.placement import assign_replicas
from leadline_controller.domain.planning.plans import (
    Plan,
    plan_balance,
    plan_drain,
    plan_expand,
)

Assignments = dict[TopicPartition, tuple[int, ...]]
_Result = TypeVar("_Result")


def timed(action: Callable[[], _Result]) -> tuple[float, _Result]:
    """Return how many seconds an action takes, and what it returns."""
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result


def copied(assignments: Assignments) -> dict[TopicPartition, list[int]]:
    """Return the assignment with a new list for each partition."""
    return {name: list(replicas) for name, replicas in assignments.items()}


def placed(brokers: dict[int, str | None], partitions: int) -> Assignments:
    """Place a thousand partitions per topic, three replicas each."""
    return {
        TopicPartition(f"topic-{number // 1000}", number % 1000): replicas
        for number, replicas in assign_replicas(brokers, partitions, 3).items()
    }


def report(name: str, rounds: int, before: Assignments, action: Callable[[], Plan]) -> None:
    """Measure a plan and its baseline in turns, and print both."""
    baselines, times = [], []
    for _ in range(rounds):
        baselines.append(timed(partial(copied, before))[0])
        took, plan = timed(action)
        times.append(took)
    base, seconds = statistics.median(baselines), statistics.median(times)
    print(
        f"{name:28} replicas ±{plan.spread('replicas_after')} leaders ±"
        f"{plan.spread('leaders_after')}  moves {plan.moves} = "
        f"{plan.moves / max(1, plan.minimum):.4f} of the least  leader changes "
        f"{plan.leader_changes}  {seconds * 1000:.0f} ms = {seconds / base:.1f} copies "
        f"of {base * 1000:.1f} ms"
    )


def main() -> None:
    """Plan from ten brokers to nine and to twelve, without racks and on five."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    print(f"{arguments.partitions} partitions, 3 replicas; load {os.getloadavg()[0]:.2f}")
    for racks in (0, 5):
        racked = f"{racks or 'no'} racks"
        brokers = {b: f"rack-{b % racks}" if racks else None for b in range(12)}
        ten = {b: rack for b, rack in brokers.items() if b < 10}
        before = placed(ten, arguments.partitions)
        rounds = arguments.rounds
        report(f"drain 10 to 9, {racked}", rounds, before, partial(plan_drain, before, ten, [9]))
        expand = partial(plan_expand, before, brokers, [10, 11])
        report(f"expand 10 to 12, {racked}", rounds, before, expand)
        balance = partial(plan_balance, before, brokers)
        report(f"balance over 12, {racked}", rounds, before, balance)


if __name__ == "__main__":
    main()

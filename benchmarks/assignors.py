"""Assign the partitions of a large group, as a ratio to a bare deal of as many partitions.

Run `python benchmarks/assignors.py [--members 1000] [--partitions 3000] [--rounds 5]`.
The baseline B deals the partitions to the members in a circle, into the same
structure, from what is in order already: the least that any assignor does. It takes
turns with the assignors. "Alike" is a group whose members all asked for 30 topics,
"mixed" one in which each asked for ten of them. Goal: a second for 1,000 members and
3,000 partitions alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from random import Random
from typing import get_args

from leadline_client.channel import Assignor
from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.assignors.assign import Outcome, assign
from leadline_coordinator.domain.assignors.group_spec import Assignment

TOPICS = 30
ASKED = 10

Subscriptions = dict[str, list[str]]


def deal(topics: dict[str, int], members: list[str]) -> Assignment:
    """Deal in a circle: the baseline."""
    dealt: Assignment = {member: [] for member in members}
    hands = cycle(dealt.values())
    for topic, count in topics.items():
        for number in range(count):
            next(hands).append(TopicPartition(topic, number))
    return dealt


def timed(what: Callable[[], object]) -> float:
    """Return the milliseconds that a call takes."""
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1000


def report(
    name: str,
    topics: dict[str, int],
    subscriptions: Subscriptions,
    before: Outcome | None,
    rounds: int,
) -> None:
    """Print a row for each assignor: median B, median of the assignor, ratio, moves."""
    previous = before.assignment if before else None
    members = list(subscriptions)
    assignors: tuple[Assignor, ...] = get_args(Assignor)
    for assignor in assignors:
        work = partial(assign, assignor, topics, subscriptions, previous)
        pairs = [(timed(partial(deal, topics, members)), timed(work)) for _ in range(rounds)]
        baseline = statistics.median(pair[0] for pair in pairs)
        took = statistics.median(pair[1] for pair in pairs)
        ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
        moved = len(work().moved)
        print(f"{name:26} {assignor:10} {baseline:7.2f} {took:9.2f} {ratio:8.1f} {moved:8}")


def report_group(kind: str, topics: dict[str, int], asked: Subscriptions, rounds: int) -> None:
    """Report a group that comes together, loses a member, gains one, and doubles."""
    members = list(asked)
    settled = assign("sticky", topics, asked)
    fewer = {member: asked[member] for member in members[1:]}
    half = {member: asked[member] for member in members[::2]}
    report(f"{kind}, new", topics, asked, None, rounds)
    report(f"{kind}, one leaves", topics, fewer, settled, rounds)
    report(f"{kind}, one joins", topics, asked, assign("sticky", topics, fewer), rounds)
    report(f"{kind}, half of it joins", topics, asked, assign("sticky", topics, half), rounds)


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=3_000, help="of all topics together")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    names = [f"topic-{number:02}" for number in range(TOPICS)]
    topics = dict.fromkeys(names, options.partitions // TOPICS)
    members = [f"member-{number:05}" for number in range(options.members)]
    random = Random(1)
    print(f"{options.members} members, {sum(topics.values())} partitions; ", end="")
    print(f"load average {os.getloadavg()[0]:.2f}")
    print(f"{'':26} {'':10} {'B, ms':>7} {'took, ms':>9} {'ratio':>8} {'moved':>8}")
    report_group("alike", topics, dict.fromkeys(members, names), options.rounds)
    mixed = {member: random.sample(names, ASKED) for member in members}
    report_group("mixed", topics, mixed, options.rounds)


if __name__ == "__main__":
    main()

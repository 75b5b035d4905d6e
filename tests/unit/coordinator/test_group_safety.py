"""Rule R16: whatever happens, no partition has two owners; and in the end each has one.

Hypothesis makes up what happens; `world.py` carries it out with the coordinator's own
decisions. Each of the rule's parts is broken once in `test_group_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from leadline_client.errors import UnknownMember
from tests.unit.coordinator.world import Consumer, World

ASSIGNORS = ("range", "roundrobin", "sticky")
PROTOCOLS = ("eager", "cooperative")


def _reset(world: World, consumer: Consumer, _: int) -> None:
    if consumer.connection is not None:
        consumer.connection.server_closed_at = world.now + world.delay()
        consumer.connection.client_closed_at = world.now + world.delay()


def _cut(consumer: Consumer, *, up: bool = False, down: bool = False) -> None:
    if consumer.connection is not None:
        consumer.connection.up_cut |= up
        consumer.connection.down_cut |= down


def _freeze(world: World, consumer: Consumer, which: int) -> None:
    consumer.frozen_until = world.now + (40, 250, 700)[which % 3]


def _restart(world: World, consumer: Consumer, _: int) -> None:
    world.kill(consumer)
    world.join(**consumer.hello)


def _fail_over(world: World, _: Consumer, which: int) -> None:
    if world.coordinator is not None:
        world.fail_over((0, 60, 300)[which % 3])


def _grow(world: World, _: Consumer, __: int) -> None:
    world.topics["t"] += 1
    if world.coordinator is not None:
        world.coordinator.group.request_rebalance("topic t has changed")


def _evict(world: World, consumer: Consumer, _: int) -> None:
    if world.coordinator is not None and consumer.member in world.coordinator.group.members:
        world.coordinator.members.evict(consumer.member, UnknownMember("evicted"))


HAPPENINGS: dict[str, Callable[[World, Consumer, int], None]] = {
    "leave": lambda world, consumer, _: world.leave(consumer),
    "kill": lambda world, consumer, _: world.kill(consumer),
    "kill silently": lambda world, consumer, _: world.kill(consumer, silently=True),
    "freeze": _freeze,
    "cut up": lambda _, consumer, __: _cut(consumer, up=True),
    "cut down": lambda _, consumer, __: _cut(consumer, down=True),
    "cut both": lambda _, consumer, __: _cut(consumer, up=True, down=True),
    "reset": _reset,
    "deaf to stop": lambda _, consumer, __: setattr(consumer, "answers_stops", False),
    "deaf to start": lambda _, consumer, __: setattr(consumer, "answers_starts", False),
    "restart": _restart,
    "fail over": _fail_over,
    "grow": _grow,
    "evict": _evict,
}
events = st.tuples(
    st.sampled_from(["join", "join", *HAPPENINGS]),
    st.integers(0, 5),
    st.sampled_from([0, 10, 50, 120, 250, 450]),
)


def happen(world: World, what: str, which: int, hello: dict[str, Any]) -> None:
    """Have something happen, where it can."""
    living = list(world.living())
    if what != "join" and living:
        HAPPENINGS[what](world, living[which % len(living)], which)
    elif len(living) < 6:
        instance = {"instance_id": f"i{len(world.consumers)}"} if which % 3 == 0 else {}
        if which % 6 == 0:
            instance["instance_secret"] = f"only {len(world.consumers)} and its successors know"
        world.join(topics=("t",), **hello, **instance)


stories = given(
    seed=st.integers(0, 1 << 30),
    assignor=st.sampled_from(ASSIGNORS),
    protocol=st.sampled_from(PROTOCOLS),
    story=st.lists(events, min_size=3, max_size=25),
)
quiet: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def play(
    seed: int,
    assignor: str,
    protocol: str,
    story: list[tuple[str, int, int]],
    kind: type[World] = World,
) -> None:
    """Have a story happen, then let everything heal."""
    world = kind(seed, {"t": 7})
    hello = {"assignor": assignor, "protocol": protocol}
    for _ in range(2):
        world.join(topics=("t",), **hello)
    for what, which, wait_ms in story:
        world.run(wait_ms)
        world.intrude()
        happen(world, what, which, hello)
    world.heal()
    world.settled()


@settings(max_examples=150, **quiet)
# Stopped for a plan that was overtaken by the old one: it has to be started again.
@example(
    seed=0,
    assignor="range",
    protocol="eager",
    story=[("join", 0, 50), ("leave", 2, 120), ("reset", 0, 0)],
)
# Back while the group recovers, it answers the Start of before when it has been given more.
@example(
    seed=1,
    assignor="range",
    protocol="eager",
    story=[
        *(("join", 0, 50), ("leave", 0, 50), ("leave", 1, 50), ("leave", 0, 50), ("join", 1, 0)),
        *(("freeze", 0, 120), ("fail over", 2, 0), ("join", 0, 0), ("leave", 0, 0)),
        *(("cut down", 0, 450), ("join", 0, 0), ("join", 0, 0), ("cut up", 1, 0)),
    ],
)
@stories
def test_no_partition_has_two_owners_and_in_the_end_each_has_one(
    seed: int, assignor: str, protocol: str, story: list[tuple[str, int, int]]
) -> None:
    play(seed, assignor, protocol, story)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@settings(max_examples=10_000, **quiet)
@stories
def test_nor_in_ten_thousand_stories(
    seed: int, assignor: str, protocol: str, story: list[tuple[str, int, int]]
) -> None:
    play(seed, assignor, protocol, story)

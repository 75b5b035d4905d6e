"""Each part of rule R16 is needed: without it the world of `world.py` finds the harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from leadline_client.errors import LeadlineError
from leadline_coordinator.domain import rebalance
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupLimits, GroupMember, MemberSession
from leadline_coordinator.domain.membership import restored
from tests.unit.coordinator import world
from tests.unit.coordinator.test_group_safety import ASSIGNORS, HAPPENINGS, PROTOCOLS, happen

STORIES = 400


def free_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a former member holds is assigned to others while it may still be reading."""
    remove = Group.remove

    def changed(
        self: Group, member: GroupMember, error: LeadlineError | None, stopped_ms: int
    ) -> None:
        del stopped_ms
        remove(self, member, error, 0)

    monkeypatch.setattr(Group, "remove", changed)


def start_without_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner is started before the old one has stopped."""

    def changed(*_: Any, **__: Any) -> Iterator[Any]:
        yield from ()

    monkeypatch.setattr(rebalance, "_stop", changed)


def evict_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent member is evicted before its own limit has stopped it."""

    def changed(self: GroupMember, limits: GroupLimits) -> int:
        if self.session is None:
            return self.stopped_at_ms
        return self.session.acknowledged_at_ms + limits.stop_limit_ms - 60

    monkeypatch.setattr(GroupMember, "stopped_by_ms", changed)


def acknowledge_past_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that cannot answer a Stop stays alive by its other answers, and blocks the group."""

    def changed(self: MemberSession, number: int, now_ms: int) -> None:
        if number > self.acknowledged:
            self.acknowledged, self.acknowledged_at_ms = number, now_ms

    monkeypatch.setattr(MemberSession, "_acknowledge", changed)


def take_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not wait for members of the last one that may still be reading."""

    def changed(*arguments: Any) -> Group:
        *others, now_ms = arguments
        earlier: Callable[..., Group] = restored
        return earlier(*others, now_ms - world.LIMITS.evict_limit_ms)

    monkeypatch.setattr(world, "restored", changed)


def run_story(seed: int) -> None:
    """Run one random story."""
    random = Random(seed)
    small = world.World(seed, {"t": 7})
    hello = {"assignor": random.choice(ASSIGNORS), "protocol": random.choice(PROTOCOLS)}
    for _ in range(2):
        small.join(topics=("t",), **hello)
    for _ in range(random.randrange(3, 25)):
        small.run(random.choice([0, 10, 50, 120, 250, 450]))
        happen(small, random.choice(["join", "join", *HAPPENINGS]), random.randrange(6), hello)
    small.heal()
    small.settled()


def run_stories() -> None:
    for seed in range(STORIES):
        run_story(seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "without",
    [
        free_at_once,
        start_without_stop,
        evict_too_soon,
        acknowledge_past_a_stop,
        take_over_at_once,
    ],
)
def test_without_a_part_of_the_rule_harm_is_found(
    without: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch)

    with pytest.raises(AssertionError):
        run_stories()

"""The rebalance of one group, as the seed has it, made safe by rule R16 (seed 3, "On Rebalance").

It is a procedure that waits: for an assignment to be computed, for members to answer,
for ZooKeeper to have it. So it is written as a generator: it yields what it waits for,
is sent the outcome, and knows nothing of how it comes about. The service and the tests
drive the same code. Meanwhile members come, answer and go through `membership.py`.

Beyond the seed: Stop names only what a member gives up (all, under the eager protocol);
whatever a gone or silent member may still be consuming is waited for; who does not
answer a Start within `max.rebalance.retries` is put out.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from leadline_client.channel import Assignor
from leadline_client.errors import ConsumerRebalanceFailed
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.membership import Membership
from leadline_coordinator.domain.patterns import resolve
from leadline_coordinator.domain.records import GroupRecord, Partition
from leadline_coordinator.domain.states import GroupState

Plan: TypeAlias = Mapping[str, Collection[Partition]]
"""What each member is to own."""

_MOST_PAUSES: Final = 10
_MOST_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Assign:
    """Wait for an assignment, as `assignors.assign` computes it; the reply is a `Plan`."""

    assignor: Assignor
    topics: Mapping[str, int]
    subscriptions: Mapping[str, tuple[str, ...]]
    previous: Mapping[str, Collection[Partition]]
    threads: Mapping[str, int]
    instance_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Record:
    """Wait until every commit accepted so far, and this, is written under the present epoch."""

    record: GroupRecord


@dataclass(frozen=True, slots=True)
class Answers:
    """Wait until nobody is awaited any more, or, where it is said, for so many ms."""

    within_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so many ms."""

    ms: int


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """Tell that one rebalance has ended, and whether all members answered. No wait."""

    moved: int
    complete: bool


Step: TypeAlias = Assign | Record | Answers | Pause | Rebalanced
Steps: TypeAlias = Generator[Step, Any, None]


def handle_rebalance_request(group: Group, members: Membership) -> Steps:
    """Rebalance a group until nothing calls for it any more (the seed's request handler)."""
    yield from _await_members(group)
    retries = 0
    while group.wants_rebalance:
        group.wants_rebalance = False
        if (yield from rebalance(group)):
            retries = 0
            continue
        retries += 1
        if retries <= group.limits.max_retries:
            group.wants_rebalance = True
        else:
            _give_up(group, members)
            retries = 0
    group.move(GroupState.STABLE if group.members else GroupState.EMPTY)


def rebalance(group: Group) -> Generator[Step, Any, bool]:
    """Compute the ownership anew, and bring it about where it differs (the seed's steps 1-5).

    Returns:
        Whether everybody who was sent a Start has answered.

    """
    plan: Plan = yield _question(group)
    if _is_outdated(group, plan):
        return True
    reason = why_necessary(group.owners, plan)
    yield from _stop(group, plan, everything=reason is not None and group.protocol == "eager")
    if _is_outdated(group, plan):
        return True
    moved = _take(group, plan) if reason is not None else 0
    if group.unrecorded:
        group.move(GroupState.RECORDING)
        group.unrecorded = False
        yield Record(group.record())
    complete = yield from _start(group, plan)
    if moved:
        yield Rebalanced(moved, complete)
    return complete


def why_necessary(owners: Mapping[Partition, str], plan: Plan) -> str | None:
    """Return why the registered ownership will not do (the seed's step 3), None if it will."""
    wanted = {partition: name for name, part in plan.items() for partition in part}
    if wanted == owners:
        return None  # 3.5
    if not owners:
        return "no ownership is registered"  # 3.1
    if wanted.keys() - owners.keys():
        return "some partitions are owned by nobody"  # 3.2
    if owners.keys() - wanted.keys():
        return "some partitions that are owned do not exist any longer"  # 3.3
    return "the ownership does not match the new one"  # 3.4


def _is_outdated(group: Group, plan: Plan) -> bool:
    """Tell whether somebody of the plan has gone since, which calls for another one."""
    return not plan.keys() <= group.members.keys()


def _await_members(group: Group) -> Steps:
    """Wait for those who should come back, or for more to come to a group that was empty."""
    if group.state is GroupState.RECOVERING:
        group.awaited = {member.id for member in group.members.values() if member.line is None}
        yield Answers()
    elif group.state is GroupState.EMPTY and group.members:
        group.move(GroupState.JOINING)
        for _ in range(_MOST_PAUSES):
            before = len(group.members)
            yield Pause(group.limits.initial_delay_ms)
            if len(group.members) == before:
                break


def _question(group: Group) -> Assign:
    subscriptions = {name: member.subscription for name, member in group.members.items()}
    resolved = resolve(subscriptions, group.topics)
    topics = {topic for wanted in set(resolved.values()) for topic in wanted}
    return Assign(
        assignor=group.assignor,
        topics={topic: group.topics[topic] for topic in sorted(topics)},
        subscriptions=resolved,
        previous=group.parts(),
        threads={name: one.threads for name, one in subscriptions.items()},
        instance_ids={
            name: one.instance_id
            for name, one in subscriptions.items()
            if one.instance_id is not None
        },
    )


def _stop(group: Group, plan: Plan, *, everything: bool) -> Steps:
    """Have everybody stop what the plan takes away, and wait until it has certainly stopped."""
    keeps = {name: set() if everything else set(part) for name, part in plan.items()}
    nothing: set[Partition] = set()
    stopping = {name for name, held in group.holders() if not held <= keeps.get(name, nothing)}
    if not stopping:
        return
    group.move(GroupState.STOPPING)
    group.attempt += 1
    group.keeps = keeps
    group.awaited = stopping
    for name in sorted(stopping & group.members.keys()):
        group.send_stop(group.members[name])
    yield Answers()
    group.keeps = None


def _take(group: Group, plan: Plan) -> int:
    """Make the plan the ownership, of a new generation; return how many partitions change hands."""
    owners = {partition: name for name, part in plan.items() for partition in part}
    moved = sum(group.owners.get(partition) != name for partition, name in owners.items())
    moved += len(group.owners.keys() - owners.keys())
    group.owners = owners
    group.generation += 1
    group.attempt = 0
    group.unrecorded = True
    for member in group.members.values():
        member.outdate()
    return moved


def _start(group: Group, plan: Plan) -> Generator[Step, Any, bool]:
    """Start those of the plan that do not have their part yet; tell whether all have answered."""
    members = (group.members[name] for name in plan if name in group.members)
    starting = [member for member in members if member.line is not None and not member.started]
    if not starting:
        return True
    group.move(GroupState.STARTING)
    group.attempt += 1
    group.awaited = {member.id for member in starting}
    parts = group.parts()
    for member in starting:
        group.send_start(member, parts[member.id])
    yield Answers(group.limits.answer_timeout_ms)
    complete = not group.awaited
    group.awaited = set()
    return complete


def _give_up(group: Group, members: Membership) -> None:
    """Put out who does not answer a Start: the others are not to wait for ever."""
    silent = [m.id for m in group.members.values() if m.line is not None and not m.started]
    retries = group.limits.max_retries
    shown = ", ".join(silent[:_MOST_SHOWN])
    error = ConsumerRebalanceFailed(
        f"no answer to Start after {retries} retries from {len(silent)} members: {shown}"
    )
    group.move(GroupState.FAILED)
    group.last_error = error.message
    for name in silent:
        members.evict(name, error, "unanswered")
    group.wants_rebalance = True

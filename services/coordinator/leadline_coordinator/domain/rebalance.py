"""The rebalance of one group (Consumer Coordinator design, "On Rebalance Handling"; rule R16).

A rebalance waits: for an assignment to be computed, for members to answer, for ZooKeeper
to be written. So it is a generator. It yields what it waits for, is sent the outcome, and
does not know how that comes about. The service and the tests drive the same code.
Members that join, answer or leave meanwhile change the group through `membership.py`.

Beyond the document: a Stop names only the partitions that a member gives up (all of them
under the eager protocol). Whatever a removed or silent member may still be consuming is
waited for. A member that answers no Start within `max.rebalance.retries` is evicted.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from leadline_client.channel import Assignor
from leadline_client.errors import ConsumerRebalanceFailed
from leadline_client.wire import GroupState, TopicPartition
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.membership import GroupMembership
from leadline_coordinator.domain.records import GroupRecord
from leadline_coordinator.domain.subscriptions import resolve

Target: TypeAlias = Mapping[str, Collection[TopicPartition]]
"""What each member is to own."""

_MAX_JOIN_DELAYS: Final = 10
_MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class ComputeAssignment:
    """Wait for an assignment as `assignors.assign` computes it; the reply is a `Target`."""

    assignor: Assignor
    topics: Mapping[str, int]
    subscriptions: Mapping[str, tuple[str, ...]]
    previous: Mapping[str, Collection[TopicPartition]]
    threads: Mapping[str, int]
    topic_threads: Mapping[str, Mapping[str, int]]
    instance_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Wait until all commits accepted so far, and this record, are written under this epoch."""

    record: GroupRecord


@dataclass(frozen=True, slots=True)
class AwaitAnswers:
    """Wait until the group awaits nobody, at most `within_ms` unless that is None."""

    within_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JoinDelay:
    """Wait `ms` milliseconds for more members to join."""

    ms: int


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """Report the end of a rebalance, and whether all members answered. Wait for nothing."""

    moved: int
    complete: bool


RebalanceStep: TypeAlias = ComputeAssignment | WriteRecord | AwaitAnswers | JoinDelay | Rebalanced
RebalanceSteps: TypeAlias = Generator[RebalanceStep, Any, None]


def handle_rebalance_request(group: Group, members: GroupMembership) -> RebalanceSteps:
    """Rebalance a group until no request is left (in the document: the request handler)."""
    yield from _await_members(group)
    retries = 0
    while group.rebalance_requested:
        group.rebalance_requested = False
        if (yield from rebalance(group)):
            retries = 0
            continue
        retries += 1
        if retries <= group.limits.max_retries:
            group.rebalance_requested = True
        else:
            _evict_silent(group, members)
            retries = 0
    group.transition(GroupState.STABLE if group.members else GroupState.EMPTY)


def rebalance(group: Group) -> Generator[RebalanceStep, Any, bool]:
    """Compute the assignment, and establish it where it differs (the document's steps 1 to 5).

    Returns:
        Whether every member that was sent a Start has answered.

    """
    target: Target = yield _assignment_request(group)
    if _is_outdated(group, target):
        return True
    reason = why_necessary(group.owners, target, group.added_again)
    yield from _stop(group, target, everything=reason is not None and group.protocol == "eager")
    if _is_outdated(group, target):
        return True
    moved = _take_ownership(group, target) if reason is not None else 0
    if group.unrecorded:
        group.transition(GroupState.RECORDING)
        group.unrecorded = False
        yield WriteRecord(group.record())
    complete = yield from _start(group, target)
    if moved:
        yield Rebalanced(moved, complete)
    return complete


def why_necessary(
    owners: Mapping[TopicPartition, str],
    target: Target,
    added_again: Collection[TopicPartition] = (),
) -> str | None:
    """Return why the registered ownership must change (the document's step 3); None if not.

    A partition that was removed and added again needs a new generation, so that a late commit of
    the former one is refused.
    """
    wanted = {
        topic_partition: name for name, assigned in target.items() for topic_partition in assigned
    }
    if wanted == owners:
        return "partitions were removed and added again" if added_again else None  # 3.5
    if not owners:
        return "no ownership is registered"  # 3.1
    if wanted.keys() - owners.keys():
        return "some partitions are owned by nobody"  # 3.2
    if owners.keys() - wanted.keys():
        return "some partitions that are owned do not exist any longer"  # 3.3
    return "the ownership does not match the new one"  # 3.4


def _is_outdated(group: Group, target: Target) -> bool:
    """Tell whether a member of the target has gone since, which calls for another target."""
    return not target.keys() <= group.members.keys()


def _await_members(group: Group) -> RebalanceSteps:
    """Wait for members to return after an election, or for more to join a group that was empty."""
    if group.state is GroupState.RECOVERING:
        group.awaited = {member.id for member in group.members.values() if member.session is None}
        yield AwaitAnswers()
    elif group.state is GroupState.EMPTY and group.members:
        group.transition(GroupState.JOINING)
        for _ in range(_MAX_JOIN_DELAYS):
            before = len(group.members)
            yield JoinDelay(group.limits.initial_delay_ms)
            if len(group.members) == before:
                break


def _assignment_request(group: Group) -> ComputeAssignment:
    subscriptions = {name: member.subscription for name, member in group.members.items()}
    resolved = resolve(subscriptions, group.topics)
    topics = {topic for wanted in set(resolved.values()) for topic in wanted}
    return ComputeAssignment(
        assignor=group.assignor,
        topics={topic: group.topics[topic] for topic in sorted(topics)},
        subscriptions=resolved,
        previous=group.assignment(),
        threads={name: one.threads for name, one in subscriptions.items()},
        topic_threads={
            name: dict(one.topic_threads)
            for name, one in subscriptions.items()
            if one.topic_threads
        },
        instance_ids={
            name: one.instance_id
            for name, one in subscriptions.items()
            if one.instance_id is not None
        },
    )


def _stop(group: Group, target: Target, *, everything: bool) -> RebalanceSteps:
    """Stop what the target takes away, and wait until it has certainly stopped."""
    retained = {name: set() if everything else set(assigned) for name, assigned in target.items()}
    nothing: set[TopicPartition] = set()
    stopping = {name for name, held in group.holders() if not held <= retained.get(name, nothing)}
    if not stopping:
        return
    group.transition(GroupState.STOPPING)
    group.attempt += 1
    group.retained = retained
    group.awaited = stopping
    for name in sorted(stopping & group.members.keys()):
        group.send_stop(group.members[name])
    yield AwaitAnswers()
    group.retained = None


def _take_ownership(group: Group, target: Target) -> int:
    """Make the target the ownership of a new generation; return how many partitions moved."""
    owners = {
        topic_partition: name for name, assigned in target.items() for topic_partition in assigned
    }
    moved = sum(group.owners.get(owned) != name for owned, name in owners.items())
    moved += len(group.owners.keys() - owners.keys())
    group.owners = owners
    group.added_again &= owners.keys()
    group.generation += 1
    group.attempt = 0
    group.unrecorded = True
    for member in group.members.values():
        member.outdate()
    return moved


def _start(group: Group, target: Target) -> Generator[RebalanceStep, Any, bool]:
    """Start the members not yet started with their assignment; tell whether all answered."""
    members = (group.members[name] for name in target if name in group.members)
    starting = [member for member in members if member.session is not None and not member.started]
    if not starting:
        return True
    group.transition(GroupState.STARTING)
    group.attempt += 1
    group.awaited = {member.id for member in starting}
    assignment = group.assignment()
    for member in starting:
        group.send_start(member, assignment[member.id])
    yield AwaitAnswers(group.limits.answer_timeout_ms)
    complete = not group.awaited
    group.awaited = set()
    return complete


def _evict_silent(group: Group, members: GroupMembership) -> None:
    """Evict the members that answered no Start, so that the others need not wait for ever."""
    silent = [m.id for m in group.members.values() if m.session is not None and not m.started]
    retries = group.limits.max_retries
    shown = ", ".join(silent[:_MAX_NAMED])
    error = ConsumerRebalanceFailed(
        f"no answer to Start after {retries} retries from {len(silent)} members: {shown}"
    )
    group.transition(GroupState.FAILED)
    group.last_error = error.message
    for name in silent:
        members.evict(name, error, "unanswered")
    group.rebalance_requested = True

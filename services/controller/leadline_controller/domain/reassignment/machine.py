"""The state machine of one partition's reassignment (rule R13; Replication V3, section F; KIP-435).

The next action follows from the nodes in ZooKeeper alone. Each step has two phases. It
expands: the topic node lists CR + NR, and which replicas are added and will be removed.
Once the added replicas are in the ISR and the right replica leads, it shrinks:
assignment, ISR and leader epoch are written together, and the dropped replicas are
deleted afterwards. So after any single write of a failed controller, its successor can
read the next action from the nodes. It never restarts from the original replicas.

    phase        when                                         legal actions
    waiting      no live leader                               Wait
    init         no step runs                                 Expand, Wait
    expanding    not all of `adding` are in sync              Elect, Wait
    shrinking    all of `adding` are in sync                  Elect, Shrink, Wait
    cancelling   `adding` names what the target lacks         Elect, Shrink, Wait
    done         the replicas are the target, no step runs    Elect, Finish, Wait

Broker failures, broker starts and a new target can move a partition from any phase to
any other; actions follow `MOVES`.

A new target in the middle of a step stops the additions that only the old target needs
and drops nothing else; the next step is calculated for the new target. The target of a
cancelled reassignment is the list of replicas that it started from.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from leadline_client.wire import NO_LEADER
from leadline_common.reassignments import ReassignmentAlgorithm, ReassignmentPhase, WaitReason
from leadline_controller.domain.reassignment.steps import (
    Step,
    calculate_reassignment_step,
    choose_leader,
    insync_floor,
    limit_drops,
    order_replicas,
    those_in,
    without,
)


class ReassignmentState(msgspec.Struct, frozen=True):
    """Everything that determines the next action.

    From the topic node: `replicas` (CR + NR during a step), `adding`, `removing`. From the
    state node: `leader`, `isr`, `eligible`. From the intent: `target`, `start`, `algorithm`,
    `cancelled`. `live` are the registered brokers, `stale` those that registered after the
    state was written: they are other incarnations than the ISR names (rule R9), and those
    registered with another log directory than their membership (rule R17).
    `draining` brokers lead only if no other replica can. `replica_movements` limits the
    replicas per step; None means no limit.
    """

    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    target: tuple[int, ...]
    start: tuple[int, ...]
    live: frozenset[int]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    stale: frozenset[int] = frozenset()
    draining: frozenset[int] = frozenset()
    algorithm: ReassignmentAlgorithm = ReassignmentAlgorithm.INCREMENTAL
    cancelled: bool = False
    min_insync_replicas: int = 1
    replica_movements: int | None = None
    eligible: tuple[int, ...] = ()

    @property
    def goal(self) -> tuple[int, ...]:
        """The replicas to reach: the target or, if cancelled, the start."""
        return self.start if self.cancelled else self.target

    @property
    def method(self) -> ReassignmentAlgorithm:
        """The algorithm of the next step: the way back must not wait for replicas that are down."""
        return ReassignmentAlgorithm.INCREMENTAL if self.cancelled else self.algorithm

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The members of the ISR that are live and not stale, in assignment order."""
        return tuple(
            b for b in self.replicas if b in self.isr and b in self.live and b not in self.stale
        )

    @property
    def holders(self) -> tuple[int, ...]:
        """The replicas that have every committed record: in sync, or eligible and not stale."""
        return (*self.in_sync, *without(without(self.eligible, self.in_sync), self.stale))

    @property
    def is_running(self) -> bool:
        """Whether a step is in progress, and so counts against the movement limits."""
        return bool(self.adding or self.removing) or self.replicas == self.goal


class Wait(msgspec.Struct, frozen=True):
    """Do nothing until the brokers `waiting_for` are live or in sync."""

    reason: WaitReason
    waiting_for: tuple[int, ...] = ()


class Expand(msgspec.Struct, frozen=True):
    """Begin a step: write CR + NR, members of the target first, and `adding` and `removing`."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Elect(msgspec.Struct, frozen=True):
    """Elect an in-sync replica; the ISR stays."""

    leader: int


class Shrink(msgspec.Struct, frozen=True):
    """End a step: write `assignment`, `isr` and a new leader epoch, then delete `drops`.

    `adding` lists replicas that are still being added: it is empty unless a cancelled step
    also adds replicas of the new target. `removing` becomes empty, and the leader stays.
    If `finished`, the same multi deletes the intent.
    """

    assignment: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    drops: tuple[int, ...]
    finished: bool
    adding: tuple[int, ...] = ()


class Finish(msgspec.Struct, frozen=True):
    """Delete the intent: the replicas already equal the target."""


Action: TypeAlias = Wait | Expand | Elect | Shrink | Finish

MOVES: Mapping[ReassignmentPhase, tuple[type[Action], ...]] = MappingProxyType(
    {
        ReassignmentPhase.WAITING: (Wait,),
        ReassignmentPhase.INIT: (Expand, Wait),
        ReassignmentPhase.EXPANDING: (Elect, Wait),
        ReassignmentPhase.SHRINKING: (Elect, Shrink, Wait),
        ReassignmentPhase.CANCELLING: (Elect, Shrink, Wait),
        ReassignmentPhase.DONE: (Elect, Finish, Wait),
    }
)
"""The legal actions of each phase."""


class IllegalReassignmentMove(Exception):
    """An action that the phase of the partition does not allow."""

    def __init__(self, phase: ReassignmentPhase, action: Action) -> None:
        super().__init__(f"{type(action).__name__} is not a legal action in phase {phase}")
        self.phase = phase
        self.action = action


def phase_of(state: ReassignmentState) -> ReassignmentPhase:
    """Return the phase of a reassignment."""
    if state.replicas == state.goal and not state.adding and not state.removing:
        return ReassignmentPhase.DONE
    if state.leader not in state.in_sync:
        return ReassignmentPhase.WAITING
    if not state.is_running:
        return ReassignmentPhase.INIT
    if without(state.adding, state.goal):
        return ReassignmentPhase.CANCELLING
    if without(_awaited(state), state.in_sync):
        return ReassignmentPhase.EXPANDING
    return ReassignmentPhase.SHRINKING


def next_action(state: ReassignmentState, *, may_move_leader: bool = True) -> Action:
    """Decide the next action.

    `may_move_leader` is false if the limit on leader movements is reached: then a step
    whose leader has to move waits.
    """
    action = _DECISIONS[phase_of(state)](state)
    if isinstance(action, Elect) and not may_move_leader:
        return Wait(WaitReason.LEADER_LIMIT)
    return action


def plan_step(state: ReassignmentState) -> Step:
    """Calculate the next step of a partition that has no step in progress."""
    return calculate_reassignment_step(
        state.replicas,
        state.goal,
        replica_movements=state.replica_movements,
        min_insync_replicas=state.min_insync_replicas,
        live=state.live,
        isr=state.in_sync,
        eligible=state.holders,
        leader=state.leader,
        algorithm=state.method,
    )


def moves_leader(state: ReassignmentState) -> bool:
    """Tell whether the step in progress, or else the next one, changes the leader.

    `reassignment.max.concurrent.leader.movements` limits these steps. No other step may
    elect: whenever the next action is Elect, this is true.
    """
    if not state.is_running:
        return plan_step(state).leader_step
    if isinstance(next_action(state), Elect):
        return True
    members = (*state.in_sync, *those_in(state.adding, state.live))
    staying = without(state.replicas, without((*state.removing, *state.adding), state.goal))
    return _leader_among(state, staying, members) not in (NO_LEADER, state.leader)


def apply_action(state: ReassignmentState, action: Action) -> ReassignmentState:
    """Return the state after an action has been written.

    Raises:
        IllegalReassignmentMove: the action is not legal in the current phase.

    """
    phase = phase_of(state)
    if type(action) not in MOVES[phase]:
        raise IllegalReassignmentMove(phase, action)
    change = msgspec.structs.replace
    match action:
        case Expand():
            return change(
                state,
                replicas=action.replicas,
                adding=action.adding,
                removing=action.removing,
            )
        case Elect():
            return change(state, leader=action.leader)
        case Shrink():
            return change(
                state,
                replicas=action.assignment,
                adding=action.adding,
                removing=(),
                isr=action.isr,
                leader=action.leader,
                eligible=without(state.eligible, action.drops),
            )
        case Wait() | Finish():
            return state


def _wait_for_leader(state: ReassignmentState) -> Action:
    return Wait(WaitReason.PARTITION_OFFLINE, without(state.isr, state.in_sync))


def _begin_step(state: ReassignmentState) -> Action:
    step = plan_step(state)
    if step.is_idle:
        return _wait_for(state, step.waiting_for)
    if step.added and not those_in(step.added, state.live):  # `legacy` would add them all the same
        return _wait_for(state, step.added)
    replicas = order_replicas((*state.replicas, *step.added), state.goal)
    return Expand(replicas, step.added, step.dropped)


def _await_additions(state: ReassignmentState) -> Action:
    """Wait, but elect the future leader as soon as it is in sync."""
    chosen = _leader_among(state, state.replicas, state.in_sync)
    if chosen != state.leader:
        return Elect(chosen)
    return _wait_for(state, without(_awaited(state), state.in_sync))


def _end_step(state: ReassignmentState) -> Action:
    """Shrink by the replicas that may be dropped now.

    The state may have changed since the step was calculated, so the drops are checked
    again. The next step drops the replicas that have to stay.
    """
    spare = len(state.replicas) - min(len(state.replicas) - len(state.adding), len(state.goal))
    drops = without(state.removing, state.goal)[:spare]
    return _shrink(state, drops, still_adding=())


def _stop_additions(state: ReassignmentState) -> Action:
    """Stop adding replicas that are not in the target, and drop nothing else."""
    kept = without(those_in(state.adding, state.goal), state.in_sync)
    return _shrink(state, without(state.adding, state.goal), still_adding=kept)


def _shrink(
    state: ReassignmentState, unwanted: tuple[int, ...], still_adding: tuple[int, ...]
) -> Action:
    floor = insync_floor(state.min_insync_replicas, state.goal)
    drops = limit_drops(unwanted, state.in_sync, state.holders, floor)
    assignment = order_replicas(without(state.replicas, drops), state.goal)
    chosen = _leader_among(state, assignment, state.in_sync)
    if chosen != state.leader:
        return Elect(chosen)
    return Shrink(
        assignment=assignment,
        isr=without(state.isr, drops),
        leader=state.leader,
        drops=drops,
        finished=assignment == state.goal and not still_adding,
        adding=still_adding,
    )


def _complete(state: ReassignmentState) -> Action:
    """Elect the first replica of the target if it can lead, then finish."""
    if state.leader in state.in_sync:
        chosen = _leader_among(state, state.replicas, state.in_sync)
        if chosen != state.leader:
            return Elect(chosen)
    return Finish()


def _leader_among(
    state: ReassignmentState, assignment: tuple[int, ...], members: tuple[int, ...]
) -> int:
    """Choose the leader; a draining broker only if no other member stays.

    Otherwise drain and reassignment would move the leader back and forth.
    """
    preferred = without(members, state.draining)
    pool = preferred if those_in(preferred, assignment) else members
    return choose_leader(state.method, state.leader, state.goal, assignment, pool)


def _awaited(state: ReassignmentState) -> tuple[int, ...]:
    """Return the replicas that must be in sync before drops: with `legacy` all of the target.

    Replication V3, section F, waits for all of RAR, the reassigned replicas.
    """
    if state.method is ReassignmentAlgorithm.LEGACY:
        return those_in(state.goal, state.replicas)
    return state.adding


def _wait_for(state: ReassignmentState, brokers: tuple[int, ...]) -> Wait:
    offline = any(broker not in state.live for broker in brokers)
    return Wait(WaitReason.TARGET_OFFLINE if offline else WaitReason.CATCHING_UP, brokers)


_DECISIONS = MappingProxyType(
    {
        ReassignmentPhase.WAITING: _wait_for_leader,
        ReassignmentPhase.INIT: _begin_step,
        ReassignmentPhase.EXPANDING: _await_additions,
        ReassignmentPhase.SHRINKING: _end_step,
        ReassignmentPhase.CANCELLING: _stop_additions,
        ReassignmentPhase.DONE: _complete,
    }
)

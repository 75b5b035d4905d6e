"""How the reassignment of one partition goes on, from what is in ZooKeeper alone (rule R13).

Each step has two phases. It expands: the topic node gets CR + NR, and says which
replicas are being added and which will be removed. When those added are in the ISR
and the leader is the right one it shrinks: assignment, ISR and leader epoch are
written together, and only then are the dropped replicas deleted. So whichever
single write was the last one of a controller, the next controller sees in the
nodes what to do. It never starts again from the original list.

    phase        when                                         legal actions
    waiting      no live leader                               Wait
    init         no step runs                                 Expand, Wait
    expanding    not all of `adding` are in sync              Elect, Wait
    shrinking    all of `adding` are in sync                  Elect, Shrink, Wait
    cancelling   `adding` names what the target lacks         Elect, Shrink, Wait
    done         the replicas are the target, no step runs    Elect, Finish, Wait

Brokers that come and go, and a target that is replaced, move a partition from any
phase to any other; actions only as `MOVES` says.

A new target in the middle: what is being added for the old one alone is stopped at
once, nothing else is dropped, and the next step is calculated for the new target. A
cancelled reassignment has its start list for a target.
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
    """Everything that the next action follows from.

    From the topic node: `replicas` (while a step runs: CR + NR), `adding`, `removing`. From
    the state node: `leader`, `isr`. From the intent: `target`, `start`, `algorithm`,
    `cancelled`. `live` are the registered brokers, `stale` those of them that
    registered after the state was written: they are not the members that it names
    (rule R9). `draining` brokers should lead nothing where somebody else can.
    `replica_movements` is the limit per step, None for none.
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

    @property
    def goal(self) -> tuple[int, ...]:
        """Where the partition is going: to the target or, cancelled, back."""
        return self.start if self.cancelled else self.target

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The members of the ISR that are really there, in assignment order."""
        return tuple(
            b for b in self.replicas if b in self.isr and b in self.live and b not in self.stale
        )

    @property
    def is_running(self) -> bool:
        """Whether a step is under way: this is what the limits on movements count."""
        return bool(self.adding or self.removing) or self.replicas == self.goal


class Wait(msgspec.Struct, frozen=True):
    """Nothing can be done until `waiting_for` are live, or in sync."""

    reason: WaitReason
    waiting_for: tuple[int, ...] = ()


class Expand(msgspec.Struct, frozen=True):
    """Begin a step: write CR + NR, the target's members first, and what is added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Elect(msgspec.Struct, frozen=True):
    """Make an in-sync replica the leader; the ISR stays."""

    leader: int


class Shrink(msgspec.Struct, frozen=True):
    """End a step: write `assignment`, `isr` and a new leader epoch, then delete `drops`.

    `adding` is what goes on being added: empty unless a cancelled step also adds
    replicas that the new target keeps. `removing` is always empty afterwards. The
    leader stays. When `finished` the intent goes in the same multi.
    """

    assignment: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    drops: tuple[int, ...]
    finished: bool
    adding: tuple[int, ...] = ()


class Finish(msgspec.Struct, frozen=True):
    """Remove the intent: the replicas are the target already."""


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
    """An action was taken for a partition whose phase does not allow it."""

    def __init__(self, phase: ReassignmentPhase, action: Action) -> None:
        super().__init__(f"{type(action).__name__} is not a legal move while {phase}")
        self.phase = phase
        self.action = action


def phase_of(state: ReassignmentState) -> ReassignmentPhase:
    """Tell how far a reassignment is."""
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
    """Decide what is to be done next.

    With `may_move_leader` false the limit on leader movements is used up: a
    leader that would have to move holds the step up.
    """
    action = _DECISIONS[phase_of(state)](state)
    if isinstance(action, Elect) and not may_move_leader:
        return Wait(WaitReason.LEADER_LIMIT)
    return action


def plan_step(state: ReassignmentState) -> Step:
    """Calculate the next step of a partition for which none runs."""
    return calculate_reassignment_step(
        state.replicas,
        state.goal,
        replica_movements=state.replica_movements,
        min_insync_replicas=state.min_insync_replicas,
        live=state.live,
        isr=state.in_sync,
        leader=state.leader,
        algorithm=state.algorithm,
    )


def moves_leader(state: ReassignmentState) -> bool:
    """Tell whether the step, the running one or the next, ends under another leader.

    This is what `reassignment.max.concurrent.leader.movements` counts.
    """
    if not state.is_running:
        return plan_step(state).leader_step
    members = (*state.in_sync, *those_in(state.adding, state.live))
    staying = without(state.replicas, (*state.removing, *without(state.adding, state.goal)))
    return _leader_among(state, staying, members) not in (NO_LEADER, state.leader)


def apply_action(state: ReassignmentState, action: Action) -> ReassignmentState:
    """Return the state as they are once an action is written.

    Raises:
        IllegalReassignmentMove: the action is not legal in the present phase.

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
            )
        case Wait() | Finish():
            return state


def _wait_for_leader(state: ReassignmentState) -> Action:
    return Wait(WaitReason.PARTITION_OFFLINE, without(state.isr, state.in_sync))


def _begin_step(state: ReassignmentState) -> Action:
    step = plan_step(state)
    if step.is_idle:
        return _wait_for(state, step.waiting_for)
    replicas = order_replicas((*state.replicas, *step.added), state.goal)
    return Expand(replicas, step.added, step.dropped)


def _await_additions(state: ReassignmentState) -> Action:
    """Wait, but give the future leader its place as soon as it is in sync."""
    chosen = _leader_among(state, state.replicas, state.in_sync)
    if chosen != state.leader:
        return Elect(chosen)
    return _wait_for(state, without(_awaited(state), state.in_sync))


def _end_step(state: ReassignmentState) -> Action:
    """Shrink, by what may be dropped under the present circumstances.

    They may have changed since the step was calculated: the drops are judged again,
    and what has to stay is left to the next step.
    """
    spare = len(state.replicas) - min(len(state.replicas) - len(state.adding), len(state.goal))
    drops = without(state.removing, state.goal)[:spare]
    return _shrink(state, drops, still_adding=())


def _stop_additions(state: ReassignmentState) -> Action:
    """Stop adding what the target no longer wants, and drop nothing else."""
    kept = without(those_in(state.adding, state.goal), state.in_sync)
    return _shrink(state, without(state.adding, state.goal), still_adding=kept)


def _shrink(
    state: ReassignmentState, unwanted: tuple[int, ...], still_adding: tuple[int, ...]
) -> Action:
    floor = insync_floor(state.min_insync_replicas, state.goal)
    drops = limit_drops(unwanted, state.in_sync, floor)
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
    """Let the target's first replica lead if it can, and be done."""
    if state.leader in state.in_sync:
        chosen = _leader_among(state, state.replicas, state.in_sync)
        if chosen != state.leader:
            return Elect(chosen)
    return Finish()


def _leader_among(
    state: ReassignmentState, assignment: tuple[int, ...], members: tuple[int, ...]
) -> int:
    """Choose the leader; one that is drained only where no other member stays.

    Else the drain would take from it what the reassignment has given to it, over and over.
    """
    willing = without(members, state.draining)
    pool = willing if those_in(willing, assignment) else members
    return choose_leader(state.algorithm, state.leader, state.goal, assignment, pool)


def _awaited(state: ReassignmentState) -> tuple[int, ...]:
    """Return who must be in sync before anything is dropped: seed 1 F asks for all of RAR."""
    if state.algorithm is ReassignmentAlgorithm.LEGACY:
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

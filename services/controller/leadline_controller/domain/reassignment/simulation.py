"""How reassignments would go if nothing came between: what the what-if API and plans show.

Nothing here decides. The machine and the window do, on facts that are changed as the
world would change them: what is added and live gets in sync, and steps that begin
together end together.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_controller.domain.reassignment.batches import (
    ReassignmentLimits,
    candidate_for,
    collect_reassignment_batch,
)
from leadline_controller.domain.reassignment.machine import (
    Expand,
    Finish,
    ReassignmentState,
    Shrink,
    Wait,
    apply_action,
    next_action,
)


class SimulatedStep(msgspec.Struct, frozen=True):
    """One step as it would have ended; `leader` is -1 where there is none."""

    assignment: tuple[int, ...]
    added: tuple[int, ...]
    dropped: tuple[int, ...]
    leader: int


class Simulation(msgspec.Struct, frozen=True):
    """The steps of one partition, and whom it then waits for if they do not reach the target."""

    steps: list[SimulatedStep]
    waiting_for: tuple[int, ...] = ()


class BatchSimulation(msgspec.Struct, frozen=True):
    """What begins together, batch after batch; and who then waits for whom."""

    batches: list[list[tuple[TopicPartition, SimulatedStep]]]
    waiting: dict[TopicPartition, tuple[int, ...]]


def simulate(facts: ReassignmentState) -> Simulation:
    """Follow one partition until it is where it should be, or waits."""
    steps: list[SimulatedStep] = []
    while facts.replicas != facts.goal:
        facts, outcome = _take_step(facts)
        if isinstance(outcome, Wait):
            return Simulation(steps, outcome.waiting_for)
        steps.append(outcome)
    return Simulation(steps)


def simulate_batches(
    partitions: Mapping[TopicPartition, ReassignmentState], limits: ReassignmentLimits
) -> BatchSimulation:
    """Follow partitions through the window; they were asked for in the order of the mapping."""
    now = dict(partitions)
    requests = {name: order for order, name in enumerate(partitions)}
    candidates = {name: c for name in now if (c := candidate_for(name, requests[name], now[name]))}
    course = BatchSimulation([], {})
    while batch := collect_reassignment_batch(candidates.values(), {}, limits):
        course.batches.append([])
        for name in batch:
            del candidates[name]
            now[name], outcome = _take_step(now[name])
            if isinstance(outcome, Wait):
                continue
            course.batches[-1].append((name, outcome))
            if next_candidate := candidate_for(name, requests[name], now[name]):
                candidates[name] = next_candidate
    for name, facts in now.items():
        if facts.replicas != facts.goal:
            course.waiting[name] = simulate(facts).waiting_for
    return course


def _take_step(facts: ReassignmentState) -> tuple[ReassignmentState, SimulatedStep | Wait]:
    """Let one step begin and end, or return why it does not."""
    added: tuple[int, ...] = ()
    while True:
        action = next_action(facts)
        if isinstance(action, Wait):
            return facts, action
        facts = apply_action(facts, action)
        match action:
            case Expand():
                added = action.adding
                isr = (*facts.isr, *(b for b in added if b in facts.live))
                facts = msgspec.structs.replace(facts, isr=isr)
            case Shrink():
                return facts, _simulated(facts, added, action.drops)
            case Finish():
                return facts, _simulated(facts, added, ())


def _simulated(
    facts: ReassignmentState, added: tuple[int, ...], dropped: tuple[int, ...]
) -> SimulatedStep:
    leader = facts.leader if facts.leader in facts.in_sync else NO_LEADER
    return SimulatedStep(facts.replicas, added, dropped, leader)

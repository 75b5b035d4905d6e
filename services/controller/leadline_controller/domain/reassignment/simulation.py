"""How reassignments would go if nothing came between: what the what-if API and plans show.

Nothing here decides. The machine and the window do, on state that are changed as the
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


def simulate(state: ReassignmentState) -> Simulation:
    """Follow one partition until it is where it should be, or waits."""
    steps: list[SimulatedStep] = []
    while state.replicas != state.goal:
        state, outcome = _take_step(state)
        if isinstance(outcome, Wait):
            return Simulation(steps, outcome.waiting_for)
        steps.append(outcome)
    return Simulation(steps)


def simulate_batches(
    partitions: Mapping[TopicPartition, ReassignmentState], limits: ReassignmentLimits
) -> BatchSimulation:
    """Follow partitions through the window; they were asked for in the order of the mapping."""
    now = dict(partitions)
    requests = {topic_partition: order for order, topic_partition in enumerate(partitions)}
    candidates = {
        topic_partition: c
        for topic_partition in now
        if (c := candidate_for(topic_partition, requests[topic_partition], now[topic_partition]))
    }
    course = BatchSimulation([], {})
    while batch := collect_reassignment_batch(candidates.values(), {}, limits):
        course.batches.append([])
        for topic_partition in batch:
            del candidates[topic_partition]
            now[topic_partition], outcome = _take_step(now[topic_partition])
            if isinstance(outcome, Wait):
                continue
            course.batches[-1].append((topic_partition, outcome))
            if next_candidate := candidate_for(
                topic_partition, requests[topic_partition], now[topic_partition]
            ):
                candidates[topic_partition] = next_candidate
    for topic_partition, state in now.items():
        if state.replicas != state.goal:
            course.waiting[topic_partition] = simulate(state).waiting_for
    return course


def _take_step(state: ReassignmentState) -> tuple[ReassignmentState, SimulatedStep | Wait]:
    """Let one step begin and end, or return why it does not."""
    added: tuple[int, ...] = ()
    while True:
        action = next_action(state)
        if isinstance(action, Wait):
            return state, action
        state = apply_action(state, action)
        match action:
            case Expand():
                added = action.adding
                isr = (*state.isr, *(b for b in added if b in state.live))
                state = msgspec.structs.replace(state, isr=isr)
            case Shrink():
                return state, _simulated(state, added, action.drops)
            case Finish():
                return state, _simulated(state, added, ())


def _simulated(
    state: ReassignmentState, added: tuple[int, ...], dropped: tuple[int, ...]
) -> SimulatedStep:
    leader = state.leader if state.leader in state.in_sync else NO_LEADER
    return SimulatedStep(state.replicas, added, dropped, leader)

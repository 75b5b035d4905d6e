"""Simulation of reassignments without failures, for the what-if API.

The decisions are those of the state machine and the window of batches. The simulation
only changes the state as a cluster would: added replicas on live brokers get in sync, and
steps that begin together end together.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_controller.domain.reassignment.batches import (
    ReassignmentLimits,
    WaitingSteps,
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
    """The end of one simulated step; `leader` is -1 if there is none."""

    assignment: tuple[int, ...]
    added: tuple[int, ...]
    dropped: tuple[int, ...]
    leader: int


class Simulation(msgspec.Struct, frozen=True):
    """The steps of one partition, and the brokers it then waits for if it misses the target."""

    steps: list[SimulatedStep]
    waiting_for: tuple[int, ...] = ()


class BatchSimulation(msgspec.Struct, frozen=True):
    """The steps that begin together, batch by batch, and what incomplete partitions wait for."""

    batches: list[list[tuple[TopicPartition, SimulatedStep]]]
    waiting: dict[TopicPartition, tuple[int, ...]]


def simulate(state: ReassignmentState) -> Simulation:
    """Simulate one partition until it reaches its target or has to wait."""
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
    """Simulate the window over partitions that were requested in the order of the mapping."""
    now = dict(partitions)
    requests = {topic_partition: order for order, topic_partition in enumerate(partitions)}
    waiting = WaitingSteps(
        candidate
        for topic_partition, state in partitions.items()
        if (candidate := candidate_for(topic_partition, requests[topic_partition], state))
    )
    result = BatchSimulation([], {})
    while batch := collect_reassignment_batch(waiting, {}, limits):
        result.batches.append([])
        for topic_partition in batch:
            waiting.drop(topic_partition)
            now[topic_partition], outcome = _take_step(now[topic_partition])
            if isinstance(outcome, Wait):
                continue
            result.batches[-1].append((topic_partition, outcome))
            state, request = now[topic_partition], requests[topic_partition]
            if candidate := candidate_for(topic_partition, request, state):
                waiting.put(candidate)
    for topic_partition, state in now.items():
        if state.replicas != state.goal:
            result.waiting[topic_partition] = simulate(state).waiting_for
    return result


def _take_step(state: ReassignmentState) -> tuple[ReassignmentState, SimulatedStep | Wait]:
    """Take one step to its end, or return why it cannot begin."""
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

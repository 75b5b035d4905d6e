"""What-if routes, which call the controller's decision functions on given input."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from leadline_client.errors import InvalidRequest
from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.api import what_if
from leadline_common.computing import Computer, check_work
from leadline_common.reassignments import ReassignmentAlgorithm
from leadline_controller.domain.election import elect
from leadline_controller.domain.placement import assign_replicas
from leadline_controller.domain.reassignment.batches import ReassignmentLimits
from leadline_controller.domain.reassignment.machine import ReassignmentState
from leadline_controller.domain.reassignment.simulation import (
    simulate,
    simulate_batches,
)

STEPS_PER_UNIT = 10
"""Brokers that a placement skips in one unit of work (`leadline_common.computing`)."""
UNITS_PER_STEP = 13
"""Units of work for each pair of replicas in a simulated reassignment."""

_Value = TypeVar("_Value")


class WhatIfEndpoints:
    """Implements `leadline_common.api.what_if.WhatIfAdministration` without any cluster state."""

    _computer: Computer

    def what_if_election(self, question: what_if.WhatIfElection) -> what_if.WhatIfElected:
        """Elect a leader with the controller's function."""
        _check_distinct("body.assignment", question.assignment)
        _check_distinct("body.isr", question.isr)
        election = elect(
            question.kind,
            tuple(question.assignment),
            tuple(question.isr),
            frozenset(question.live),
            leader=question.leader,
            unclean=question.unclean,
            shutting_down=frozenset(question.shutting_down),
            eligible=frozenset(question.eligible),
            misplaced=frozenset(question.misplaced),
        )
        return what_if.WhatIfElected(
            leader=election.leader, isr=list(election.isr), reason=election.reason
        )

    async def what_if_placement(self, question: what_if.WhatIfPlacement) -> what_if.WhatIfPlaced:
        """Place replicas with the controller's function."""
        brokers = {broker.id: broker.rack for broker in question.brokers}
        if len(brokers) < len(question.brokers):
            raise InvalidRequest("body.brokers: an id is listed twice")
        placed = question.partitions * question.replication_factor
        searched = 0 if set(brokers.values()) == {None} else question.partitions * len(brokers)
        check_work("partitions x replication_factor", placed, what_if.MAX_PLACED)
        check_work("partitions x brokers", searched, what_if.MAX_SEARCHED)
        found = await self._computer.run(
            lambda: assign_replicas(
                brokers,
                question.partitions,
                question.replication_factor,
                start_index=question.start_index,
                shift=question.shift,
                start_partition=question.start_partition,
            ),
            work=placed + searched // STEPS_PER_UNIT,
        )
        return what_if.WhatIfPlaced(
            assignment={str(partition): list(replicas) for partition, replicas in found.items()}
        )

    async def what_if_reassignment(
        self, question: what_if.WhatIfReassignment
    ) -> what_if.WhatIfReassigned:
        """Simulate reassignments with the controller's state machine and window."""
        limits = ReassignmentLimits(**question.limits.model_dump())
        if question.batch is not None:
            if question.start is not None or question.target is not None:
                raise InvalidRequest("body: give either start and target, or a batch, not both")
            batch = question.batch
            squared = sum(max(len(row.start), len(row.target)) ** 2 for row in batch)
            what = "body.batch: the sum of the partitions' squared replicas"
            check_work(what, squared, what_if.MAX_SIMULATED)
            return await self._computer.run(
                lambda: _simulate_batch(question, batch, limits), work=squared * UNITS_PER_STEP
            )
        if question.start is None or question.target is None:
            raise InvalidRequest("body: give start and target, or a batch of partitions")
        state = _state("body", question.start, question.target, limits, question, question)
        simulation = simulate(state)
        return what_if.WhatIfReassigned(
            steps=[what_if.WhatIfStep(**msgspec.to_builtins(step)) for step in simulation.steps],
            waiting_for=list(simulation.waiting_for),
        )


def _simulate_batch(
    question: what_if.WhatIfReassignment,
    batch: list[what_if.WhatIfPartition],
    limits: ReassignmentLimits,
) -> what_if.WhatIfReassigned:
    partitions = {
        TopicPartition(row.topic, row.partition): _state(
            f"body.batch.{index}", row.start, row.target, limits, row, question
        )
        for index, row in enumerate(batch)
    }
    if len(partitions) < len(batch):
        raise InvalidRequest("body.batch: a partition is listed twice")
    simulation = simulate_batches(partitions, limits)
    waiting = [
        what_if.WhatIfWaiting(topic=topic, partition=partition, waiting_for=list(brokers))
        for (topic, partition), brokers in simulation.waiting.items()
    ]
    return what_if.WhatIfReassigned(
        batches=[
            [
                what_if.WhatIfBatchStep(
                    topic=topic, partition=partition, **msgspec.to_builtins(step)
                )
                for (topic, partition), step in steps
            ]
            for steps in simulation.batches
        ],
        waiting_for=sorted({broker for row in waiting for broker in row.waiting_for}),
        waiting=waiting,
    )


def _state(
    where: str,
    start: list[int],
    target: list[int],
    limits: ReassignmentLimits,
    own: what_if.PartitionCircumstances,
    general: what_if.PartitionCircumstances,
) -> ReassignmentState:
    """Return the initial state of a partition; `general` applies where `own` has no value."""
    for name, replicas in (("start", start), ("target", target), ("isr", own.isr or [])):
        _check_distinct(f"{where}.{name}", replicas)
    online = _first(own.online, general.online, [*start, *target])
    isr = own.isr if own.isr is not None else [b for b in start if b in online]
    if not {*isr} <= {*start}:
        raise InvalidRequest(f"{where}.isr: contains brokers that are not in start")
    first = next((b for b in start if b in isr and b in online), NO_LEADER)
    return ReassignmentState(
        replicas=tuple(start),
        leader=first if own.leader is None else own.leader,
        isr=tuple(isr),
        target=tuple(target),
        start=tuple(start),
        live=frozenset(online),
        algorithm=_first(own.algorithm, general.algorithm, ReassignmentAlgorithm.INCREMENTAL),
        min_insync_replicas=_first(own.min_insync_replicas, general.min_insync_replicas, 1),
        replica_movements=limits.replica_movements,
    )


def _first(own: _Value | None, general: _Value | None, default: _Value) -> _Value:
    if own is not None:
        return own
    return default if general is None else general


def _check_distinct(name: str, brokers: list[int]) -> None:
    """Check that a list of brokers has no duplicates.

    Raises:
        InvalidRequest: a broker is listed twice.

    """
    if len(set(brokers)) < len(brokers):
        raise InvalidRequest(f"{name}: a broker is listed twice")

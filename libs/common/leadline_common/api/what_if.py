"""What-if: the functions that a controller decides with, asked without any effect."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from leadline_client.errors import ConnectionLost, NoController, PolicyViolation
from leadline_common.api.models import BrokerId, Replicas, example
from leadline_common.api.routes import answering_administration
from leadline_common.elections import ElectionKind, ElectionReason
from leadline_common.http.errors import error_responses, read_only
from leadline_common.reassignments import ReassignmentAlgorithm

TAG = "what-if"
TAGS = (
    {
        "name": TAG,
        "description": "The functions that a controller decides with, without any effect.",
    },
)
MAX_BATCH = 500
"""How many partitions one question may be about: it is answered within the event loop."""
MAX_REPLICAS = 50

Movements = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
Leader = Annotated[int, Field(ge=-1, strict=True)]
ReplicaList = Annotated[Replicas, Field(min_length=1, max_length=MAX_REPLICAS)]


class WhatIfElection(BaseModel):
    """A partition, and what happens to it."""

    model_config = example(
        {
            "kind": "offline",
            "assignment": [1, 2, 3],
            "isr": [1, 2],
            "live": [2, 3],
            "unclean": False,
            "shutting_down": [],
        }
    )

    kind: ElectionKind
    assignment: Replicas = Field(min_length=1, description="In order of preference")
    isr: Replicas = Field(default_factory=list)
    live: Replicas
    unclean: bool = Field(default=False, description="May a replica outside the ISR lead?")
    shutting_down: Replicas = Field(default_factory=list)
    eligible: Replicas = Field(
        default_factory=list, description="Preferred among replicas outside the ISR"
    )
    leader: Leader = Field(
        default=-1, description="The present leader; it stays where nothing needs to change"
    )


class WhatIfElected(BaseModel):
    """What the election would decide; `leader` -1 where nobody may lead."""

    model_config = example({"leader": 2, "isr": [2], "reason": "isr"})

    leader: int
    isr: list[int]
    reason: ElectionReason


class WhatIfBroker(BaseModel):
    """A broker to place replicas on."""

    model_config = ConfigDict(extra="forbid")

    id: BrokerId
    rack: str | None = None


class WhatIfPlacement(BaseModel):
    """Partitions to place, with the start that a service would draw by chance."""

    model_config = example(
        {
            "brokers": [{"id": 0}, {"id": 1}, {"id": 2}],
            "partitions": 3,
            "replication_factor": 2,
            "start_index": 0,
            "shift": 0,
        }
    )

    brokers: list[WhatIfBroker]
    partitions: Annotated[int, Field(ge=1, le=200_000)]
    replication_factor: Annotated[int, Field(ge=1, le=32_767)]
    start_index: Annotated[int, Field(ge=0)] = 0
    shift: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Distance of the second replicas; start_index where left out"
    )
    start_partition: Annotated[int, Field(ge=0)] = 0


class WhatIfPlaced(BaseModel):
    """Where the replicas would be, preferred leader first."""

    model_config = example({"assignment": {"0": [0, 1], "1": [1, 2], "2": [2, 0]}})

    assignment: dict[str, list[int]]


class MovementLimits(BaseModel):
    """`reassignment.max.concurrent.….movements`; what is left out has no limit."""

    model_config = ConfigDict(extra="forbid")

    replica_movements: Movements | None = Field(default=None, description="Per partition and step")
    partition_movements: Movements | None = Field(
        default=None, description="Partitions with a step under way"
    )
    leader_movements: Movements | None = Field(
        default=None, description="Those of them whose step moves the leader"
    )


class PartitionCircumstances(BaseModel):
    """What a reassignment depends on beside its start and target."""

    model_config = ConfigDict(extra="forbid")

    min_insync_replicas: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="1 where it is given nowhere"
    )
    online: Replicas | None = Field(
        default=None, description="The live brokers; everybody, where it is given nowhere"
    )
    algorithm: ReassignmentAlgorithm | None = Field(
        default=None, description="`incremental` where it is given nowhere"
    )
    isr: Replicas | None = Field(
        default=None, description="The live members of `start`, where it is left out"
    )
    leader: Leader | None = Field(
        default=None, description="The first live in-sync replica, where it is left out"
    )


class WhatIfPartition(PartitionCircumstances):
    """One partition of many; what it leaves out is as the question has it for all."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    partition: Annotated[int, Field(ge=0, strict=True)]
    start: ReplicaList
    target: ReplicaList


class WhatIfReassignment(PartitionCircumstances):
    """One partition (`start` and `target`), or many that share the limits (`batch`)."""

    model_config = example(
        {
            "start": [0, 1, 2, 3, 4],
            "target": [5, 6, 7, 8, 9],
            "limits": {"replica_movements": 2},
            "min_insync_replicas": 1,
            "online": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            "algorithm": "incremental",
        }
    )

    start: ReplicaList | None = None
    target: ReplicaList | None = None
    batch: Annotated[list[WhatIfPartition], Field(min_length=1, max_length=MAX_BATCH)] | None = None
    limits: MovementLimits = Field(default_factory=MovementLimits)


class WhatIfStep(BaseModel):
    """One step as it ends; `leader` -1 where nobody may lead."""

    assignment: list[int]
    added: list[int]
    dropped: list[int]
    leader: int


class WhatIfBatchStep(WhatIfStep):
    """The step of one partition in a batch."""

    topic: str
    partition: int


class WhatIfWaiting(BaseModel):
    """A partition that does not get to its target, and the brokers that it waits for."""

    topic: str
    partition: int
    waiting_for: list[int]


class WhatIfReassigned(BaseModel):
    """The steps of one partition, or the batches of many, if nothing came between.

    Of a batch each step begins when all steps of the batch before have ended; in a
    running cluster a place is free as soon as one step has.
    """

    model_config = example(
        {
            "steps": [
                {"assignment": [5, 0, 1, 2, 3, 4], "added": [5], "dropped": [], "leader": 5},
                {"assignment": [5, 6, 2, 3, 4], "added": [6], "dropped": [0, 1], "leader": 5},
                {"assignment": [5, 6, 7, 8, 4], "added": [7, 8], "dropped": [2, 3], "leader": 5},
                {"assignment": [5, 6, 7, 8, 9], "added": [9], "dropped": [4], "leader": 5},
            ],
            "waiting_for": [],
        }
    )

    steps: list[WhatIfStep] | None = Field(default=None, description="Of one partition, in order")
    batches: list[list[WhatIfBatchStep]] | None = Field(
        default=None, description="Of many: which steps run together, in order"
    )
    waiting_for: list[int] = Field(
        description="The brokers without which a target cannot be reached"
    )
    waiting: list[WhatIfWaiting] | None = Field(
        default=None, description="Of many: the partitions that do not reach their targets"
    )


class WhatIfAdministration(Protocol):
    """What a controller decides from a question alone; nothing is read or changed."""

    def what_if_election(self, question: WhatIfElection) -> WhatIfElected:
        """Decide an election."""

    def what_if_placement(self, question: WhatIfPlacement) -> WhatIfPlaced:
        """Place replicas."""

    def what_if_reassignment(self, question: WhatIfReassignment) -> WhatIfReassigned:
        """Calculate the steps of a reassignment, or the batches of many."""


Answering = Annotated[WhatIfAdministration, Depends(answering_administration)]


def add_routes(router: APIRouter) -> None:
    """Add the routes of this area."""
    _add_elections(router)
    _add_reassignment(router)


def _add_elections(router: APIRouter) -> None:
    @router.post(
        "/what-if/election",
        tags=[TAG],
        summary="Who would lead?",
        responses=error_responses(NoController, ConnectionLost),
    )
    @read_only
    async def what_if_election(answering: Answering, body: WhatIfElection) -> WhatIfElected:
        """Decide an election from the request alone; nothing is read or changed."""
        return answering.what_if_election(body)

    @router.post(
        "/what-if/placement",
        tags=[TAG],
        summary="Where would replicas be placed?",
        responses=error_responses(PolicyViolation, NoController, ConnectionLost),
    )
    @read_only
    async def what_if_placement(answering: Answering, body: WhatIfPlacement) -> WhatIfPlaced:
        """Place replicas from the request alone: Kafka's rack-aware round robin."""
        return answering.what_if_placement(body)


def _add_reassignment(router: APIRouter) -> None:
    @router.post(
        "/what-if/reassignment",
        tags=[TAG],
        summary="Which steps would a reassignment take?",
        responses=error_responses(NoController, ConnectionLost),
        response_model_exclude_none=True,
    )
    @read_only
    async def what_if_reassignment(
        answering: Answering, body: WhatIfReassignment
    ) -> WhatIfReassigned:
        """Calculate the steps of one partition, or the batches of many, from the request alone.

        Replicas that a step adds get in sync; whoever is not online never does. Where a
        target cannot be reached, the answer names the brokers that it would wait for.
        """
        return answering.what_if_reassignment(body)

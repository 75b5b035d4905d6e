"""What-if: simulations of the controller's decisions, from the request alone."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import BaseModel, Field

from leadline_client.errors import ComputationsBusy, ConnectionLost, PolicyViolation
from leadline_common.api.computations import ROOM_TO_COMPUTE
from leadline_common.api.models import BrokerId, PartitionItem, Replicas, example
from leadline_common.api.routes import route
from leadline_common.elections import ElectionKind, ElectionReason
from leadline_common.http.errors import read_only
from leadline_common.reassignments import ReassignmentAlgorithm

TAG = "what-if"
MAX_BATCH = 500
"""Maximum partitions of one request."""
MAX_REPLICAS = 50
MAX_BROKERS = 2_000
MAX_PLACED = 100_000
"""Maximum replicas of an answer: partitions times the replication factor."""
MAX_SEARCHED = 4_000_000
"""Maximum partitions times brokers, where racks are given: each partition may try each broker."""
MAX_SIMULATED = 20_000
"""Maximum sum, over the partitions of a batch, of the squared number of replicas."""

Movements = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
Leader = Annotated[int, Field(ge=-1, strict=True)]
ReplicaList = Annotated[Replicas, Field(min_length=1, max_length=MAX_REPLICAS)]
BrokerList = Annotated[Replicas, Field(max_length=MAX_BROKERS)]


class WhatIfElection(BaseModel):
    """An election to simulate."""

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
    assignment: BrokerList = Field(min_length=1, description="In order of preference")
    isr: BrokerList = Field(default_factory=list)
    live: BrokerList
    unclean: bool = Field(default=False, description="Allow a leader from outside the ISR")
    shutting_down: BrokerList = Field(default_factory=list)
    eligible: BrokerList = Field(
        default_factory=list,
        description="Replicas that an unclean election prefers among those outside the ISR",
    )
    misplaced: BrokerList = Field(
        default_factory=list,
        description="Live brokers that have another log directory than when they became members: "
        "no candidates of a clean election, and the last of an unclean one",
    )
    leader: Leader = Field(
        default=-1, description="The current leader, which stays unless it has to change"
    )


class WhatIfElected(BaseModel):
    """The result of the election; `leader` is -1 if no replica may lead."""

    model_config = example({"leader": 2, "isr": [2], "reason": "isr"})

    leader: int
    isr: list[int]
    reason: ElectionReason


class WhatIfBroker(BaseModel, extra="forbid"):
    """A broker on which replicas can be placed."""

    id: BrokerId
    rack: str | None = None


class WhatIfPlacement(BaseModel):
    """A placement to simulate, with the start indexes that a controller draws at random."""

    model_config = example(
        {
            "brokers": [{"id": 0}, {"id": 1}, {"id": 2}],
            "partitions": 3,
            "replication_factor": 2,
            "start_index": 0,
            "shift": 0,
        }
    )

    brokers: Annotated[list[WhatIfBroker], Field(max_length=MAX_BROKERS)]
    partitions: Annotated[int, Field(ge=1, le=200_000, strict=True)]
    replication_factor: Annotated[int, Field(ge=1, le=32_767, strict=True)]
    start_index: Annotated[int, Field(ge=0, strict=True)] = 0
    shift: Annotated[int, Field(ge=0, strict=True)] | None = Field(
        default=None, description="Shift of the second replicas; `start_index` by default"
    )
    start_partition: Annotated[int, Field(ge=0, strict=True)] = 0


class WhatIfPlaced(BaseModel):
    """The placed replicas by partition, preferred leader first."""

    model_config = example({"assignment": {"0": [0, 1], "1": [1, 2], "2": [2, 0]}})

    assignment: dict[str, list[int]]


class MovementLimits(BaseModel, extra="forbid"):
    """`reassignment.max.concurrent.….movements`; null for no limit."""

    replica_movements: Movements | None = Field(
        default=None, description="Maximum moving replicas per partition and step"
    )
    partition_movements: Movements | None = Field(
        default=None, description="Maximum partitions with a running step"
    )
    leader_movements: Movements | None = Field(
        default=None, description="Maximum partitions whose running step moves the leader"
    )


class PartitionCircumstances(BaseModel, extra="forbid"):
    """The state on which a reassignment depends besides its start and target."""

    min_insync_replicas: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="1 by default"
    )
    online: BrokerList | None = Field(
        default=None, description="The live brokers; all brokers by default"
    )
    algorithm: ReassignmentAlgorithm | None = Field(
        default=None, description="`incremental` by default"
    )
    isr: BrokerList | None = Field(
        default=None, description="The live members of `start` by default"
    )
    leader: Leader | None = Field(
        default=None, description="The first live in-sync replica by default"
    )


class WhatIfPartition(PartitionCircumstances):
    """One partition of a batch; what it leaves out is taken from the request as a whole."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    partition: Annotated[int, Field(ge=0, strict=True)]
    start: ReplicaList
    target: ReplicaList


class WhatIfReassignment(PartitionCircumstances):
    """A reassignment to simulate: one partition (`start` and `target`), or several (`batch`)."""

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
    """The state at the end of one step; `leader` is -1 if no replica may lead."""

    assignment: list[int]
    added: list[int]
    dropped: list[int]
    leader: int


class WhatIfBatchStep(WhatIfStep):
    """The step of one partition in a batch."""

    topic: str
    partition: int


class WhatIfWaiting(PartitionItem):
    """A partition that cannot reach its target, and the brokers for which it waits."""

    waiting_for: list[int]


class WhatIfReassigned(BaseModel):
    """The steps of one partition, or the batches of several, if nothing else changes.

    A batch starts when all steps of the previous batch have ended. In a running cluster the
    next step starts as soon as any step has ended.
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

    steps: list[WhatIfStep] | None = Field(
        default=None, description="For one partition: its steps, in order"
    )
    batches: list[list[WhatIfBatchStep]] | None = Field(
        default=None, description="For several partitions: the steps of each batch, in order"
    )
    waiting_for: list[int] = Field(
        description="The brokers without which a target cannot be reached"
    )
    waiting: list[WhatIfWaiting] | None = Field(
        default=None, description="For several partitions: those that cannot reach their targets"
    )


class WhatIfAdministration(Protocol):
    """What a controller decides from the request alone, without reading or changing anything."""

    @route("POST /what-if/election", "Simulate an election", ConnectionLost)
    @read_only
    def what_if_election(self, question: WhatIfElection) -> WhatIfElected:
        """Simulate an election from the request alone, without reading or changing anything."""

    @route(
        "POST /what-if/placement",
        "Simulate a placement",
        PolicyViolation,
        ConnectionLost,
        ComputationsBusy,
        dependencies=ROOM_TO_COMPUTE,
    )
    @read_only
    async def what_if_placement(self, question: WhatIfPlacement) -> WhatIfPlaced:
        """Simulate Kafka's rack-aware round robin placement, from the request alone."""

    @route(
        "POST /what-if/reassignment",
        "Simulate a reassignment",
        ConnectionLost,
        ComputationsBusy,
        response_model_exclude_none=True,
        dependencies=ROOM_TO_COMPUTE,
    )
    @read_only
    async def what_if_reassignment(self, question: WhatIfReassignment) -> WhatIfReassigned:
        """Simulate the steps of one partition, or the batches of several.

        Added replicas join the ISR if their brokers are online. If a target cannot be
        reached, the response names the brokers for which the reassignment would wait.
        """

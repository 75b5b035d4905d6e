"""What-if: compute an assignment without any effect."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from leadline_client.channel import Assignor
from leadline_client.errors import ComputationsBusy
from leadline_common.api.computations import ROOM_TO_COMPUTE
from leadline_common.api.models import example
from leadline_common.computing import Computer
from leadline_common.http.errors import error_responses, read_only
from leadline_common.http.router import ServiceRouter
from leadline_coordinator.domain.assignors.assign import assign, assignment_work

TAG: Final = "what-if"
TAGS: Final = (
    {
        "name": TAG,
        "description": "What the coordinator would decide; nothing is changed.",
    },
)
MAX_MEMBERS: Final = 5_000
MAX_PARTITIONS: Final = 20_000
MAX_SUBSCRIPTIONS: Final = 100_000
"""Topics of all subscriptions together; the cost of an answer grows with it."""
MAX_THREADS: Final = 100_000
MAX_PREVIOUS: Final = 100_000

Name = Annotated[str, Field(min_length=1, max_length=255)]
Number = Annotated[int, Field(ge=0, le=MAX_PARTITIONS, strict=True)]
Partitions = dict[Name, list[tuple[Name, Number]]]


class WhatIfAssignment(BaseModel):
    """A group: the topics, the members' subscriptions, and the previous assignment."""

    model_config = example(
        {
            "assignor": "sticky",
            "topics": {"orders": 4},
            "subscriptions": {"a": ["orders"], "b": ["orders"]},
            "previous": {"a": [["orders", 0], ["orders", 1], ["orders", 2], ["orders", 3]]},
        }
    )

    assignor: Assignor
    topics: dict[Name, Number] = Field(
        description="Existing topics and their numbers of partitions"
    )
    subscriptions: dict[Name, list[Name]] = Field(
        max_length=MAX_MEMBERS, description="The topics that each member asks for"
    )
    previous: Partitions = Field(
        default_factory=dict,
        description="What present and former members had: `[topic, partition]`",
    )
    threads: dict[Name, Annotated[int, Field(ge=1, le=1_000, strict=True)]] = Field(
        default_factory=dict, description="Threads of each member; 1 if omitted"
    )
    topic_threads: dict[Name, dict[Name, Annotated[int, Field(ge=1, le=1_000, strict=True)]]] = (
        Field(
            default_factory=dict,
            description="Threads of each member that read a topic, if not as many as in `threads`",
        )
    )
    instance_ids: dict[Name, Name] = Field(
        default_factory=dict,
        description="Instance ids of static members. A former and a present member with the same "
        "instance id are the same, so that a restart moves nothing",
    )
    generations: dict[Name, Annotated[int, Field(ge=0, strict=True)]] = Field(
        default_factory=dict,
        description="The generation of each member's `previous`. If two members had the same "
        "partition, the one with the lower generation loses it; at equal generations it has no "
        "valid owner, and no other partition moves because of it",
    )

    @model_validator(mode="after")
    def _is_answered_in_time(self) -> Self:
        if sum(self.topics.values()) > MAX_PARTITIONS:
            raise ValueError(f"topics have more than {MAX_PARTITIONS} partitions together")
        if sum(map(len, self.subscriptions.values())) > MAX_SUBSCRIPTIONS:
            raise ValueError(f"subscriptions name more than {MAX_SUBSCRIPTIONS} topics together")
        by_topic = (number for one in self.topic_threads.values() for number in one.values())
        if sum(self.threads.values()) + sum(by_topic) > MAX_THREADS:
            raise ValueError(f"members have more than {MAX_THREADS} threads together")
        if sum(map(len, self.previous.values())) > MAX_PREVIOUS:
            raise ValueError(f"previous has more than {MAX_PREVIOUS} partitions")
        return self

    def size(self) -> int:
        """Return an estimate of the work, in units of about 2 µs."""
        work = assignment_work(
            self.assignor, self.topics, self.subscriptions, self.threads, self.topic_threads
        )
        previous = sum(map(len, self.previous.values()))
        return 4 * (work + previous + sum(self.threads.values()))


class WhatIfAssigned(BaseModel):
    """The assignment of every member, in order."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "assignment": {
                    "a": [["orders", 0], ["orders", 1]],
                    "b": [["orders", 2], ["orders", 3]],
                },
                "moved": 2,
            }
        }
    )

    assignment: Partitions
    moved: int = Field(description="The number of partitions that another member had before")


def what_if_routes(computer: Computer) -> ServiceRouter:
    """Return the route. It needs no state, so a standby answers it as well."""
    router = ServiceRouter(prefix="/v1")

    @router.post(
        "/what-if/assignment",
        tags=[TAG],
        summary="Compute an assignment",
        responses=error_responses(ComputationsBusy),
        dependencies=ROOM_TO_COMPUTE,
    )
    @read_only
    async def what_if_assignment(body: WhatIfAssignment) -> WhatIfAssigned:
        """Assign partitions as a rebalance would, from the request alone.

        This reads and changes nothing.
        """
        return await computer.run(partial(_assigned, body), work=body.size())

    return router


def _assigned(body: WhatIfAssignment) -> WhatIfAssigned:
    outcome = assign(
        body.assignor,
        body.topics,
        body.subscriptions,
        body.previous,
        threads=body.threads,
        topic_threads=body.topic_threads,
        instance_ids=body.instance_ids,
        generations=body.generations,
    )
    assignment = {
        member: [(topic, number) for topic, number in assigned]
        for member, assigned in outcome.assignment.items()
    }
    return WhatIfAssigned(assignment=assignment, moved=len(outcome.moved))

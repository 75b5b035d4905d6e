"""What-if: the function that shares out partitions, asked without any effect."""

from __future__ import annotations

from typing import Annotated, Final, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from leadline_client.channel import Assignor
from leadline_common.api.models import example
from leadline_common.http.errors import read_only
from leadline_coordinator.domain.assignors.assign import assign

TAG: Final = "what-if"
TAGS: Final = (
    {"name": TAG, "description": "What the coordinator would decide, without any effect."},
)
MAX_MEMBERS: Final = 5_000
MAX_PARTITIONS: Final = 20_000
MAX_SUBSCRIPTIONS: Final = 100_000
"""How many topics all members together may ask for: what an answer costs grows with it."""

Name = Annotated[str, Field(min_length=1, max_length=255)]
Number = Annotated[int, Field(ge=0, le=MAX_PARTITIONS, strict=True)]
Partitions = dict[Name, list[tuple[Name, Number]]]


class WhatIfAssignment(BaseModel):
    """A group: its topics, who asked for what, and who had what."""

    model_config = example(
        {
            "assignor": "sticky",
            "topics": {"orders": 4},
            "subscriptions": {"a": ["orders"], "b": ["orders"]},
            "previous": {"a": [["orders", 0], ["orders", 1], ["orders", 2], ["orders", 3]]},
        }
    )

    assignor: Assignor
    topics: dict[Name, Number] = Field(description="The topics that exist: numbers of partitions")
    subscriptions: dict[Name, list[Name]] = Field(
        max_length=MAX_MEMBERS, description="The members: the topics that each asked for"
    )
    previous: Partitions = Field(
        default_factory=dict,
        description="What members had, also former ones: `[topic, partition]`",
    )
    threads: dict[Name, Annotated[int, Field(ge=1, le=1_000, strict=True)]] = Field(
        default_factory=dict, description="Threads of a member; 1 where it is left out"
    )
    instance_ids: dict[Name, Name] = Field(
        default_factory=dict,
        description="Of static members. A former member and a present one with the same instance "
        "id are the same, so that a restart moves nothing",
    )
    generations: dict[Name, Annotated[int, Field(ge=0, strict=True)]] = Field(
        default_factory=dict,
        description="Of which generation a member's `previous` is; of two members that had the "
        "same partition the one of the lower generation loses it",
    )

    @model_validator(mode="after")
    def _is_answered_in_time(self) -> Self:
        if sum(self.topics.values()) > MAX_PARTITIONS:
            raise ValueError(f"topics have more than {MAX_PARTITIONS} partitions together")
        if sum(map(len, self.subscriptions.values())) > MAX_SUBSCRIPTIONS:
            raise ValueError(f"subscriptions name more than {MAX_SUBSCRIPTIONS} topics together")
        return self


class WhatIfAssigned(BaseModel):
    """Who would read what; each member is there, in order."""

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
    moved: int = Field(description="How many partitions another member had before")


def what_if_routes() -> APIRouter:
    """Return the route: it needs no state, so that a standby answers it as well."""
    router = APIRouter(prefix="/v1")

    @router.post("/what-if/assignment", tags=[TAG], summary="Who would read what?")
    @read_only
    def what_if_assignment(body: WhatIfAssignment) -> WhatIfAssigned:
        """Share out partitions as a rebalance would, from the request alone.

        Nothing is read or changed.
        """
        # Not a coroutine: a large group takes its time, and takes it off the event loop.
        outcome = assign(
            body.assignor,
            body.topics,
            body.subscriptions,
            body.previous,
            threads=body.threads,
            instance_ids=body.instance_ids,
            generations=body.generations,
        )
        return WhatIfAssigned(assignment=outcome.assignment, moved=len(outcome.moved))

    return router

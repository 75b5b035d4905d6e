"""Request and response bodies of the API about groups and offsets."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from leadline_client.channel import Assignor, Partitions, Protocol
from leadline_client.wire import GroupState
from leadline_common.api.models import example
from leadline_common.group_commits import MAX_ROWS, ResetTo
from leadline_common.group_polls import OffsetReset

_INT64_MAX = 2**63 - 1

TopicName = Annotated[str, Field(min_length=1, max_length=249)]
Number = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Offset = Annotated[int, Field(ge=0, le=_INT64_MAX, strict=True)]

MEMBER_SECRET: Final = "".join(("h0Jx5sQz0n7mXl2Rb8uW4", "kVt6yDe1fAcPgIoN3vKqLM"))
"""What the secret of a member looks like, for examples."""
_MEMBER: dict[str, Any] = {
    "id": "billing-6f1c0e5d2b7a4c11",
    "instance_id": None,
    "client_id": "billing",
    "topics": ["orders"],
    "pattern": None,
    "threads": 1,
    "topic_threads": {},
    "connected": True,
    "owned": [["orders", [0, 1]]],
}
_SUMMARY = {
    "group": "billing",
    "state": "stable",
    "protocol": "cooperative",
    "assignor": "sticky",
    "generation": 7,
    "members": 1,
}
_ROW = {"topic": "orders", "partition": 0}


class GroupSummary(BaseModel):
    """A group in a list; `generation` rises with each change of its assignment."""

    model_config = example(_SUMMARY)

    group: str
    state: GroupState
    protocol: Protocol
    assignor: Assignor
    generation: int
    members: int


class Groups(BaseModel):
    """All groups, by name."""

    model_config = example({"groups": [_SUMMARY]})

    groups: list[GroupSummary]


class MemberBody(BaseModel):
    """A member: its subscription, and the partitions that it owns, by topic."""

    model_config = example(_MEMBER)

    id: str
    instance_id: str | None
    client_id: str
    topics: tuple[str, ...] | None
    pattern: str | None
    threads: int
    topic_threads: dict[str, int] = Field(
        description="Threads that read a topic, if not as many as `threads`"
    )
    connected: bool = Field(description="Whether the member has an open channel")
    owned: Partitions


class GroupBody(BaseModel):
    """A group with its members."""

    model_config = example(
        {
            **_SUMMARY,
            "coordinator_epoch": 3,
            "members": [_MEMBER],
            "last_rebalance": "billing-6f1c0e5d2b7a4c11 has joined",
            "rebalancing_since": None,
            "last_error": None,
        }
    )

    group: str
    state: GroupState
    protocol: Protocol
    assignor: Assignor
    generation: int
    coordinator_epoch: int
    members: list[MemberBody]
    last_rebalance: str = Field(description="The reason for the last rebalance")
    rebalancing_since: int | None = Field(
        description="Unix ms; null unless a rebalance is in progress"
    )
    last_error: str | None


class ResetPartition(BaseModel):
    """A partition."""

    model_config = example(_ROW)

    topic: TopicName
    partition: Number


class OffsetBody(BaseModel):
    """The offset of the next record to read; `time` is when it was committed, in Unix ms."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    time: int


class OffsetsBody(BaseModel):
    """The committed offsets of a group, by topic and partition."""

    model_config = example(
        {
            "offsets": [
                {**_ROW, "offset": 42, "leader_epoch": 3, "metadata": "", "time": 1763683200000}
            ]
        }
    )

    offsets: list[OffsetBody]


class ResetOffset(BaseModel):
    """An explicit offset for one partition."""

    model_config = ConfigDict(extra="forbid")

    topic: TopicName
    partition: Number
    offset: Offset


class ResetBody(BaseModel):
    """Where a group without members begins reading.

    Applies to `topics` and `partitions`, or, without either, to all partitions with committed
    offsets. `timestamp` (Unix ms) requires `to: timestamp`, `offsets` requires `to: offsets`.
    """

    model_config = example({"to": "earliest", "topics": ["orders"], "dry_run": True})

    to: ResetTo
    timestamp: Annotated[int, Field(ge=0, le=_INT64_MAX, strict=True)] | None = None
    offsets: list[ResetOffset] | None = Field(default=None, max_length=MAX_ROWS)
    topics: list[TopicName] = Field(default_factory=list, max_length=MAX_ROWS)
    partitions: list[ResetPartition] = Field(default_factory=list, max_length=MAX_ROWS)
    dry_run: bool = False

    @model_validator(mode="after")
    def _has_matching_members(self) -> Self:
        if (self.to == "timestamp") != (self.timestamp is not None):
            raise ValueError("timestamp is required with to: timestamp, and only allowed with it")
        if (self.to == "offsets") != bool(self.offsets):
            raise ValueError("offsets are required with to: offsets, and only allowed with it")
        if self.offsets and (self.topics or self.partitions):
            raise ValueError("offsets cannot be combined with topics or partitions")
        return self


class ResetRow(BaseModel):
    """An offset before and after the reset."""

    topic: str
    partition: int
    previous: int | None
    offset: int


class ResetDone(BaseModel):
    """The offsets that were set, or, with `dry_run`, would be set."""

    model_config = example({"offsets": [{**_ROW, "previous": 42, "offset": 0}], "dry_run": True})

    offsets: list[ResetRow]
    dry_run: bool


class LagRow(BaseModel):
    """The lag of a group in one partition, in records; null means unknown."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None


class LagBody(BaseModel):
    """The lag of each partition, and the sum of those that are known, in records."""

    model_config = example(
        {
            "partitions": [
                {
                    **_ROW,
                    "committed": 42,
                    "end": 50,
                    "lag": 8,
                    "member": "billing-6f1c0e5d2b7a4c11",
                }
            ],
            "total": 8,
        }
    )

    partitions: list[LagRow]
    total: int


class LeaveBody(BaseModel):
    """The secret of the member that leaves, from the `welcome` of its channel."""

    model_config = example({"secret": MEMBER_SECRET})

    secret: Annotated[str, Field(max_length=255)] | None = None


class MemberGone(BaseModel):
    """A member that was removed."""

    model_config = example({"group": "billing", "member": "billing-6f1c0e5d2b7a4c11"})

    group: str
    member: str


class GroupGone(BaseModel):
    """A group that was deleted."""

    model_config = example({"group": "billing"})

    group: str


class OffsetsGone(BaseModel):
    """The number of deleted offsets."""

    model_config = example({"deleted": 3})

    deleted: int


class JoinBody(BaseModel):
    """What a consumer that polls over HTTP asks for: topics, a pattern (RE2), or both."""

    model_config = example({"topics": ["orders"], "offset_reset": "earliest"})

    topics: Annotated[list[str], Field(max_length=10_000)] | None = None
    pattern: str | None = None
    offset_reset: OffsetReset = Field(
        description="Where to begin a partition without a committed offset, or whose offset is "
        "out of range"
    )
    session_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        le=2**31 - 1,
        strict=True,
        description="How long the consumer may process the records of a poll, from when it sent "
        "that poll; between `group.min.session.timeout.ms` and `group.max.session.timeout.ms`",
    )
    assignor: Assignor = "range"
    protocol: Protocol = "eager"
    client_id: str = ""
    instance_id: str | None = None
    instance_secret: str | None = None


class PollingMember(BaseModel):
    """A consumer that has joined: it states its `secret` in each poll, and keeps it to itself."""

    model_config = example(
        {
            "group": "billing",
            "consumer": "billing-6f1c0e5d2b7a4c11",
            "secret": MEMBER_SECRET,
            "session_timeout_ms": 30_000,
            "generation": 7,
            "coordinator_epoch": 3,
        }
    )

    group: str
    consumer: str
    secret: str
    session_timeout_ms: int
    generation: int
    coordinator_epoch: int

"""Where many partitions begin and end: the question and the answer of `POST /v1/offsets`.

Spoken by clients with any broker, and by brokers with one another. As msgspec
structs, because a thousand partitions are asked about at once. Pure: no IO.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.rpc import NO_ERROR

OFFSETS_PATH: Final = "/v1/offsets"
EARLIEST: Final = -2
"""As a timestamp: the log start."""
LATEST: Final = -1
"""As a timestamp: the high watermark."""

Scope = Literal["cluster", "local"]
_MOST: Final = 100_000
_INT64_MAX: Final = 2**63 - 1

Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]
Timestamp = Annotated[
    int,
    msgspec.Meta(
        ge=EARLIEST,
        le=_INT64_MAX,
        description="Look up the first committed record at or after this, in Unix ms; "
        "-2 is the log start, -1 the high watermark",
    ),
]


class PartitionQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One partition to look up, optionally by a timestamp."""

    topic: str
    partition: Number
    timestamp: Timestamp | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)


class BulkQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whole topics, single partitions, or both.

    `timestamp` is looked up in every partition of `topics`. With `wait_ms` the
    answer comes once a high watermark is beyond its offset in `after` (topic,
    partition, offset), or when the time is over. `scope` is `cluster` to have the
    broker ask the other leaders, `local` for what it leads itself.
    """

    topics: Annotated[list[str], msgspec.Meta(max_length=_MOST)] = []
    partitions: Annotated[list[PartitionQuestion], msgspec.Meta(max_length=_MOST)] = []
    timestamp: Timestamp | None = None
    scope: Scope = "cluster"
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=30_000)] = 0
    after: dict[str, dict[Number, Offset]] = {}


class LeaderRow(msgspec.Struct, frozen=True):
    """A partition's leader; `id` is -1 and `url` empty while it has none."""

    id: int
    url: str
    epoch: int


class PartitionEnds(msgspec.Struct, frozen=True):
    """The readable range of a partition is [log_start_offset, high_watermark).

    With a timestamp, `offset` is that of the first committed record at or after
    it, null when there is none, and `timestamp` that record's own; -1 and -2 give
    an offset alone.
    """

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    offset: int | None = None
    timestamp: int | None = None


class PartitionAnswer(msgspec.Struct, frozen=True):
    """The ends of one partition, or why they cannot be said: `error_code` is 0 for success.

    `leader` is the broker that answered, or with an error the one to ask.
    """

    topic: str
    partition: int
    error_code: int = NO_ERROR
    message: str | None = None
    leader: LeaderRow | None = None
    offsets: PartitionEnds | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)


class BulkAnswer(msgspec.Struct, frozen=True):
    """One answer for each partition asked for, in order."""

    partitions: list[PartitionAnswer]

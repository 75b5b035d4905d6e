"""The offsets of many partitions: request and response of `POST /v1/offsets`.

Clients send it to any broker, and brokers send it to each other. The types are msgspec structs,
because one request may name thousands of partitions. Pure: no IO.
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
_MAX_ITEMS: Final = 100_000
_INT64_MAX: Final = 2**63 - 1

Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]
Timestamp = Annotated[
    int,
    msgspec.Meta(
        ge=EARLIEST,
        le=_INT64_MAX,
        description="Look up the first committed record at or after this time, in Unix ms; "
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

    `timestamp` is looked up in every partition of `topics`. With `wait_ms` the broker responds
    once a high watermark exceeds its offset in `after` (by topic and partition), or after that
    time. With the scope `cluster` the broker asks the other leaders; with `local` it responds for
    the partitions that it leads.
    """

    topics: Annotated[list[str], msgspec.Meta(max_length=_MAX_ITEMS)] = []
    partitions: Annotated[list[PartitionQuestion], msgspec.Meta(max_length=_MAX_ITEMS)] = []
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

    With a timestamp, `offset` is that of the first committed record at or after it, null if there
    is none, and `timestamp` is the record's own. With -1 and -2, only `offset` is set. `last_epoch`
    is the leader epoch of the record before `offset`, or else before the high watermark; null if it
    is unknown.
    """

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    offset: int | None = None
    timestamp: int | None = None
    last_epoch: int | None = None


class PartitionAnswer(msgspec.Struct, frozen=True):
    """The offsets of one partition, or an error; `error_code` is 0 for success.

    `leader` is the broker that responded or, with an error, the broker to ask.
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
    """One row per requested partition, in the order of the request."""

    partitions: list[PartitionAnswer]

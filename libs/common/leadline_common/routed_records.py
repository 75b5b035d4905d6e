"""Requests of clients that a broker passes on to the leader of a partition, and reads for repairs.

The broker that the client called has checked the client's rights and quotas. Encoded as
MessagePack, because they contain record batches. Pure: no IO.
"""

from __future__ import annotations

from typing import Final

import msgspec

from leadline_client.wire import Acks

ROUTED_APPEND_PATH: Final = "/v1/internal/records/append"
ROUTED_READ_PATH: Final = "/v1/internal/records/read"
ROUTED_OFFSETS_PATH: Final = "/v1/internal/records/offsets"


class RoutedRequest(msgspec.Struct, frozen=True):
    """The identities of a request (rule R1).

    `broker_id` and `incarnation` are those of the receiver, which leads the partition, or follows
    it, in `leader_epoch` as far as the sender knows. `sender` is the broker that the client called,
    or that repairs its replica.
    """

    broker_id: int
    incarnation: int
    sender: int
    topic: str
    topic_id: str
    partition: int
    leader_epoch: int


class RoutedAppend(RoutedRequest, frozen=True):
    """Append record batches without producer ids, and wait as `acks` requires."""

    records: bytes
    acks: Acks
    timeout_ms: int


class RoutedAppended(msgspec.Struct, frozen=True):
    """The offsets of the appended records, consecutive from `base_offset`."""

    base_offset: int
    leader_epoch: int
    count: int


class RoutedRead(RoutedRequest, frozen=True):
    """Read committed batches; `last_epoch` is the leader epoch of the record before `offset`.

    With `any_replica` an in-sync follower answers, too.
    """

    offset: int
    max_bytes: int
    min_bytes: int
    wait_ms: int
    last_epoch: int | None = None
    any_replica: bool = False


class RoutedData(msgspec.Struct, frozen=True):
    """Whole stored batches, and the offsets of their partition."""

    records: bytes
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    next_offset: int
    topic_id: str
    last_epoch: int | None
    decompressed_bytes: int


class RoutedOffsets(RoutedRequest, frozen=True):
    """Look up the offsets of the partition, and the first record at or after a time in ms."""

    timestamp: int | None = None

"""What a fetch returns to a reader of one partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchedData:
    """Whole stored batches of one partition, and the partition's offsets.

    `next_offset` is the offset after the last batch in `records`, or the requested offset if
    there are none. `records` may begin before the requested offset, because batches are never
    split. `last_epoch` is the leader epoch of the record before `next_offset`, None if unknown
    or if that record is not committed. The batches decompress to at most `decompressed_bytes` each
    if they were accepted under the settings in force.
    """

    records: bytes
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    next_offset: int
    topic_id: str
    last_epoch: int | None
    decompressed_bytes: int

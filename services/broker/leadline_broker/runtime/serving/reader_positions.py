"""Validation of readers' positions by leader epochs (rule R15, KIP-320)."""

from __future__ import annotations

from leadline_broker.domain.epochs import NO_EPOCH
from leadline_broker.domain.replica import Role
from leadline_broker.runtime.ports import Log
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import LogTruncated, OffsetNotAvailable


def epoch_before(log: Log, offset: int) -> int | None:
    """Return the leader epoch of the record before `offset`, None if it is not known."""
    epoch = log.epochs.epoch_at(offset - 1)
    return None if epoch == NO_EPOCH else epoch


def epoch_to_state(partition: Partition, offset: int, stated: int | None) -> int | None:
    """Return the leader epoch of the record before `offset`, for the reader's next fetch.

    A record that is not committed may be replaced without any loss, and whoever stated its epoch
    later would be told of a truncation. So nothing is told of it except what the reader itself has
    `stated`, which was checked.
    """
    if offset > partition.replica.state.high_watermark:
        return stated
    return epoch_before(partition.log, offset)


def check_position(partition: Partition, offset: int, last_epoch: int) -> None:
    """Check that the record before `offset` is of the leader epoch in which it was read.

    `last_epoch` is not in the future.

    Raises:
        LogTruncated: it is not.
        OffsetNotAvailable: this follower has another record there, or none; only a leader decides.

    """
    log = partition.log
    ends = {"log_start_offset": log.log_start_offset, "log_end_offset": log.log_end_offset}
    if log.epochs.has_read(offset, last_epoch, **ends):
        return
    if partition.replica.role is Role.FOLLOWER:
        raise OffsetNotAvailable("this follower does not have the record; ask the leader")
    _, end = log.epochs.end_of(last_epoch, log.log_end_offset)
    # Of a later epoch than any of its own, the log has no record: not even the one before `offset`.
    divergence = min(end, offset - 1)
    raise LogTruncated.below(
        *partition.topic_partition,
        (offset, last_epoch),
        (divergence, epoch_before(log, divergence)),
        partition.replica.state.leader_epoch,
        topic_id=partition.topic_id,
    )

"""Refusals about logs, leaders and epochs, and about batches published exactly once."""

from __future__ import annotations

from typing import ClassVar, Self

from leadline_client.errors.tree import Refused


class CorruptBatch(Refused):
    """A record batch is truncated, of a wrong format, or fails its CRC."""

    code = 40051


class InvalidTimestamp(Refused):
    """A record is of a time further ahead than `message.timestamp.after.max.ms` allows (KIP-937).

    Correct the timestamp, which is in ms since 1970, or the clock of the machine that set it.
    """

    code = 40053
    members: ClassVar = {"latest": int}


class UnreadableBatch(Refused):
    """A stored batch cannot be decoded: read from `next_offset` on to skip it.

    Its bytes can still be fetched as they are stored. A broker that checks the records of producers
    accepts no such batch.
    """

    code = 50051
    members: ClassVar = {"offset": int, "next_offset": int, "reason": str}

    @classmethod
    def at(cls, offset: int, next_offset: int, reason: str, place: str = "the log") -> Self:
        """Return the error for the batch that begins at `offset`."""
        return cls(
            f"the batch of {place} at offsets {offset} to {next_offset - 1} cannot be decoded: "
            f"{reason}; read from offset {next_offset} to skip it, or fetch the stored bytes",
            offset=offset,
            next_offset=next_offset,
            reason=reason,
        )

    @property
    def offset(self) -> int:
        """The first offset of the batch."""
        return int(self.details["offset"])

    @property
    def next_offset(self) -> int:
        """The offset after the batch, from which to read on."""
        return int(self.details["next_offset"])

    def within(self, topic: str, partition: int) -> Self:
        """Return the error with the partition that the batch is in."""
        error = self.at(
            self.offset, self.next_offset, str(self.details["reason"]), f"{topic}-{partition}"
        )
        error.details |= {"topic": topic, "partition": partition}
        return error


class FencedLeaderEpoch(Refused):
    """The request states a leader epoch older than the current one."""

    code = 40951
    retriable = True


class UnknownLeaderEpoch(Refused):
    """The request states a leader epoch newer than this server has seen."""

    code = 40952
    retriable = True


class StaleControllerEpoch(Refused):
    """The command comes from a former controller."""

    code = 40953


class UnknownControllerEpoch(Refused):
    """The command names a controller epoch that ZooKeeper does not have."""

    code = 40991


class StaleIncarnation(Refused):
    """The request is meant for, or comes from, another incarnation of the broker."""

    code = 40954


class TopicIdMismatch(Refused):
    """The topic was deleted and recreated since the sender read its id."""

    code = 40955
    retriable = True


class OutOfOrderSequence(Refused):
    """An idempotent producer skipped a sequence number."""

    code = 40956


class ProducerFenced(Refused):
    """A newer instance of the idempotent producer is active."""

    code = 40957


class FetchSessionUnknown(Refused):
    """The broker does not know the incremental fetch session: start a new one with a full fetch."""

    code = 40958
    retriable = True


class OffsetOutOfRange(Refused):
    """The offset is before the log start or beyond the log end."""

    code = 41650


class LogTruncated(OffsetOutOfRange):
    """An unclean election has truncated the log below the reader's position (KIP-320).

    From `divergence_offset` on, the log has other records than those that were read there, or
    none. To go on, read from that offset.
    """

    code = 41651
    members: ClassVar = {
        "topic": str,
        "partition": int,
        "position": int,
        "divergence_offset": int,
        "leader_epoch": int,
    }

    @classmethod
    def below(
        cls,
        topic: str,
        partition: int,
        position: tuple[int, int | None],
        divergence: tuple[int, int | None],
        leader_epoch: int,
        topic_id: str | None,
    ) -> Self:
        """Return the error for a position.

        `position` and `divergence` are offsets, each with the leader epoch of the record before
        it. For the position that is the epoch in which it was read, and `leader_epoch` is the
        leader's now.
        """
        (offset, epoch), (first, epoch_before) = position, divergence
        return cls(
            f"{topic}-{partition} was truncated below {offset}: what was read from offset {first} "
            f"to {offset - 1} is no longer in the log of leader epoch {leader_epoch} (the last "
            f"record was of epoch {epoch}); read again from {first}",
            topic=topic,
            partition=partition,
            position=offset,
            position_epoch=epoch,
            divergence_offset=first,
            divergence_epoch=epoch_before,
            leader_epoch=leader_epoch,
            topic_id=topic_id,
        )

    @property
    def topic(self) -> str:
        """The topic."""
        return str(self.details["topic"])

    @property
    def partition(self) -> int:
        """The partition."""
        return int(self.details["partition"])

    @property
    def position(self) -> int:
        """The offset at which the reader was to continue."""
        return int(self.details["position"])

    @property
    def divergence_offset(self) -> int:
        """The first offset at which the log is known to differ from what was read."""
        return int(self.details["divergence_offset"])

    @property
    def divergence_epoch(self) -> int | None:
        """The leader epoch of the record before the divergence; None if it is not known."""
        epoch: int | None = self.details.get("divergence_epoch")
        return epoch


class NotLeader(Refused):
    """This broker does not lead the partition; `leader` names the leader. Nothing was appended."""

    code = 42150
    retriable = True


class LeaderNotAvailable(Refused):
    """The partition has no leader now."""

    code = 50351
    retriable = True


class NotEnoughReplicas(Refused):
    """The in-sync replicas are fewer than min.insync.replicas. Nothing was appended."""

    code = 50352
    retriable = True


class BrokerFenced(Refused):
    """The broker has no valid lease, or waits for its grant from the controller."""

    code = 50353
    retriable = True


class OffsetNotAvailable(Refused):
    """The new leader cannot state the latest offset yet (KIP-207)."""

    code = 50354
    retriable = True


class StorageFailed(Refused):
    """The disk is full or failed; nothing was appended."""

    code = 50355


class DamagedBatch(StorageFailed):
    """A stored batch of this replica is damaged. Another replica's copy is about to replace it."""

    code = 50373
    retriable = True

    @property
    def offset(self) -> int:
        """The offset of the batch, or a lower one."""
        return int(self.details.get("offset", 0))


class UnknownStaged(Refused):
    """No replica has a staged batch with this id: it expired, or its replicas are gone."""

    code = 40452


class PublishMismatch(Refused):
    """The batch is partly published, and the published part differs from this request.

    A replay must produce the same record batches as the first attempt.
    """

    code = 40959


class PublishOutOfOrder(Refused):
    """Another batch of the application is partly published: complete that one first."""

    code = 40962


class StagingFull(Refused):
    """The staged batches reach staging.max.bytes: publish or delete some of them, or wait."""

    code = 50358
    retriable = True


class TooManyProducers(Refused):
    """The broker remembers `producer.ids.max` producers already, and this one is new to it.

    Producers that it knows, and batches without a producer id, are accepted.
    """

    code = 50367
    retriable = True

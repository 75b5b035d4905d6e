"""What a replica asks its shell to do, as frozen values, in the order given."""

from __future__ import annotations

from dataclasses import dataclass

from leadline_client.errors import LeadlineError


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR that the leader wants published, conditional on what it knows (rules R6, R7).

    `state_version` is the data version of the state node to replace; `joiners`
    pairs each new member with the incarnation that the leader has counted.
    """

    number: int
    leader_epoch: int
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    state_version: int
    joiners: tuple[tuple[int, int], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Flush:
    """Fsync the log, then report with `Replica.on_durable`."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log so that it ends at `end_offset`, durably, before anything else."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class ResetLog:
    """Drop the whole log and start it at `start_offset`."""

    start_offset: int


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append the leader's batches as they are, then call `Replica.on_fetched`."""

    records: bytes
    leader_high_watermark: int


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Fetch from `leader` in `leader_epoch`; replaces any fetch of this replica."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Stop the fetch of this replica, if any."""


@dataclass(frozen=True, slots=True)
class WriteIsr:
    """Publish the proposal in one multi, then report with `Replica.on_isr_written`."""

    proposal: IsrProposal


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the state node, then report with `Replica.on_state_read`."""


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """The readable end moved: wake parked fetches."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The records of a parked produce are committed."""

    token: int


@dataclass(frozen=True, slots=True)
class FailAck:
    """A parked produce will not be acknowledged by this leader; its outcome is unknown."""

    token: int
    error: LeadlineError


Effect = (
    Flush
    | Truncate
    | ResetLog
    | AppendFetched
    | StartFetching
    | StopFetching
    | WriteIsr
    | ReadState
    | HighWatermarkAdvanced
    | Acknowledge
    | FailAck
)

"""The effects of a replica's state machine: frozen values that its shell executes in order."""

from __future__ import annotations

from dataclasses import dataclass

from leadline_broker.domain.producers import ProducerStates
from leadline_client.errors import LeadlineError
from leadline_common.directories import DirectoryEpochs


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR that the leader proposes to write to ZooKeeper (rules R6, R7).

    The write is conditional: `state_version` is the data version of the state node that
    it replaces, and `joiners` pairs each new member with the incarnation whose fetches
    the leader has counted. `directory_epochs` binds all members to their log directories
    (rule R17).
    """

    number: int
    leader_epoch: int
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    state_version: int
    joiners: tuple[tuple[int, int], ...] = ()
    reason: str = ""
    directory_epochs: DirectoryEpochs | None = None


@dataclass(frozen=True, slots=True)
class Flush:
    """Fsync the log, then report with `Replica.on_durable`."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to `end_offset`, durably, before the next effect.

    `committed` of the removed records were below the high watermark: the leader has lost them.
    """

    end_offset: int
    committed: int = 0


@dataclass(frozen=True, slots=True)
class ResetLog:
    """Delete all records and restart the log at `start_offset`, behind `known` producers.

    `committed` of those from `start_offset` on were committed: the leader lacks them.
    """

    start_offset: int
    known: ProducerStates | None = None
    committed: int = 0


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append the leader's batches unchanged, then call `Replica.on_fetched`."""

    records: bytes
    leader_high_watermark: int


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Fetch from `leader` in `leader_epoch`, instead of from any earlier leader."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Stop fetching for this replica, if it fetches."""


@dataclass(frozen=True, slots=True)
class WriteIsr:
    """Write the proposal in one transaction, then report with `Replica.on_isr_written`."""

    proposal: IsrProposal


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the state node, then report with `Replica.on_state_read`."""


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """The high watermark rose: wake the fetches that wait for it."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The records of a waiting produce are committed."""

    token: int


@dataclass(frozen=True, slots=True)
class FailAck:
    """This leader will not acknowledge a waiting produce; its outcome is unknown."""

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

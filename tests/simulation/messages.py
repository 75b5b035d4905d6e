"""What the simulated processes say to each other, without what one partition does not need."""

from __future__ import annotations

from dataclasses import dataclass

from leadline_client.wire import NO_LEADER
from leadline_common.rpc import FetchedRow, FetchRow, PartitionRow

TOPIC = "orders"
TOPIC_ID = "topic-id"
PARTITION = 0


@dataclass(frozen=True, slots=True)
class FetchCall:
    """A follower's fetch."""

    broker_id: int
    incarnation: int
    nonce: int
    row: FetchRow


@dataclass(frozen=True, slots=True)
class FetchReply:
    """The leader's answer, with the nonce of the fetch."""

    nonce: int
    row: FetchedRow


@dataclass(frozen=True, slots=True)
class Grant:
    """LeaderAndISR for the one partition; with `is_init` the full grant of a new incarnation."""

    controller_epoch: int
    incarnation: int
    is_init: bool
    row: PartitionRow


@dataclass(frozen=True, slots=True)
class Stop:
    """StopReplica for the one partition; without `delete` the log becomes a stray."""

    controller_epoch: int
    incarnation: int
    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True)
class ProduceReply:
    """Acknowledged at `offset`, or else `refused` (nothing was appended) or not: unknown."""

    offset: int = -1
    refused: bool = False
    leader: int = NO_LEADER

"""What services say to one another, as msgspec structs.

Commands of the controller and heartbeats travel as JSON, replica fetches as
MessagePack because they carry record bytes. Rows are arrays, grouped by topic:
about 30 bytes per partition. Every request states identities (rule R1): topic
id, leader epoch, the incarnation of the broker meant or speaking, and the
controller epoch. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

LEADER_AND_ISR_PATH = "/v1/replica/leader-and-isr"
STOP_REPLICA_PATH = "/v1/replica/stop-replica"
UPDATE_METADATA_PATH = "/v1/replica/update-metadata"
REPLICA_FETCH_PATH = "/v1/replica/fetch"
HEARTBEAT_PATH = "/v1/internal/heartbeat"
CONTROLLED_SHUTDOWN_PATH = "/v1/internal/controlled-shutdown"

JSON = "application/json"
MSGPACK = "application/msgpack"

NO_ERROR = 0
"""The per-partition code of success; any other is an `error_code` of the house table."""

NO_THROTTLE = -1
"""The rate of moving replicas that no throttle holds back."""


class PartitionRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Leader and ISR of one partition (seed 1: LeaderAndISR).

    `state_version` is the data version of the state node. `adding` are the replicas
    that a reassignment under way brings in: they move, and may be throttled (KIP-73).
    `first_epoch` is the leader epoch that the partition began with: a replica whose
    records are older is one of a partition of this number that was removed.
    """

    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    state_version: int
    eligible: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    first_epoch: int = 0


class TopicRows(msgspec.Struct, array_like=True, frozen=True):
    """The rows of one topic; `configs` are the topic's effective dynamic settings."""

    topic: str
    topic_id: str
    configs: Mapping[str, str]
    partitions: list[PartitionRow]


class BrokerRow(msgspec.Struct, array_like=True, frozen=True):
    """A live broker."""

    id: int
    url: str
    rack: str | None
    incarnation: int


class ControllerRow(msgspec.Struct, array_like=True, frozen=True):
    """The active controller."""

    id: int
    url: str
    epoch: int


class LeaderAndIsrRequest(msgspec.Struct, frozen=True):
    """Roles for one broker (seed 1 C).

    With `is_init` the topics are the broker's full grant: every replica that is
    assigned to it. A local replica that the grant does not name is moved to
    stray, never deleted (rule R12).
    `ack_timeout_ms`: how long the controller waits for the answer.
    `brokers` gives the addresses of the leaders that are named. `sequence` rises
    with every LeaderAndISR of one controller epoch: a grant that was overtaken on
    the way says nothing of replicas that it does not name.
    """

    controller_id: int
    controller_epoch: int
    broker_id: int
    incarnation: int
    is_init: bool
    ack_timeout_ms: int
    cause: str
    brokers: list[BrokerRow]
    topics: list[TopicRows]
    sequence: int = 0


class CommandResponse(msgspec.Struct, frozen=True):
    """A code for each partition, in the order of the request: one list per topic."""

    controller_epoch: int
    incarnation: int
    codes: list[list[int]]


class StopRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A replica to stop: refused if the local leader epoch is higher."""

    partition: int
    leader_epoch: int


class StopTopic(msgspec.Struct, array_like=True, frozen=True):
    """The replicas of one topic to stop."""

    topic: str
    topic_id: str
    partitions: list[StopRow]


class StopReplicaRequest(msgspec.Struct, frozen=True):
    """Stop replicas, and delete their logs when `delete` (seed 1 C; rule R12)."""

    controller_id: int
    controller_epoch: int
    broker_id: int
    incarnation: int
    ack_timeout_ms: int
    cause: str
    delete: bool
    topics: list[StopTopic]


class UpdateMetadataRequest(msgspec.Struct, frozen=True):
    """What a broker serves to clients as metadata.

    `version` is the highest ZooKeeper transaction id that the controller has
    applied. A delta (`full` false) names only changed topics and applies to
    `base_version` alone; the receiver refuses others and gets a full one.
    `brokers` is always whole.
    """

    cluster_id: str
    controller: ControllerRow
    broker_id: int
    incarnation: int
    version: int
    base_version: int
    full: bool
    cause: str
    brokers: list[BrokerRow]
    topics: list[TopicRows]
    deleted: list[str] = []


class UpdateMetadataResponse(msgspec.Struct, frozen=True):
    """The metadata version that the broker now serves."""

    controller_epoch: int
    version: int


class MovingRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How far a replica that is being added has come, by its leader. Bytes of the leader's log."""

    topic: str
    partition: int
    replica: int
    bytes_left: int
    bytes_total: int


class HeartbeatRequest(msgspec.Struct, frozen=True):
    """What a broker has applied, for the controller to compare (rule R8).

    `granted` is false until the broker has its full grant. `replicas` and
    `digest` count and sum up the applied (topic id, partition, leader epoch);
    see `replica_fingerprint`. `isr_changes` are partitions whose ISR this broker
    wrote since its last answered heartbeat. `moving` are the replicas that are
    being added to partitions that it leads.
    """

    broker_id: int
    incarnation: int
    controller_epoch: int
    granted: bool
    metadata_version: int
    replicas: int
    digest: int
    isr_changes: list[tuple[str, int]] = []
    moving: list[MovingRow] = []


class HeartbeatResponse(msgspec.Struct, frozen=True):
    """The controller that answers; a broker ignores answers of a lower epoch.

    `moving_bytes_per_s` is what the broker may send, and what it may receive, for
    moving replicas from now on; `NO_THROTTLE` lifts it. Without an answer the
    last one holds.
    """

    controller_id: int
    controller_epoch: int
    moving_bytes_per_s: int = NO_THROTTLE


class ControlledShutdownRequest(msgspec.Struct, frozen=True):
    """A broker that is about to stop asks to be relieved of what it leads."""

    broker_id: int
    incarnation: int
    cause: str


class ControlledShutdownResponse(msgspec.Struct, frozen=True):
    """What the broker leads still, as (topic, partition): nobody else can lead it now."""

    controller_epoch: int
    remaining: list[tuple[str, int]]


class FetchRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a follower stands in one partition (rules R2, R4).

    `fetch_offset` is the fsynced end of its log; `last_epoch` the leader epoch
    of its last batch, -1 for an empty log.
    """

    partition: int
    leader_epoch: int
    fetch_offset: int
    last_epoch: int


class FetchTopic(msgspec.Struct, array_like=True, frozen=True):
    """The rows of one topic."""

    topic_id: str
    partitions: list[FetchRow]


class ForgottenTopic(msgspec.Struct, array_like=True, frozen=True):
    """Partitions to drop from an incremental session."""

    topic_id: str
    partitions: list[int]


class ReplicaFetchRequest(msgspec.Struct, frozen=True):
    """A follower's fetch for many partitions (seed 1 G), within a session (KIP-227).

    `nonce` rises with every request of this follower incarnation to this leader;
    a session is identified by the nonce of the request that opened it
    (`session` = `nonce`: full). Later requests name only changed partitions.
    Units: `wait_ms`, `min_bytes`, `max_bytes` over all partitions. One that is
    `leaving` is about to stop: it follows to answer what it owes, and joins no ISR.
    """

    broker_id: int
    incarnation: int
    session: int
    nonce: int
    wait_ms: int
    min_bytes: int
    max_bytes: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic] = []
    leaving: bool = False


class FetchedRow(msgspec.Struct, array_like=True, frozen=True):
    """The leader's answer for one partition; the first four members echo the request (rule R3).

    With `diverging_epoch` >= -1 set together with `diverging_end` >= 0, the
    follower must truncate; see rule R2. On OffsetOutOfRange the follower restarts at
    `log_start_offset`. `records` are whole stored batches.
    """

    partition: int
    leader_epoch: int
    fetch_offset: int
    last_epoch: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging_epoch: int = -1
    diverging_end: int = -1
    records: bytes = b""


class FetchedTopic(msgspec.Struct, array_like=True, frozen=True):
    """The answers of one topic."""

    topic_id: str
    partitions: list[FetchedRow]


class ReplicaFetchResponse(msgspec.Struct, frozen=True):
    """Answers for partitions with news; silence about a partition means none.

    `error_code` concerns the whole request (e.g. FetchSessionUnknown).
    """

    nonce: int
    incarnation: int
    error_code: int
    topics: list[FetchedTopic]


def replica_fingerprint(topic_id: str, partition: int, leader_epoch: int) -> int:
    """Return 63 bits that stand for one applied role.

    The digest of a broker is the exclusive-or over its replicas, so both sides
    keep it up to date at the cost of one change.
    """
    name = f"{topic_id}/{partition}/{leader_epoch}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") >> 1


def digest_of(replicas: Iterable[tuple[str, int, int]]) -> int:
    """Return the digest of (topic id, partition, leader epoch) triples."""
    digest = 0
    for topic_id, partition, leader_epoch in replicas:
        digest ^= replica_fingerprint(topic_id, partition, leader_epoch)
    return digest

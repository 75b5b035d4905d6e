"""Requests and responses between services, as msgspec structs.

Commands of the controller and heartbeats are encoded as JSON, replica fetches as MessagePack
because they contain record bytes. Rows are arrays, grouped by topic: about 30 bytes per partition.
Every request contains identities (rule R1): topic id, leader epoch, the incarnation of the
receiving or sending broker, and the controller epoch. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

from leadline_common.directories import FIRST_DIRECTORY_EPOCH, DirectoryEpochs

LEADER_AND_ISR_PATH = "/v1/replica/leader-and-isr"
STOP_REPLICA_PATH = "/v1/replica/stop-replica"
UPDATE_METADATA_PATH = "/v1/replica/update-metadata"
REPLICA_FETCH_PATH = "/v1/replica/fetch"
HEARTBEAT_PATH = "/v1/internal/heartbeat"
CONTROLLED_SHUTDOWN_PATH = "/v1/internal/controlled-shutdown"

JSON = "application/json"
MSGPACK = "application/msgpack"

NO_ERROR = 0
"""The per-partition code of success; any other is an `error_code` of `leadline_client.errors`."""

NO_THROTTLE = -1
"""The rate limit of moving replicas without a throttle."""


class PartitionRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Leader and ISR of one partition (Replication V3: LeaderAndISR).

    `state_version` is the data version of the state node. `adding` are the replicas that a
    reassignment is adding; they may be throttled (KIP-73). `first_epoch` is the first leader epoch
    of the partition: a replica with older records belongs to a removed partition of this number.
    `directory_epochs` binds the members to their log directories (rule R17).
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
    directory_epochs: DirectoryEpochs | None = None


class TopicRows(msgspec.Struct, array_like=True, frozen=True):
    """The rows of one topic; `configs` are its effective dynamic settings."""

    topic: str
    topic_id: str
    configs: Mapping[str, str]
    partitions: list[PartitionRow]


class BrokerRow(msgspec.Struct, array_like=True, frozen=True):
    """A live broker. Clients call it at `url`, other services at `internal_url`."""

    id: int
    url: str
    rack: str | None
    incarnation: int
    internal_url: str = ""


class ControllerRow(msgspec.Struct, array_like=True, frozen=True):
    """The active controller. Clients call it at `url`, brokers at `internal_url`."""

    id: int
    url: str
    epoch: int
    internal_url: str = ""


class LeaderAndIsrRequest(msgspec.Struct, frozen=True):
    """The roles of one broker's replicas (Replication V3, section C).

    With `is_init`, the topics are the broker's full grant: every replica that is assigned to it. A
    local replica outside the grant becomes a stray and is not deleted (rule R12).
    `ack_timeout_ms` is how long the controller waits for the response. `brokers` has the addresses
    of the leaders. `sequence` rises with every LeaderAndISR and StopReplica of one controller
    epoch: a grant that arrives after a later request does not make other replicas strays.
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
    """One code per partition, in the order of the request: one list per topic."""

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
    """Stop replicas, and with `delete` delete their logs (Replication V3, section C; rule R12).

    A replica whose last grant has a higher `sequence` in the same controller epoch is not stopped:
    the request has been on its way since before that grant. 0 is not compared.
    """

    controller_id: int
    controller_epoch: int
    broker_id: int
    incarnation: int
    ack_timeout_ms: int
    cause: str
    delete: bool
    topics: list[StopTopic]
    sequence: int = 0


class UpdateMetadataRequest(msgspec.Struct, frozen=True):
    """The metadata that a broker serves to clients.

    `version` is the highest ZooKeeper transaction id that the controller has applied. A delta
    (`full` false) has only the changed topics and applies only to `base_version`; a broker with
    another version refuses it and gets a full one. `brokers` is always complete.
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
    """The progress of a replica that is being added, as its leader reports it, in log bytes."""

    topic: str
    partition: int
    replica: int
    bytes_left: int
    bytes_total: int


class LateRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A role that a broker was granted and has not taken.

    `taken_epoch` is the leader epoch of the role that it has instead, -1 without one.
    """

    topic: str
    topic_id: str
    partition: int
    taken_epoch: int


class HeartbeatRequest(msgspec.Struct, frozen=True):
    """The state that a broker has applied, which the controller compares with its own (rule R8).

    `granted` is false until the broker has its full grant. `replicas` is the number, and `digest`
    the digest, of the applied (topic id, partition, leader epoch); see `replica_fingerprint`.
    `isr_changes` are partitions whose ISR this broker has written since its last answered
    heartbeat. `moving` are the replicas that are being added to partitions that it leads. `late`
    are roles that it refused: the rest of the digest can be compared without them. `time_ms` is
    the time by the broker's clock (Unix ms), 0 from an earlier release.
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
    late: list[LateRow] = []
    time_ms: int = 0


class MovingRate(msgspec.Struct, array_like=True, frozen=True):
    """The rate of one task's moving replicas on a broker, in each direction.

    `bytes_per_s` is `NO_THROTTLE` for no limit. `partitions` maps topic ids to partition numbers.
    """

    task: str
    bytes_per_s: int
    partitions: dict[str, list[int]]


UNKNOWN_TIME = -1
"""What a controller says that does not know yet what time it is by most clocks."""


class HeartbeatResponse(msgspec.Struct, frozen=True):
    """The controller that responds; a broker ignores responses of a lower epoch.

    `moving` limits what the broker sends, and what it receives, for moving replicas; one that no
    row lists waits. With None nothing is limited. It applies until the next response. `time_ms` is
    the time by the clocks of most brokers (Unix ms), `UNKNOWN_TIME`, or 0 from an earlier release.
    """

    controller_id: int
    controller_epoch: int
    moving: list[MovingRate] | None = None
    time_ms: int = 0


class ControlledShutdownRequest(msgspec.Struct, frozen=True):
    """The request of a stopping broker to move leadership of its partitions to others."""

    broker_id: int
    incarnation: int
    cause: str


class ControlledShutdownResponse(msgspec.Struct, frozen=True):
    """The (topic, partition) pairs that the broker still leads, because no other replica can."""

    controller_epoch: int
    remaining: list[tuple[str, int]]


class FetchRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The fetch position of a follower in one partition (rules R2, R4).

    `fetch_offset` is the fsynced end of its log. `last_epoch` is the leader epoch of its last
    batch, -1 for an empty log. `directory_epoch` is that of its log directory (rule R17). If it is
    to begin again at an offset, and was `told` of producers up to an id, it states both.
    """

    partition: int
    leader_epoch: int
    fetch_offset: int
    last_epoch: int
    directory_epoch: int = FIRST_DIRECTORY_EPOCH
    told: tuple[int, int] | None = None


class FetchTopic(msgspec.Struct, array_like=True, frozen=True):
    """The rows of one topic."""

    topic_id: str
    partitions: list[FetchRow]


class ForgottenTopic(msgspec.Struct, array_like=True, frozen=True):
    """Partitions to drop from an incremental session."""

    topic_id: str
    partitions: list[int]


class ReplicaFetchRequest(msgspec.Struct, frozen=True):
    """A follower's fetch for many partitions (Replication V3, section G) in a session (KIP-227).

    `nonce` rises with every request of this follower incarnation to this leader. A session is
    identified by the nonce of the request that opened it (`session` = `nonce`: full). Later
    requests contain only changed partitions. `wait_ms`, `min_bytes` and `max_bytes` apply to all
    partitions together. A `leaving` follower is about to stop: it keeps fetching, and joins no ISR.
    One that `takes_parts` may be told of producers in several responses.
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
    takes_parts: bool = False


class KnownProducers(msgspec.Struct, array_like=True, frozen=True):
    """What a log knows of who wrote records that retention has deleted.

    Rows of the broker's `ProducerStates` and `Publishes`: nobody can learn them from the log. They
    are those with ids above `after`, as far as `last`; -1 if they are the rest.
    """

    producers: tuple[tuple[int, int, int, tuple[tuple[int, int, int], ...]], ...] = ()
    publishes: tuple[tuple[int, int, tuple[int, int, tuple[int, ...], int, int, bool]], ...] = ()
    after: int = -1
    last: int = -1


class FetchedRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The leader's response for one partition; the first four fields echo the request (rule R3).

    If `diverging_end` >= 0, the follower must truncate its log by `diverging_epoch` (>= -1) and
    `diverging_end` (rule R2). After OffsetOutOfRange the follower restarts at
    `log_start_offset`, with `known` for what is before it. `records` are whole stored batches.
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
    known: KnownProducers | None = None


class FetchedTopic(msgspec.Struct, array_like=True, frozen=True):
    """The responses for one topic."""

    topic_id: str
    partitions: list[FetchedRow]


class ReplicaFetchResponse(msgspec.Struct, frozen=True):
    """The responses for partitions that have changed since the last one.

    `error_code` applies to the whole request (FetchSessionUnknown, for example).
    """

    nonce: int
    incarnation: int
    error_code: int
    topics: list[FetchedTopic]


def replica_fingerprint(topic_id: str, partition: int, leader_epoch: int) -> int:
    """Return a hash of 63 bits of one applied role.

    A broker's digest is the exclusive-or over its replicas, so that both sides update it at the
    cost of the changed replica.
    """
    name = f"{topic_id}/{partition}/{leader_epoch}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") >> 1


def digest_of(replicas: Iterable[tuple[str, int, int]]) -> int:
    """Return the digest of (topic id, partition, leader epoch) triples."""
    digest = 0
    for topic_id, partition, leader_epoch in replicas:
        digest ^= replica_fingerprint(topic_id, partition, leader_epoch)
    return digest

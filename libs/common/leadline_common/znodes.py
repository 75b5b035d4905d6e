"""The znodes of Leadline: their paths, values and codec. Pure: no IO.

The layout is Kafka's where Kafka has one. Values are JSON with a `version` field. When a value is
rewritten, fields that this release does not know are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from leadline_common.access.users import USERS
from leadline_common.directories import FIRST_DIRECTORY_EPOCH, DirectoryEpochs
from leadline_common.plain_json import encodable
from leadline_common.versions import VersionedRegistration
from leadline_common.znode_json import (
    MAX_EPOCH,
    MAX_NODE_PARTITION,
    MAX_TIME,
    VALUE_VERSION,
    check_partitions,
    check_range,
    convert_members,
    decode_typed,
    decode_value,
    pack_value,
    unpack_value,
)

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_EPOCHS = "/brokers/epochs"
BROKER_DIRECTORIES = "/brokers/directories"
TOPICS = "/brokers/topics"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PARTITIONS_REASSIGNED = "/admin/partitions_reassigned"
PARTITIONS_ADD = "/admin/partitions_add"
PARTITIONS_REMOVE = "/admin/partitions_remove"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
IDEMPOTENCY = "/admin/idempotency"
AUDIT = "/admin/audit"
AUDIT_ENTRY_PREFIX = "/admin/audit/entry-"
AUDIT_READERS = "/admin/audit_readers"
FAILED_BROKERS = "/admin/failed_brokers"
DEAD_BROKERS = "/admin/dead_brokers"
CONFIG_CLUSTER = "/config/cluster"
CONFIG_BROKERS = "/config/brokers"
CONFIG_TOPICS = "/config/topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
PRODUCER_ID_KEY = "/security/producer_id_key"

PERSISTENT_PATHS = (
    "/cluster",
    "/brokers",
    BROKER_IDS,
    BROKER_EPOCHS,
    BROKER_DIRECTORIES,
    TOPICS,
    "/admin",
    DELETE_TOPICS,
    REASSIGN_PARTITIONS,
    PARTITIONS_REASSIGNED,
    PARTITIONS_ADD,
    PARTITIONS_REMOVE,
    IDEMPOTENCY,
    AUDIT,
    AUDIT_READERS,
    FAILED_BROKERS,
    DEAD_BROKERS,
    "/config",
    CONFIG_CLUSTER,
    CONFIG_BROKERS,
    CONFIG_TOPICS,
    "/security",
    USERS,
)
"""Paths that must exist before anything else; parents come first."""


def broker_id_path(broker_id: int) -> str:
    """Return the ephemeral node of a live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_epoch_path(broker_id: int) -> str:
    """Return the node whose data version is the broker's incarnation (rule R9).

    Its value has the broker's log directories (rule R17); see `BrokerEpoch`.
    """
    return f"{BROKER_EPOCHS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the node with the topic's id and replica assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the parent of a topic's partition nodes."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """Return the parent of a partition's state node."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """Return the node with leader and ISR (LeaderAndISR in Replication V3)."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    """Return the node with the topic's dynamic settings."""
    return f"{CONFIG_TOPICS}/{topic}"


def broker_config_path(broker_id: int) -> str:
    """Return the node with one broker's dynamic settings."""
    return f"{CONFIG_BROKERS}/{broker_id}"


def idempotency_path(digest: str) -> str:
    """Return the node of an idempotency key, whose name is the key's digest."""
    return f"{IDEMPOTENCY}/{digest}"


def delete_topic_path(topic: str) -> str:
    """Return the tombstone of a topic to delete (rule R12)."""
    return f"{DELETE_TOPICS}/{topic}"


def audit_path(audit_id: int) -> str:
    """Return an entry of the audit outbox; ids start at 0 and have no gaps."""
    return f"{AUDIT_ENTRY_PREFIX}{audit_id:010d}"


def audit_id(name: str) -> int:
    """Return the id of an audit entry from the name or path of its node."""
    return int(name.rpartition("-")[2])


class PartitionState(msgspec.Struct, frozen=True, gc=False):
    """Leader and ISR of one partition, as published in ZooKeeper.

    `eligible` are former ISR members that still have every committed record; they are recorded
    while the ISR is below min.insync.replicas (rule R14, KIP-966). `directory_epochs` binds the
    members of `isr` and `eligible` to their log directories (rule R17); see
    `leadline_common.directories`. `extra` has the fields of the znode that this release does not
    know.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    eligible: tuple[int, ...] = ()
    extra: Mapping[str, Any] | None = None
    directory_epochs: DirectoryEpochs | None = None


class TopicAssignment(msgspec.Struct, frozen=True):
    """Id and assigned replicas (first = preferred leader) of a topic's partitions.

    `topic_id` is empty if an operator wrote the node without one; the controller then assigns one.
    `first_epochs` has the first leader epoch of partitions that were added again after a removal.
    It exceeds every epoch of the removed partition, which distinguishes the two. It is kept after
    a removal, for the next partition of that number.
    """

    topic_id: str
    partitions: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = {}
    removing: Mapping[int, tuple[int, ...]] = {}
    first_epochs: Mapping[int, int] = {}
    extra: Mapping[str, Any] | None = None


class BrokerRegistration(VersionedRegistration, frozen=True):
    """A live broker. `incarnation` is the data version of its epoch node.

    `settings` are its explicit static settings, which other services show. `directory_id` and
    `directory_epoch` identify its log directory, and `replica_epochs` has the epochs of the
    replicas whose logs were lost within it, by topic id and partition (rule R17). Other services
    call it at `internal_url`, clients at `url`. For the protocols see `leadline_common.versions`.
    """

    id: int
    host: str
    port: int
    url: str
    rack: str | None
    incarnation: int
    settings: Mapping[str, str] = {}
    extra: Mapping[str, Any] | None = None
    directory_id: str = ""
    directory_epoch: int = FIRST_DIRECTORY_EPOCH
    replica_epochs: Mapping[str, Mapping[int, int]] = {}
    internal_url: str = ""

    def epoch_of(self, topic_id: str, partition: int) -> int:
        """Return the directory epoch of one of its replicas (rule R17)."""
        if not self.replica_epochs:
            return self.directory_epoch
        return self.replica_epochs.get(topic_id, {}).get(partition, self.directory_epoch)


class BrokerEpoch(msgspec.Struct, frozen=True):
    """The persistent node of a broker, whose data version is the incarnation (rule R9).

    `directories` has the epochs of the log directories that it registered with (rule R17).
    """

    directories: Mapping[str, int] = {}
    extra: Mapping[str, Any] | None = None


class ControllerRegistration(VersionedRegistration, frozen=True):
    """The active controller, in `/controller`; `timestamp` is in Unix ms.

    Brokers call it at `internal_url`, clients at `url`.
    """

    id: int
    url: str
    timestamp: int
    extra: Mapping[str, Any] | None = None
    internal_url: str = ""


class StateChange(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One partition's row of an audit entry, with the znode version written.

    `before` and `after` are (leader, leader epoch, ISR); `before` is None if the change created the
    state node. `reason` is the reason of the change, such as `isr`, `preferred` or `unclean`.
    """

    topic: str
    partition: int
    reason: str
    before: tuple[int, int, tuple[int, ...]] | None
    after: tuple[int, int, tuple[int, ...]]
    state_version: int


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change with its actor and reason, written in the same multi as the change.

    `time` is in Unix ms. `cause` is the cause id of the request or event. `zk` has the new versions
    of the other paths written, by path.
    """

    time: int
    cause: str
    actor: str
    kind: str
    outcome: str = "done"
    reason: str = ""
    resource: Mapping[str, Any] = {}
    before: Any = None
    after: Any = None
    zk: Mapping[str, int] = {}
    changes: tuple[StateChange, ...] = ()
    version: int = VALUE_VERSION


def encode_value(value: msgspec.Struct) -> bytes:
    """Encode a value with the fields in its `extra`; the inverse of `decode_value`."""
    known = msgspec.to_builtins(value, str_keys=True)
    return pack_value(known, known.pop("extra", None))


def encode_state(state: PartitionState) -> bytes:
    """Encode a partition's state node."""
    known: dict[str, Any] = {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "controller_epoch": state.controller_epoch,
    }
    if state.eligible:
        known["eligible"] = state.eligible
    if state.directory_epochs:
        known["directory_epochs"] = state.directory_epochs
    return pack_value(known, state.extra)


def decode_state(data: bytes) -> PartitionState:
    """Decode a partition's state node; raises msgspec.MsgspecError if it is no state."""
    state = decode_value(data, PartitionState)
    check_range("leader", (state.leader,), -1)
    check_range("broker", (*state.isr, *state.eligible), 0)
    check_range("epoch", (state.leader_epoch, state.controller_epoch), 0, MAX_EPOCH)
    return state


def encode_topic(topic: TopicAssignment) -> bytes:
    """Encode a topic node."""
    known = msgspec.to_builtins(topic, str_keys=True)
    if not topic.first_epochs:
        del known["first_epochs"]
    return pack_value(known, known.pop("extra"))


def decode_topic(data: bytes) -> TopicAssignment:
    """Decode a topic node; only `partitions` is required, because operators may write the node.

    The bare form of Replication V3, `{"0": [1, 2], "1": [2, 3]}`, is accepted, too.

    Raises:
        msgspec.MsgspecError: the value is not an assignment, or names a broker
            twice in one partition.

    """
    members = unpack_value(data)
    if members and all(name.isdecimal() for name in members):
        members = {"partitions": members}
    topic = convert_members(members, TopicAssignment, topic_id="")
    check_partitions("broker", topic.partitions)
    check_partitions("broker", topic.adding)
    check_partitions("broker", topic.removing)
    check_partitions("epoch", {number: (e,) for number, e in topic.first_epochs.items()})
    for partition, replicas in topic.partitions.items():
        if len(set(replicas)) < len(replicas):
            raise msgspec.ValidationError(f"partition {partition} names a broker twice")
    return topic


def decode_broker_epoch(data: bytes) -> BrokerEpoch:
    """Decode a broker's persistent node; an empty node names no directories."""
    if not data:
        return BrokerEpoch()
    epoch = decode_value(data, BrokerEpoch)
    check_range("directory epoch", epoch.directories.values(), 0, MAX_EPOCH)
    return epoch


def decode_broker(data: bytes) -> BrokerRegistration:
    """Decode a broker's ephemeral node; raises msgspec.MsgspecError if it is no registration."""
    broker = decode_value(data, BrokerRegistration)
    check_range("id", (broker.id, broker.incarnation), 0)
    check_range("port", (broker.port,), 0, 65_535)
    check_range("directory epoch", (broker.directory_epoch,), 0, MAX_EPOCH)
    return broker


def decode_controller(data: bytes) -> ControllerRegistration:
    """Decode the controller's ephemeral node; raises msgspec.MsgspecError if it is none."""
    controller = decode_value(data, ControllerRegistration)
    check_range("id", (controller.id,), 0)
    return controller


def encode_configs(configs: Mapping[str, str]) -> bytes:
    """Encode dynamic settings of a topic, a broker or the cluster."""
    return pack_value({"configs": dict(configs)}, None)


def replace_configs(data: bytes, configs: Mapping[str, str]) -> bytes:
    """Encode dynamic settings, and keep the other fields of `data`."""
    try:
        members = unpack_value(data)
    except msgspec.MsgspecError:  # an unreadable value is not worth keeping
        return encode_configs(configs)
    return pack_value({"configs": dict(configs)}, members)


def decode_configs(data: bytes) -> dict[str, str]:
    """Decode dynamic settings; an empty node has none. Raises msgspec.MsgspecError."""
    if not data:
        return {}
    configs = unpack_value(data).get("configs", {})
    if not isinstance(configs, dict):
        raise msgspec.ValidationError("configs must be a JSON object")
    return {name: str(value) for name, value in configs.items()}


def encode_audit(entry: AuditEntry) -> bytes:
    """Encode an audit entry; never raises, because an entry may quote anything from a request."""
    try:
        return msgspec.json.encode(entry)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return msgspec.json.encode(encodable(entry))


_AUDIT: Final = msgspec.json.Decoder(AuditEntry)


def decode_audit(data: bytes) -> AuditEntry:
    """Decode an audit entry; raises msgspec.MsgspecError if it is no entry."""
    entry = decode_typed(data, _AUDIT, lambda one: [one.resource, one.before, one.after])
    check_range("time", (entry.time,), 0, MAX_TIME)
    check_range("partition", (one.partition for one in entry.changes), 0, MAX_NODE_PARTITION)
    check_range("version", (one.state_version for one in entry.changes), -1)
    return entry

"""Which nodes a restored cluster begins with. Pure: no IO.

Most nodes are those of the backup. These differ:

- topics and partitions follow from the backup and the brokers' logs (`restored_topics`);
- epochs, generations, incarnations and producer ids are higher than any that services or clients
  may have seen since, because everything that is fenced by them goes by the highest (rule R1);
- versions of log directories are left out, because the logs as they are now decide (rule R17);
- registrations, members, owners, and everything that was ordered and not done is left out: it may
  have been done since, and a deletion that is repeated destroys what was written later.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, TypeVar

import msgspec

from leadline_broker.adapters.log.survey import LogSurvey
from leadline_broker.adapters.producer_id_nodes import encode_block, next_producer_id
from leadline_cli.backup.archive import Node
from leadline_cli.backup.recovery import NotRecoverable, raised
from leadline_cli.backup.restored_topics import (
    BackedUpTopic,
    RestoredTopic,
    SurveyedBrokers,
    TopicRecovery,
)
from leadline_common import consumer_znodes, znodes
from leadline_common.znode_json import decode_json, node_number

PRODUCER_ID_MARGIN: Final = 1_000_000
"""More producer ids than can have been allocated since the backup without leaving a batch."""
INCARNATION_MARGIN: Final = 1_000
"""More starts of a broker than there can have been since the backup."""
KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""The settings of a topic that the backup lacks: nobody knows what it was to keep."""

_ORDERED: Final = (
    znodes.DELETE_TOPICS,
    znodes.REASSIGN_PARTITIONS,
    znodes.PARTITIONS_REASSIGNED,
    znodes.PARTITIONS_ADD,
    znodes.PARTITIONS_REMOVE,
    znodes.PREFERRED_ELECTION,
    znodes.IDEMPOTENCY,
    znodes.AUDIT,
    znodes.AUDIT_READERS,
    znodes.FAILED_BROKERS,
    znodes.DEAD_BROKERS,
)
"""The parents of nodes that are left out, or such a node."""
_FROM_LOGS: Final = (f"{znodes.TOPICS}/", f"{znodes.BROKER_DIRECTORIES}/")
"""How the paths of nodes begin that follow from the logs."""
_OF_MEMBERS: Final = re.compile(rf"{consumer_znodes.GROUPS}/[^/]+/(ids|owners)/.+")
_GROUP: Final = re.compile(rf"{consumer_znodes.GROUPS}/[^/]+")
_STATE: Final = re.compile(rf"{znodes.TOPICS}/([^/]+)/partitions/([0-9]+)/state")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user has decided: losses to accept, by broker, and ids of topics, by name."""

    accepted_losses: frozenset[int] = frozenset()
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestoredNodes:
    """Nodes to create, parents first, without the cluster's id. Each reaches at least `version`.

    `left_out` counts what is not restored, by parent.
    """

    cluster_id: bytes
    nodes: list[Node]
    topics: Mapping[str, RestoredTopic]
    left_out: Mapping[str, int]


def restored_nodes(
    nodes: Sequence[Node], surveys: Sequence[LogSurvey], choices: Choices, now_ms: int
) -> RestoredNodes:
    """Return what to restore from a backup's nodes and the surveys of all brokers' logs.

    Raises:
        NotRecoverable: something is missing or ambiguous; the message says what to do.

    """
    have = {node.path: node for node in nodes}
    cluster_id = have[znodes.CLUSTER_ID].data
    for survey in surveys:
        if survey.cluster_id.encode() != cluster_id:
            raise NotRecoverable(
                f"the logs of broker {survey.broker_id} belong to cluster {survey.cluster_id}, "
                f"the backup to {cluster_id.decode(errors='replace')}"
            )
    brokers = SurveyedBrokers.of(surveys, _known_brokers(have), choices.accepted_losses)
    topics = TopicRecovery(brokers, choices.topic_ids).restore(_backed_up_topics(have))
    kept, left_out = _kept(nodes)
    kept |= _raised(have, surveys, now_ms)
    kept |= _of_brokers(have, surveys, brokers)
    for name, topic in topics.items():
        kept |= _of_topic(name, topic, have)
    return RestoredNodes(cluster_id, _parents_first(kept), topics, left_out)


def _kept(nodes: Sequence[Node]) -> tuple[dict[str, Node], Counter[str]]:
    """Return the nodes that stay as they are, and count those that are left out."""
    kept, left_out = {}, Counter[str]()
    for node in nodes:
        parent = next((one for one in _ORDERED if node.path.startswith(f"{one}/")), None)
        if node.path in (znodes.CLUSTER_ID, znodes.CONTROLLER, consumer_znodes.COORDINATOR):
            continue
        if parent is not None or node.path == znodes.PREFERRED_ELECTION:
            left_out[parent or node.path] += 1
        elif not node.path.startswith(_FROM_LOGS) and not _OF_MEMBERS.match(node.path):
            kept[node.path] = Node(node.path, node.data, 0)
    return kept, left_out


def _raised(have: Mapping[str, Node], surveys: Sequence[LogSurvey], now_ms: int) -> dict[str, Node]:
    """Return the nodes of elections, groups and producer ids with numbers that nobody has seen."""
    accepted = max((survey.controller_epoch for survey in surveys), default=0)
    found = {
        znodes.CONTROLLER_EPOCH: b"%d"
        % raised(max(_epoch(have, znodes.CONTROLLER_EPOCH), accepted)),
        consumer_znodes.COORDINATOR_EPOCH: b"%d"
        % raised(_epoch(have, consumer_znodes.COORDINATOR_EPOCH)),
        znodes.PRODUCER_ID_BLOCK: _next_block(have, surveys),
    }
    if consumer_znodes.CONSUMERS not in have:
        del found[consumer_znodes.COORDINATOR_EPOCH]  # No coordinator has ever run.
    for path, node in have.items():
        if _GROUP.fullmatch(path):
            group = _decoded(path, node.data, consumer_znodes.GroupNode)
            generation = raised(group.generation)
            group = msgspec.structs.replace(group, generation=generation, empty_since=now_ms)
            found[path] = consumer_znodes.encode(group)
    return {path: Node(path, data, 0) for path, data in found.items()}


def _epoch(have: Mapping[str, Node], path: str) -> int:
    """Return the epoch in a node, which is at least the node's version (`election_epochs`)."""
    node = have.get(path, Node(path, b"0", 0))
    return max(node_number(node.data.decode(errors="replace").strip()) or 0, node.version)


def _next_block(have: Mapping[str, Node], surveys: Sequence[LogSurvey]) -> bytes:
    node = have.get(znodes.PRODUCER_ID_BLOCK, Node(znodes.PRODUCER_ID_BLOCK, b"", 0))
    following = next_producer_id(node.data, node.version, 1)
    used = max((survey.producer_number for survey in surveys), default=0)
    return encode_block(max(following, used + 1) + PRODUCER_ID_MARGIN)


def _known_brokers(have: Mapping[str, Node]) -> dict[int, znodes.BrokerEpoch]:
    known = {}
    for path, node in have.items():
        broker = node_number(path.rpartition("/")[2])
        if broker is not None and path == znodes.broker_epoch_path(broker):
            try:
                known[broker] = znodes.decode_broker_epoch(node.data)
            except msgspec.MsgspecError as problem:
                raise NotRecoverable(f"{path} cannot be read: {problem}") from None
    return known


def _of_brokers(
    have: Mapping[str, Node], surveys: Sequence[LogSurvey], brokers: SurveyedBrokers
) -> dict[str, Node]:
    """Return the brokers' persistent nodes, whose versions are the incarnations (rule R9)."""
    stopped = {survey.broker_id: survey.incarnation for survey in surveys}
    found = {}
    for broker, epoch in brokers.epochs.items():
        path = znodes.broker_epoch_path(broker)
        before = have[path].version if path in have else 0
        version = max(before, stopped.get(broker, 0)) + INCARNATION_MARGIN
        found[path] = Node(path, znodes.encode_value(epoch), version)
    return found


def _backed_up_topics(have: Mapping[str, Node]) -> dict[str, BackedUpTopic]:
    states: defaultdict[str, dict[int, znodes.PartitionState]] = defaultdict(dict)
    for path, node in have.items():
        if (match := _STATE.fullmatch(path)) is not None:
            try:
                states[match[1]][int(match[2])] = znodes.decode_state(node.data)
            except msgspec.MsgspecError:
                continue  # The logs tell.
    topics = {}
    for path, node in have.items():
        parent, _, name = path.rpartition("/")
        if parent == znodes.TOPICS:
            try:
                topics[name] = BackedUpTopic(znodes.decode_topic(node.data), states[name])
            except msgspec.MsgspecError as problem:
                raise NotRecoverable(f"{path} cannot be read: {problem}") from None
    return topics


def _of_topic(name: str, topic: RestoredTopic, have: Mapping[str, Node]) -> dict[str, Node]:
    found = {
        znodes.topic_path(name): znodes.encode_topic(topic.assignment),
        znodes.partitions_path(name): b"",
    }
    for number, state in topic.states.items():
        found[znodes.partition_path(name, number)] = b""
        found[znodes.state_path(name, number)] = znodes.encode_state(state)
    if topic.new:
        path = znodes.topic_config_path(name)
        before = have[path].data if path in have else b""
        found[path] = znodes.replace_configs(before or b"{}", _configs(before) | KEEP_ALL)
    return {path: Node(path, data, 0) for path, data in found.items()}


def _configs(data: bytes) -> dict[str, str]:
    try:
        return znodes.decode_configs(data)
    except msgspec.MsgspecError:
        return {}


def _decoded(path: str, data: bytes, kind: type[_Value]) -> _Value:
    try:
        value: _Value = decode_json(data, kind)
    except msgspec.MsgspecError as problem:
        raise NotRecoverable(f"{path} cannot be read: {problem}") from None
    return value


def _parents_first(nodes: Mapping[str, Node]) -> list[Node]:
    """Sort nodes, and add the parents that are missing."""
    complete = {path: Node(path, b"", 0) for path in znodes.PERSISTENT_PATHS} | dict(nodes)
    for path in nodes:
        for parent in PurePosixPath(path).parents:
            name = str(parent)
            if name != "/" and name not in complete:
                complete[name] = Node(name, b"", 0)
    return sorted(complete.values(), key=lambda node: (node.path.count("/"), node.path))

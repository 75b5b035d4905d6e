"""Reading the state nodes of partitions, each with the node of its topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from leadline_broker.adapters.isr_transaction import PartitionNodes, TopicNode
from leadline_broker.domain.state import PublishedState, TopicIdPartition
from leadline_common import znodes
from leadline_common.slices import slices
from leadline_common.unreadable import UNREADABLE
from leadline_common.zk.session import ZkSession

_TOPICS_AT_ONCE: Final = 50
"""Decoding the assignment of a hundred partitions takes up to 0.2 ms."""


async def read_partition_nodes(
    session: ZkSession, partitions: Sequence[TopicIdPartition]
) -> dict[TopicIdPartition, PartitionNodes | None]:
    """Return the nodes of each partition, None if they are gone; read each topic node once.

    Partitions with an undecodable node, which a person may have written, are omitted.
    Topics are read after states, so that the state of a deleted topic is never combined
    with a recreated topic of the same name.
    """
    topics = list(dict.fromkeys(topic for topic, _, _ in partitions))
    paths = [znodes.state_path(topic, partition) for topic, _, partition in partitions]
    read = await session.get_many(paths + [znodes.topic_path(topic) for topic in topics])
    known: dict[str, TopicNode | None] = {}
    async for topic_nodes in slices(zip(topics, read[len(paths) :], strict=True), _TOPICS_AT_ONCE):
        for topic, node in topic_nodes:
            with _skip_undecodable(znodes.topic_path(topic)):
                known[topic] = node and TopicNode(znodes.decode_topic(node[0]), node[1].version)
    found: dict[TopicIdPartition, PartitionNodes | None] = {}
    async for states in slices(zip(partitions, paths, read[: len(paths)], strict=True)):
        for partition, path, node in states:
            if partition[0] not in known:
                continue
            topic_node = known[partition[0]]
            with _skip_undecodable(path):
                found[partition] = (
                    None
                    if topic_node is None or node is None
                    else PartitionNodes(topic_node, znodes.decode_state(node[0]), node[1].version)
                )
    return found


def published_state(
    partition: TopicIdPartition, nodes: PartitionNodes | None
) -> PublishedState | None:
    """Return the state that nodes hold, None if the partition is gone."""
    if nodes is None or nodes.topic.assignment.topic_id != partition[1]:
        return None
    value = nodes.state
    return PublishedState(
        value.leader,
        value.leader_epoch,
        value.isr,
        value.eligible,
        nodes.version,
        value.directory_epochs,
    )


@contextmanager
def _skip_undecodable(path: str) -> Iterator[None]:
    try:
        yield
    except msgspec.MsgspecError as problem:
        UNREADABLE.add(path, problem)
    else:
        UNREADABLE.discard(path)

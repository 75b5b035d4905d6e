"""The rows of the controller's commands: their keys, and the codes that answer them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import islice
from typing import Final

from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.replication.partition import Partition
from leadline_common.rpc import PartitionRow, StopTopic, TopicRows
from leadline_common.slices import slices

_KEYS_AT_ONCE: Final = 10_000


async def keys_of(topics: Sequence[TopicRows]) -> Set[ReplicaKey]:
    """Return the keys of all rows."""
    found: set[ReplicaKey] = set()
    async for some in slices(
        ((topic.topic_id, row.partition) for topic in topics for row in topic.partitions),
        _KEYS_AT_ONCE,
    ):
        found.update(some)
    return found


def by_topic(topics: Sequence[TopicRows | StopTopic], codes: Iterable[int]) -> list[list[int]]:
    """Return the codes of all rows, in their order, by topic."""
    remaining = iter(codes)
    return [list(islice(remaining, len(topic.partitions))) for topic in topics]


def is_of_removed_partition(partition: Partition, row: PartitionRow) -> bool:
    """Return whether a replica has only records from before the granted partition existed."""
    if not row.first_epoch:  # There has never been another one of this number.
        return False
    state = partition.replica.state
    newest = max(state.leader_epoch, state.log.epochs.latest)
    return newest < row.first_epoch and state.log.log_end_offset > 0

"""What must hold after a run: what clients saw, what disks hold, what ZooKeeper went through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from leadline_client.errors import CorruptBatch
from leadline_client.wire import TopicPartition
from leadline_common.consumer_znodes import OffsetNode, decode, offset_path
from leadline_common.znodes import PartitionState
from tests.runtime_simulation.administration import MOST_PARTITIONS
from tests.runtime_simulation.cluster import GROUP_TOPIC, Cluster
from tests.runtime_simulation.damage import DAMAGED
from tests.runtime_simulation.member_processes import GROUP as GROUP_NAME
from tests.runtime_simulation.plan import UNREADABLE
from tests.runtime_simulation.services import BrokerService
from tests.runtime_simulation.unclean_elections import is_unclean
from tests.runtime_simulation.zookeeper_tree import Node
from tests.support.checks.history import Read
from tests.support.checks.replica_files import Replica, differences, read_replica
from tests.support.groups.log import Event

LIVENESS = "liveness"
ANOMALY = "anomaly"
REPLICAS = "replicas"
STATES = "states"
LEASES = "leases"
ADMINISTRATION = "administration"
GROUP = "group"
ERRORS = "errors"


class Violation(Exception):
    """A check failed; `kind` tells which one."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def check_everything(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    """Check a cluster that has healed and whose load has ended.

    Raises:
        Violation: something is wrong.

    """
    require(ADMINISTRATION, cluster.topics.problems)
    require(STATES, list(_broken_states(cluster)))
    reads = []
    for partition in partitions:
        replicas = _replicas(cluster, partition)
        reads += [_as_read(cluster, replica) for replica in replicas]
        ends = [replica.log_end_offset for replica in replicas]
        problems = [problem for replica in replicas for problem in replica.problems()]
        problems += differences(replicas, min(ends))
        problems += _returned(cluster, partition, replicas)
        if len(set(ends)) > 1:
            problems.append(f"I5: {partition} ends at {ends}")
        require(REPLICAS, problems)
    require(REPLICAS, cluster.log_starts.problems)
    if cluster.world.sometimes.keys().isdisjoint((DAMAGED, UNREADABLE)):
        require(
            REPLICAS, [f"{one} found damage" for one in cluster.brokers.values() if _found(one)]
        )
    for reader in cluster.readers:
        reads += reader.reads()
    for client in (*cluster.readers, *cluster.producers):
        require(ANOMALY, client.problems)
    require(ANOMALY, _anomalies(cluster, reads))
    require(LEASES, cluster.world.problems)
    require(ERRORS, [*cluster.world.failures, *map(str, cluster.world.loop.errors)])


def _found(broker: BrokerService) -> bool:
    """Tell whether a broker took anything that it had stored for damaged."""
    name = "leadline_damaged_batches_found_total"
    return any(metrics.registry.get_sample_value(name) for metrics in broker.metrics)


def check_acknowledged(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    """Check what readers saw, and what leaders have, in a cluster that has not recovered.

    A lost record often shows first as a producer or a reader that cannot go on.

    Raises:
        Violation: a record is missing, or another one is at its offset.

    """
    reads = []
    for partition in partitions:
        state = cluster.topics.state(partition)
        if state is not None and state.leader >= 0:
            leader = cluster.brokers[state.leader]
            reads.append(_as_read(cluster, _replica(leader, partition)))
    for reader in cluster.readers:
        require(ANOMALY, reader.problems)
        reads += reader.reads()
    require(ANOMALY, _anomalies(cluster, reads))


def _anomalies(cluster: Cluster, reads: list[Read]) -> list[str]:
    """Say what is wrong with what clients saw, but for what unclean elections may lose."""
    if cluster.unclean is not None:
        cluster.unclean.forgive(cluster.history, cluster.producers)
    return [str(anomaly) for anomaly in cluster.history.check(reads)]


def _returned(
    cluster: Cluster, partition: TopicPartition, replicas: Sequence[Replica]
) -> list[str]:
    """Say which records that an unclean election has lost are there again."""
    if cluster.unclean is None:
        return []
    name = cluster.topics.name_now(partition)
    return [what for replica in replicas for what in cluster.unclean.returned(name, replica)]


def require(kind: str, problems: list[str]) -> None:
    """Raise the Violation of some problems, if there are any."""
    if problems:
        raise Violation(kind, "; ".join(problems[:3]))


def _as_read(cluster: Cluster, replica: Replica) -> Read:
    """Return what a replica's files hold, as records of the partition that is there now."""
    name = cluster.topics.name_now(TopicPartition(replica.topic, replica.partition))
    place, log_start = (name, replica.partition), replica.log_start_offset
    return replace(replica.as_read(), partition=place, log_start=log_start)


def _replicas(cluster: Cluster, partition: TopicPartition) -> list[Replica]:
    numbers = cluster.topics.replicas(partition)
    return [_replica(cluster.brokers[number], partition) for number in numbers]


def _replica(broker: BrokerService, partition: TopicPartition) -> Replica:
    try:
        return read_replica(broker.name, broker.disk.root, *partition)
    except CorruptBatch as problem:
        raise Violation(REPLICAS, str(problem)) from None


def _broken_states(cluster: Cluster) -> Iterator[str]:
    """Yield what is wrong with the states of each partition that ever was.

    They are looked at by incarnations of its topic.
    """
    for topic in cluster.topics.ever:
        for number in range(MOST_PARTITIONS):
            partition = TopicPartition(topic, number)
            asked = cluster.unclean is not None and partition in cluster.unclean.asked
            for states in cluster.topics.states_ever(partition):
                yield from _broken(states, may_be_unclean=asked)


def moved_back(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[str]:
    """Say where an offset of the group was lower than one that was committed before (R16).

    Operators may have asked for that.
    """
    found = []
    asked_for = (
        {(one.path, one.zxid) for one in cluster.members.set_back} if cluster.members else set()
    )
    for one in partitions:
        path = offset_path(GROUP_NAME, *one)
        before: tuple[str, int] | None = None
        for zxid, node in cluster.zookeeper.tree.history(path):
            before = None if (path, zxid) in asked_for else before
            if node is None:
                continue
            after = _name_and_offset(cluster, one, node)
            if before and after[0] == before[0] and after[1] < before[1]:
                moved = f"from {before[1]} to {after[1]}"
                found.append(f"R16: the offset of {one.topic}-{one.partition} moved back {moved}")
            before = after
    return found


def _name_and_offset(cluster: Cluster, partition: TopicPartition, node: Node) -> tuple[str, int]:
    """Return of which incarnation a committed offset is, and the offset.

    One without an epoch counts for the incarnation that there was when it was written.
    """
    known = decode(node.data, OffsetNode)
    if known.leader_epoch is not None:
        name = cluster.topics.name_at(partition, known.topic_id, known.leader_epoch)
    else:
        name = cluster.topics.name_when(partition, known.topic_id, node.mzxid)
    return name, known.offset


def committed(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[tuple[str, int], int]:
    """Return the group's offsets as they are stored, by incarnations of the topic.

    A member that was killed may not have heard of its last commit.
    """
    found = {}
    for one in partitions:
        node = cluster.zookeeper.tree.now(offset_path(GROUP_NAME, *one))
        if node is not None:
            name, offset = _name_and_offset(cluster, one, node)
            found[name, one.partition] = offset
    return found


def of_other_topics(cluster: Cluster, events: Iterable[Event]) -> list[str]:
    """Say which committed offsets name more of a topic than members have consumed of it.

    So they were those of an earlier topic of its name (R1). Where retention has removed what comes
    next, a member goes on at the log start, and may commit that.
    """
    consumed: dict[tuple[str, int], int] = {}
    for event in events:
        for name, number, _, after in event.rows if event.kind == "consumed" else ():
            consumed[name, number] = max(after, consumed.get((name, number), 0))
    found = []
    for number in range(MOST_PARTITIONS):
        path, one = (
            offset_path(GROUP_NAME, GROUP_TOPIC, number),
            TopicPartition(GROUP_TOPIC, number),
        )
        for _, node in cluster.zookeeper.tree.history(path):
            if node is None:
                continue
            name, offset = _name_and_offset(cluster, one, node)
            most = max(consumed.get((name, number), 0), cluster.log_starts.highest(name, number))
            if offset > most:
                found.append(f"R1: committed {offset} of {name}-{number}, consumed {most}")
    return found


def _broken(states: Sequence[PartitionState], *, may_be_unclean: bool) -> list[str]:
    """Say where the history of a state node breaks the rules of elections (I6, I11)."""
    found = []
    for before, after in pairwise(states):
        if after.leader_epoch < before.leader_epoch:
            found.append(f"I6: epoch {after.leader_epoch} after {before.leader_epoch}")
        same = after.leader_epoch == before.leader_epoch
        if same and after.leader != before.leader:
            found.append(f"I6: {before.leader} and {after.leader} lead epoch {after.leader_epoch}")
        if is_unclean(before, after) and not may_be_unclean:
            found.append(f"I6: unclean election: {after} after {before}")
    found += [
        f"I11: leader {state.leader} is not in the ISR {state.isr}"
        for state in states
        if state.leader >= 0 and state.leader not in state.isr
    ]
    return found

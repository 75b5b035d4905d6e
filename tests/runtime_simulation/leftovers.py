"""What requests of operators have left over, and where brokers differ from ZooKeeper.

All of it passes by itself once a cluster has healed: an empty answer is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.layout import read_identity
from leadline_broker.adapters.log.set_aside import STRAY_SUFFIX
from leadline_client.errors import BrokerFenced
from leadline_common import znodes
from leadline_common.tasks import decode_task
from tests.runtime_simulation.cluster import Cluster
from tests.runtime_simulation.services import BrokerService
from tests.runtime_simulation.topics import Topics
from tests.runtime_simulation.zookeeper_tree import Tree

_INTENTS = (znodes.PARTITIONS_ADD, znodes.PARTITIONS_REMOVE, znodes.PARTITIONS_REASSIGNED)
_REPLICA = re.compile(r".+-\d+(\..+-(stray|delete))?")
STRAY = "a replica of a deleted topic was set aside"
Replica = tuple[str, str, int]
"""Topic, topic id and partition."""


def leftovers(cluster: Cluster) -> list[str]:
    """Say what is left over: znodes, replicas, directories, and metadata that differ."""
    tree = cluster.zookeeper.tree
    found = [*_nodes(tree), *_topics(tree, cluster.topics), *_failures(cluster)]
    for broker in cluster.brokers.values():
        if broker.gone:
            continue
        expected = _replicas_of(broker.number, cluster.topics)
        found += _served(broker, cluster.topics, expected)
        left = _directories(broker.disk.root, broker.name, expected)
        # A stray of a time that is still to come stays until then, as documented.
        set_wrong = cluster.system.clocks_were_set
        found += [what for what, is_stray in left if not (is_stray and set_wrong)]
    return found


def count_strays(cluster: Cluster) -> None:
    """Count the replicas that brokers have set aside: a topic was deleted while they were away."""
    for broker in cluster.brokers.values():
        for _ in broker.disk.root.glob(f"*{STRAY_SUFFIX}"):
            cluster.world.reached(STRAY)


def _replicas_of(broker: int, topics: Topics) -> set[Replica]:
    """Return the replicas that ZooKeeper assigns to a broker."""
    return {
        (name, topic.topic_id, number)
        for name in topics.ever
        if (topic := topics.assignment(name)) is not None
        for number, replicas in topic.partitions.items()
        if broker in replicas
    }


def _nodes(tree: Tree) -> Iterator[str]:
    """Yield nodes of requests that are not over."""
    for name in _children(tree, znodes.DELETE_TOPICS):
        yield f"the tombstone of {name}"
    for root in _INTENTS:
        for topic in _children(tree, root):
            for number in _children(tree, f"{root}/{topic}"):
                yield f"{root}/{topic}/{number}"
    for name in _children(tree, znodes.REASSIGN_PARTITIONS):
        node = tree.now(f"{znodes.REASSIGN_PARTITIONS}/{name}")
        if node is not None and not decode_task(node.data).state.is_over:
            yield f"task {name}"


def _failures(cluster: Cluster) -> Iterator[str]:
    """Yield what is recorded of brokers that have not failed, or is still to be done."""
    tree, gone = cluster.zookeeper.tree, cluster.gone()
    for root in (znodes.FAILED_BROKERS, znodes.DEAD_BROKERS):
        for name in _children(tree, root):
            if root == znodes.FAILED_BROKERS or gone is None or int(name) != gone.number:
                yield f"{root}/{name}"
    for partition in cluster.topics.partitions() if gone is not None else ():
        replicas = cluster.topics.replicas(partition)
        if gone is not None and (gone.number in replicas or len(replicas) < 2):
            yield f"{partition} is not healed: {replicas}"


def _topics(tree: Tree, topics: Topics) -> Iterator[str]:
    """Yield topics that are missing, being reassigned, or have nodes of other partitions."""
    for name in topics.ever:
        topic = topics.assignment(name)
        if topic is None:
            yield f"no topic {name}"
            continue
        if topic.adding or topic.removing:
            yield f"{name} is being reassigned: {topic}"
        states = set(_children(tree, znodes.partitions_path(name)))
        if states != set(map(str, topic.partitions)):
            yield f"{name} has partitions {sorted(topic.partitions)} but nodes {sorted(states)}"


def _children(tree: Tree, path: str) -> tuple[str, ...]:
    node = tree.now(path)
    return () if node is None else node.children


def _served(broker: BrokerService, topics: Topics, expected: set[Replica]) -> Iterator[str]:
    """Yield where a broker's replicas and metadata are not those of ZooKeeper."""
    try:
        assert broker.broker is not None
        engine = broker.broker.engine
    except BrokerFenced:
        yield f"{broker.name} has not started"
        return
    metadata = engine.serving.metadata
    actual = {(one.topic, *one.key) for one in engine.replicas.all()}
    if actual != expected:
        yield f"{broker.name} has replicas {sorted(actual ^ expected)} that differ from ZooKeeper's"
    for one in engine.replicas.all():
        if dict(one.settings.configs or ()) != topics.configs(one.topic):
            yield f"{broker.name} has {one.settings.configs} of {one.topic}"
    for partition in topics.partitions():
        row, state = metadata.partition(*partition), topics.state(partition)
        if row is None or state is None:
            yield f"{broker.name} does not know {partition}"
        elif (row.leader, row.leader_epoch) != (state.leader, state.leader_epoch):
            yield f"{broker.name} has {row} of {partition}, not {state}"
        elif tuple(row.replicas) != topics.replicas(partition):
            yield f"{broker.name} has replicas {row.replicas} of {partition}"
        if metadata.topic_id(partition.topic) != topics.id_of(partition.topic):
            yield f"{broker.name} knows another topic {partition.topic}"


def _directories(root: Path, broker: str, expected: set[Replica]) -> Iterator[tuple[str, bool]]:
    """Yield directories on a broker's disk that no assigned replica has, and which are strays.

    Strays pass in time.
    """
    wanted = {f"{topic}-{number}": topic_id for topic, topic_id, number in expected}
    for path in sorted(root.iterdir()):
        if not path.is_dir() or not _REPLICA.fullmatch(path.name):
            continue
        try:
            topic_id = read_identity(path).topic_id
        except CorruptFile:
            topic_id = ""
        if wanted.get(path.name) != topic_id:
            is_stray = path.name.endswith(STRAY_SUFFIX)
            yield f"{broker} has {path.name} of topic {topic_id}", is_stray

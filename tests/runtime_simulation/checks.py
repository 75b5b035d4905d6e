"""What must hold after a run: what clients saw, what disks hold, what ZooKeeper went through."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from leadline_client.errors import CorruptBatch
from leadline_common import znodes
from tests.runtime_simulation.cluster import TOPIC, Cluster
from tests.support.checks.replica_files import Replica, differences, read_replica

LIVENESS = "liveness"
ANOMALY = "anomaly"
REPLICAS = "replicas"
STATES = "states"
LEASES = "leases"
ERRORS = "errors"


class Violation(Exception):
    """A check failed; `kind` tells which one."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def check_everything(cluster: Cluster, partitions: Sequence[int]) -> None:
    """Check a cluster that has healed and whose load has ended.

    Raises:
        Violation: something is wrong.

    """
    problems = [problem for number in partitions for problem in _states(cluster, number)]
    _require(STATES, problems)
    reads = []
    for number in partitions:
        replicas = _replicas(cluster, number)
        reads += [replica.as_read() for replica in replicas]
        ends = [replica.log_end_offset for replica in replicas]
        problems = [problem for replica in replicas for problem in replica.problems()]
        problems += differences(replicas, min(ends))
        if len(set(ends)) > 1:
            problems.append(f"I5: {TOPIC}-{number} ends at {ends}")
        _require(REPLICAS, problems)
    for reader in cluster.readers:
        _require(ANOMALY, reader.problems)
        reads.append(reader.as_read())
    _require(ANOMALY, [str(anomaly) for anomaly in cluster.history.check(reads)])
    _require(LEASES, cluster.world.problems)
    _require(ERRORS, [f"{error}" for error in cluster.world.loop.errors])


def _require(kind: str, problems: list[str]) -> None:
    if problems:
        raise Violation(kind, "; ".join(problems[:3]))


def _replicas(cluster: Cluster, number: int) -> list[Replica]:
    try:
        return [
            read_replica(broker.name, broker.disk.root, TOPIC, number)
            for broker in cluster.brokers.values()
        ]
    except CorruptBatch as problem:
        raise Violation(REPLICAS, str(problem)) from None


def _states(cluster: Cluster, number: int) -> list[str]:
    """Say where the history of a state node breaks the rules of elections (I6, I11)."""
    path = znodes.state_path(TOPIC, number)
    states = [
        znodes.decode_state(node.data)
        for _, node in cluster.zookeeper.tree.history(path)
        if node is not None
    ]
    found = []
    for before, after in pairwise(states):
        if after.leader_epoch < before.leader_epoch:
            found.append(f"I6: epoch {after.leader_epoch} after {before.leader_epoch}")
        same = after.leader_epoch == before.leader_epoch
        if same and after.leader != before.leader:
            found.append(f"I6: {before.leader} and {after.leader} lead epoch {after.leader_epoch}")
        elected = after.leader >= 0 and not same
        if elected and after.leader not in {*before.isr, *before.eligible}:
            found.append(f"I6: unclean election: {after} after {before}")
    found += [
        f"I11: leader {state.leader} is not in the ISR {state.isr}"
        for state in states
        if state.leader >= 0 and state.leader not in state.isr
    ]
    return found

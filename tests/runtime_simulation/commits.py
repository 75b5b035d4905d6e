"""High watermarks as they rise: enough in-sync replicas must hold what a leader commits (R4, R5).

The brokers of a run are asked at that moment, past the leader's own knowledge of its followers. So
what is acknowledged is held as min.insync.replicas demands of the leader then, also while that
changes. It is an early sign: what a rule that is taken out costs users shows elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from leadline_broker.adapters.disk import DiskLogs
from leadline_broker.domain.effects import Effect
from leadline_broker.domain.leadership import PartitionLeadership
from leadline_broker.domain.state import ReplicaState
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import BrokerFenced
from tests.runtime_simulation.cluster import Cluster
from tests.runtime_simulation.services import BrokerService

COMMITTED: Final = "a high watermark was compared with the replicas"


@contextmanager
def watched(cluster: Cluster) -> Iterator[None]:
    """Look at each high watermark that rises within the block."""
    advance = PartitionLeadership.advance_high_watermark

    def advance_and_look(leadership: PartitionLeadership) -> list[Effect]:
        before = leadership._state.high_watermark
        effects = advance(leadership)
        if leadership._state.high_watermark > before:
            _look(cluster, leadership._state)
        return effects

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionLeadership, "advance_high_watermark", advance_and_look)
        yield


def _look(cluster: Cluster, state: ReplicaState) -> None:
    """Note it if fewer members of the ISR hold what is committed than are necessary.

    Of a partition that is being removed, some members have deleted all.
    """
    if cluster.topics.is_going(state.topic_id, state.partition, state.leader_epoch):
        return
    cluster.world.sometimes[COMMITTED] += 1
    holders = [
        number
        for number in state.isr
        if number == cluster.wiped or _holds(cluster.brokers[number], state)
    ]
    if len(holders) < state.isr_floor:
        cluster.world.problems.append(
            f"R5: broker {state.broker_id} commits {state.high_watermark} of {state.topic_id}-"
            f"{state.partition}, which {holders} hold of {state.isr}; {state.isr_floor} must"
        )


def _holds(broker: BrokerService, state: ReplicaState) -> bool:
    """Tell whether a broker's replica is synced up to the high watermark.

    While a broker starts, or cannot read the log, nobody knows: it is on the disk as it was.
    """
    try:
        replica = _replica(broker, state)
    except BrokerFenced:
        return True
    if replica is None and _is_unopened(broker, state):
        return True
    return replica is not None and replica.log.durable_end_offset >= state.high_watermark


def _is_unopened(broker: BrokerService, state: ReplicaState) -> bool:
    if broker.broker is None:
        return False
    logs = broker.broker.engine.logs
    assert isinstance(logs, DiskLogs)
    return (state.topic_id, state.partition) in logs._directory.unopened.failures


def _replica(broker: BrokerService, state: ReplicaState) -> Partition | None:
    if broker.broker is None:
        return None
    return broker.broker.engine.replicas.find((state.topic_id, state.partition))

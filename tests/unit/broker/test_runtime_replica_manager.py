"""The replica manager without a broker around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from leadline_broker.adapters.disk import DiskLogs
from leadline_broker.domain.replica import Role
from leadline_broker.domain.state import NO_LEADER_EPOCH
from leadline_broker.runtime.replication.fetcher_manager import ReplicaFetcherManager
from leadline_broker.runtime.replication.fetchers import FetchContext
from leadline_broker.runtime.replication.partition import NOT_APPLIED, Partition
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_common.rpc import NO_ERROR
from leadline_common.settings import BrokerSettings
from tests.unit.broker.replicas import row
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[ReplicaManager]:
    logs = DiskLogs(BrokerSettings(broker_id=1, log_dir=str(tmp_path)), "cluster")
    fetchers = ReplicaFetcherManager(cast("FetchContext", None))
    yield ReplicaManager(1, logs, fetchers, execute=lambda *_: None)
    logs.close(1)


@pytest.fixture
def leading(replicas: ReplicaManager, tmp_path: Path) -> Partition:
    """Partition 0, which this broker leads in epoch 5."""
    settings = BrokerSettings(broker_id=1, log_dir=str(tmp_path))
    partition = replicas.create(TOPIC, TOPIC_ID, 0, TopicSettings(settings).of({}))
    code, _ = partition.replica.on_leader_and_isr(row(1, 5), 0)
    assert code == NO_ERROR
    replicas.applied(partition)
    return partition


def test_a_replica_can_be_deleted_while_nobody_listens(
    replicas: ReplicaManager, leading: Partition
) -> None:
    replicas.delete(leading)()

    assert replicas.all() == []


def test_heartbeats_report_no_role_of_a_fenced_replica(
    replicas: ReplicaManager, leading: Partition
) -> None:
    """The controller grants again what is not reported as applied (rule R8)."""
    assert (leading.applied_epoch, replicas.applied_count) == (5, 1)

    replicas.fence(leading)

    assert (leading.applied_epoch, replicas.applied_count, replicas.digest) == (NOT_APPLIED, 0, 0)


def test_after_a_lost_session_every_replica_starts_again(
    replicas: ReplicaManager, leading: Partition
) -> None:
    """What was asked for in the name of the earlier incarnation is told apart by it (rule R9)."""
    before = leading.replica

    replicas.fence_all()

    assert leading.replica is not before
    assert leading.replica.role is Role.FENCED
    assert leading.replica.state.leader_epoch == NO_LEADER_EPOCH

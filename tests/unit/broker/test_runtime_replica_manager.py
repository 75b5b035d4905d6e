"""The replica manager without a broker around it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from leadline_broker.adapters.disk import DiskLogs
from leadline_broker.runtime.replication.fetchers import FetchContext, ReplicaFetcherManager
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_common.settings import BrokerSettings
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID


def test_a_replica_can_be_deleted_while_nobody_listens(tmp_path: Path) -> None:
    settings = BrokerSettings(broker_id=1, log_dir=str(tmp_path))
    logs = DiskLogs(settings, "cluster")
    fetchers = ReplicaFetcherManager(cast("FetchContext", None))
    replicas = ReplicaManager(1, logs, fetchers, execute=lambda *_: None)
    partition = replicas.create(TOPIC, TOPIC_ID, 0, TopicSettings(settings).of({}))

    replicas.delete(partition)()

    assert replicas.all() == []
    logs.close(1)

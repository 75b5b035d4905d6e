"""One ZooKeeper for the clusters of all scenarios: each start of a server costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.faults.scenario import sharing_zookeeper


@pytest.fixture(scope="session", autouse=True)
def shared_zookeeper(zookeeper: EmbeddedZooKeeper) -> Iterator[None]:
    """Let scenarios use the run's ZooKeeper."""
    with sharing_zookeeper(zookeeper.hosts):
        yield

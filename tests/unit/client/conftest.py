"""Stand-in brokers for client tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.client.standin import StandInCluster


@pytest.fixture
def cluster() -> Iterator[StandInCluster]:
    with StandInCluster(brokers=3, partitions=3).running() as running:
        yield running

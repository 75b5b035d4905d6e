"""One cluster for all contract tests, which leave it as it was."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.services.cluster import CALM, Cluster


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Three brokers, two controllers and a coordinator."""
    directory = tmp_path_factory.mktemp("cluster")
    async with Cluster(directory, controllers=2, coordinators=1, settings=CALM) as running:
        yield running

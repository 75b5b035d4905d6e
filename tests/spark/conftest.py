"""One Spark session and one live cluster for all tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from leadline_spark import register
from tests.spark.live import Live, live_cluster
from tests.spark.sessions import local_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in this process: two threads, no web page, nothing beyond 127.0.0.1."""
    session = local_session(tmp_path_factory.mktemp("spark"))
    register(session)
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Three brokers and a controller. Whoever kills one of them brings it back."""
    with live_cluster(tmp_path_factory.mktemp("cluster"), brokers=3, coordinators=1) as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for a topic of this test's own; nobody has made it yet."""
    name: str = request.node.name
    return "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in name)

"""The session and the cluster that the tests of this directory stand on."""

from __future__ import annotations

from pyspark.sql import SparkSession

from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from tests.spark.live import Live


def test_a_session_computes(spark: SparkSession) -> None:
    assert spark.range(3).count() == 3


def test_the_connector_finds_the_leaders(live: Live, topic: str) -> None:
    live.topic(topic, partitions=2)

    found = ClusterClient(Connection((live.bootstrap.split(",")[0],))).metadata([topic])

    assert set(found.topics) == {topic}
    assert {found.brokers[row.leader].url for row in found.topics[topic].partitions} <= set(
        live.bootstrap.split(",")
    )

"""Clusters and brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request
from starlette.responses import Response

from leadline_broker.api.v3.layer import PREFIX
from leadline_broker.api.v3.links import Links, base_of
from leadline_broker.api.v3.lookup import find_broker
from leadline_broker.api.v3.models.cluster import (
    KafkaBroker,
    KafkaBrokerList,
    KafkaCluster,
    KafkaClusterList,
)
from leadline_broker.api.v3.models.envelope import ListMetadata
from leadline_broker.api.v3.models.topics import KafkaReplica, KafkaReplicaList
from leadline_broker.api.v3.partitions import replica_of
from leadline_broker.api.v3.routes import (
    READ,
    BrokerId,
    ClusterView,
    InCluster,
    V3Context,
    V3Route,
    documented,
    errors_of,
    list_response,
    v3_router,
)
from leadline_client.errors import NoController
from leadline_client.wire import BrokerInfo
from leadline_common.access.caller import current_caller
from leadline_common.http.router import ServiceRouter

CLUSTERS_TAG: Final = "v3 clusters"
BROKERS_TAG: Final = "v3 brokers"
clusters = ServiceRouter(prefix=PREFIX, tags=[CLUSTERS_TAG], route_class=V3Route)
cluster_router = v3_router(CLUSTERS_TAG)
brokers = v3_router(BROKERS_TAG)


@clusters.get("/clusters", **documented("v3_list_clusters", "List the cluster", errors_of(400)))
async def list_clusters(request: Request) -> KafkaClusterList:
    """Return a list of the cluster that this broker belongs to."""
    context: V3Context = request.app.state.v3
    base, cluster_id = base_of(request, context.advertised_url()), context.cluster_id()
    if not cluster_id:
        raise NoController("this broker has not joined a cluster yet")
    metadata = ListMetadata(self=f"{base}/clusters", next=None)
    return KafkaClusterList(metadata=metadata, data=[cluster_of(Links(base, cluster_id))])


@cluster_router.get("", **documented("v3_read_cluster", "Get the cluster", READ))
async def read_cluster(cluster: InCluster) -> KafkaCluster:
    """Return the cluster with links to what it has."""
    return cluster_of(cluster.links)


@brokers.get(
    "/brokers",
    response_model=KafkaBrokerList,
    **documented("v3_list_brokers", "List the brokers", READ),
)
async def list_brokers(cluster: InCluster) -> Response:
    """Return the live brokers, by id."""
    known = cluster.metadata.brokers
    items = (broker_of(cluster.links, known[number]) for number in sorted(known))
    return await list_response("KafkaBrokerList", cluster.links.listed("brokers"), items)


@brokers.get("/brokers/{broker_id}", **documented("v3_read_broker", "Get a broker", READ))
async def read_broker(cluster: InCluster, broker_id: BrokerId) -> KafkaBroker:
    """Return a live broker."""
    return broker_of(cluster.links, find_broker(cluster, broker_id))


@brokers.get(
    "/brokers/{broker_id}/partition-replicas",
    response_model=KafkaReplicaList,
    **documented("v3_list_broker_replicas", "List the replicas on a broker", READ),
)
async def list_broker_replicas(cluster: InCluster, broker_id: BrokerId) -> Response:
    """Return the replicas that are assigned to a broker, by topic and partition."""
    find_broker(cluster, broker_id)
    own = cluster.links.listed("brokers", broker_id, "partition-replicas")
    return await list_response("KafkaReplicaList", own, _replicas_on(cluster, broker_id))


def _replicas_on(cluster: ClusterView, broker_id: int) -> Iterator[KafkaReplica]:
    """Find the rows at once, and show each when it is asked for: very many are sent in turns."""
    metadata = cluster.metadata
    shown = current_caller().access.visible("topic", sorted(metadata.topic_names()))
    rows = (
        (topic, metadata.partition(topic, number))
        for topic in shown
        for number in metadata.partition_numbers(topic)
    )
    found = [(topic, row) for topic, row in rows if row is not None and broker_id in row.replicas]
    return (replica_of(cluster.links, topic, row, broker_id) for topic, row in found)


def cluster_of(links: Links) -> KafkaCluster:
    """Return a cluster as the API shows it."""
    return KafkaCluster(
        metadata=links.resource(()),
        cluster_id=links.cluster_id,
        acls=links.related("acls"),
        brokers=links.related("brokers"),
        broker_configs=links.related("broker-configs"),
        consumer_groups=links.related("consumer-groups"),
        topics=links.related("topics"),
        partition_reassignments=links.related("topics", "-", "partitions", "-", "reassignment"),
    )


def broker_of(links: Links, broker: BrokerInfo) -> KafkaBroker:
    """Return a broker as the API shows it."""
    url = urlsplit(broker.url)
    return KafkaBroker(
        metadata=links.resource(("brokers", broker.id), f"broker={broker.id}"),
        cluster_id=links.cluster_id,
        broker_id=broker.id,
        host=url.hostname,
        port=url.port or {"http": 80, "https": 443}.get(url.scheme),
        rack=broker.rack,
        configs=links.related("brokers", broker.id, "configs"),
        partition_replicas=links.related("brokers", broker.id, "partition-replicas"),
    )

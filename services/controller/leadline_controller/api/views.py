"""API models of the image: cluster, brokers, topics, partitions and elections."""

from __future__ import annotations

from leadline_client.wire import NO_LEADER
from leadline_common.api import models
from leadline_common.rpc import ControllerRow
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, PartitionImage, TopicImage
from leadline_controller.domain.failover import StateDecision, possible_loss
from leadline_controller.domain.memberships import misplaced_members, misplaced_on
from leadline_controller.domain.stats import (
    count_unhealthy,
    is_offline,
    is_under_replicated,
    leader_and_replica_counts,
)


def controller_view(row: ControllerRow | None) -> models.ControllerBody | None:
    """Return the model of the active controller."""
    if row is None:
        return None
    return models.ControllerBody(id=row.id, url=row.url, epoch=row.epoch)


def cluster_view(
    image: ClusterImage, cluster_id: str, controller: ControllerRow | None
) -> models.ClusterBody:
    """Return the statistics of the cluster."""
    offline, under, _ = count_unhealthy(image)
    shown = [topic for topic in image.topics.values() if not topic.deleting]
    return models.ClusterBody(
        cluster_id=cluster_id,
        version=image.version,
        controller=controller_view(controller),
        brokers=len(image.brokers),
        topics=len(shown),
        partitions=sum(len(topic.active_partitions) for topic in shown),
        offline_partitions=offline,
        under_replicated_partitions=under,
    )


def broker_views(image: ClusterImage, brokers: list[BrokerRegistration]) -> list[models.BrokerBody]:
    """Return the models of live brokers."""
    misplaced = misplaced_on(image, image.brokers, (broker.id for broker in brokers))
    counts = leader_and_replica_counts(image, (broker.id for broker in brokers))
    return [
        models.BrokerBody(
            id=broker.id,
            url=broker.url,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            incarnation=broker.incarnation,
            leaders=counts[broker.id][0],
            replicas=counts[broker.id][1],
            directory_id=broker.directory_id,
            directory_epoch=broker.directory_epoch,
            misplaced=len(misplaced.get(broker.id, ())),
            release=broker.release,
            oldest_protocol=broker.oldest_protocol,
            newest_protocol=broker.newest_protocol,
        )
        for broker in brokers
    ]


def topic_summary(topic: TopicImage) -> models.TopicSummary:
    """Return the statistics of a topic."""
    partitions = topic.active_partitions.values()
    return models.TopicSummary(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=len(partitions),
        replication_factor=max((len(p.replicas) for p in partitions), default=0),
        offline_partitions=sum(map(is_offline, partitions)),
        under_replicated_partitions=sum(map(is_under_replicated, partitions)),
    )


def topic_view(image: ClusterImage, topic: TopicImage) -> models.TopicBody:
    """Return the model of a topic with its partitions."""
    return models.TopicBody(
        name=topic.name,
        topic_id=topic.topic_id,
        configs=topic.configs,
        partitions=partition_views(image, topic),
    )


def partition_views(image: ClusterImage, topic: TopicImage) -> list[models.PartitionBody]:
    """Return the models of a topic's partitions."""
    return [
        _partition(image, topic, number, partition)
        for number, partition in topic.active_partitions.items()
    ]


def _partition(
    image: ClusterImage, topic: TopicImage, number: int, partition: PartitionImage
) -> models.PartitionBody:
    state = partition.state
    return models.PartitionBody(
        partition=number,
        leader=state.leader if state else NO_LEADER,
        leader_epoch=state.leader_epoch if state else -1,
        isr=list(state.isr) if state else [],
        replicas=list(partition.replicas),
        eligible=list(state.eligible) if state else [],
        misplaced=sorted(misplaced_members(image.brokers, topic, number, state)),
    )


def elected_view(decision: StateDecision) -> models.ElectedPartition:
    """Return the model of a partition whose leader was elected."""
    before, after = decision.before, decision.after
    return models.ElectedPartition(
        topic=decision.topic,
        partition=decision.partition,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        previous_leader=before.leader if before else NO_LEADER,
        previous_isr=list(before.isr) if before else [],
        reason=decision.reason,
        may_lose=list(possible_loss(decision)),
    )

"""API models of the image: cluster, brokers, topics, partitions and elections."""

from __future__ import annotations

from typing import Final

from leadline_client.wire import NO_LEADER
from leadline_common.api import models
from leadline_common.rpc import ControllerRow
from leadline_common.slices import in_turns, parts, slices
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, PartitionImage, TopicImage
from leadline_controller.domain.failover import StateDecision, possible_loss
from leadline_controller.domain.memberships import Brokers, misplaced_members
from leadline_controller.domain.stats import (
    BrokerCounts,
    broker_counts,
    count_unhealthy,
    is_offline,
    is_under_replicated,
)

COUNTED_AT_ONCE: Final = 5_000
"""How many replicas of a broker are counted in one turn of the loop."""


def controller_view(row: ControllerRow | None) -> models.ControllerBody | None:
    """Return the model of the active controller."""
    if row is None:
        return None
    return models.ControllerBody(id=row.id, url=row.url, epoch=row.epoch)


async def cluster_view(
    image: ClusterImage, cluster_id: str, controller: ControllerRow | None
) -> models.ClusterBody:
    """Return the statistics of the cluster, counted in turns of the loop."""
    offline = under = 0
    async for names in in_turns(image.topic_parts()):
        found = count_unhealthy(image, names)
        offline, under = offline + found.offline, under + found.under_replicated
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


async def broker_view(image: ClusterImage, broker: BrokerRegistration) -> models.BrokerBody:
    """Return the model of a live broker; its partitions are counted in turns of the loop."""
    counts = BrokerCounts()
    hosted = list(image.hosted_by(broker.id).items())
    async for some in in_turns(parts(hosted, lambda one: len(one[1]), COUNTED_AT_ONCE)):
        counts = counts.plus(broker_counts(image, broker, dict(some)))
    return broker_body(broker, counts)


def broker_body(broker: BrokerRegistration, counts: BrokerCounts) -> models.BrokerBody:
    """Return the model of a live broker with these counts."""
    return models.BrokerBody(
        id=broker.id,
        url=broker.url,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        incarnation=broker.incarnation,
        leaders=counts.leaders,
        replicas=counts.replicas,
        directory_id=broker.directory_id,
        directory_epoch=broker.directory_epoch,
        misplaced=counts.misplaced,
        release=broker.release,
        oldest_protocol=broker.oldest_protocol,
        newest_protocol=broker.newest_protocol,
    )


async def broker_views(image: ClusterImage) -> list[models.BrokerBody]:
    """Return the models of the live brokers in order of their ids."""
    brokers = [image.brokers[broker_id] for broker_id in sorted(image.brokers)]
    return [await broker_view(image, broker) for broker in brokers]


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


async def topic_view(image: ClusterImage, topic: TopicImage) -> models.TopicBody:
    """Return the model of a topic with its partitions."""
    topic_id, configs = topic.topic_id, dict(topic.configs)
    return models.TopicBody(
        name=topic.name,
        topic_id=topic_id,
        configs=configs,
        partitions=await partition_views(image, topic),
    )


async def partition_views(image: ClusterImage, topic: TopicImage) -> list[models.PartitionBody]:
    """Return the models of a topic's partitions as they are now, some in each turn of the loop."""
    brokers, found = dict(image.brokers), list(topic.active_partitions.items())
    views: list[models.PartitionBody] = []
    async for some in slices(found):
        views += [_partition(brokers, topic, *each) for each in some]
    return views


def _partition(
    brokers: Brokers, topic: TopicImage, number: int, partition: PartitionImage
) -> models.PartitionBody:
    state = partition.state
    return models.PartitionBody(
        partition=number,
        leader=state.leader if state else NO_LEADER,
        leader_epoch=state.leader_epoch if state else -1,
        isr=list(state.isr) if state else [],
        replicas=list(partition.replicas),
        eligible=list(state.eligible) if state else [],
        misplaced=sorted(misplaced_members(brokers, topic, number, state)),
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

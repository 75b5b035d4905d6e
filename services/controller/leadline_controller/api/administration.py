"""Implementation of the administration API: cluster, topics, partitions and elections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from leadline_client.wire import NewTopic, TopicPartition
from leadline_common.access.caller import require, require_all, visible
from leadline_common.access.rights import Action
from leadline_common.api import models
from leadline_common.api.partitions import (
    AddedPartitions,
    MorePartitionsBody,
    RemovalBody,
    RemovedPartitions,
)
from leadline_common.computing import Computer
from leadline_common.settings.table import text_of
from leadline_common.slices import in_turns, parts, slices
from leadline_controller.api import views
from leadline_controller.api.audit import AuditEndpoints
from leadline_controller.api.brokers import BrokerEndpoints
from leadline_controller.api.configs import ConfigEndpoints
from leadline_controller.api.events import EventEndpoints
from leadline_controller.api.exports import ExportEndpoints
from leadline_controller.api.plans import PlanEndpoints
from leadline_controller.api.reassignments import ReassignmentEndpoints
from leadline_controller.api.tasks import TaskEndpoints
from leadline_controller.api.users import UserEndpoints
from leadline_controller.api.what_if import WhatIfEndpoints
from leadline_controller.runtime.service import ControllerService
from leadline_controller.runtime.topics.elections import ElectLeaders
from leadline_controller.runtime.topics.partition_intents import AddPartitions, RemovePartitions

_AT_ONCE: Final = 5_000
"""How many partitions are summed up in one turn of the loop."""


class ControllerAdministration(
    AuditEndpoints,
    BrokerEndpoints,
    ConfigEndpoints,
    EventEndpoints,
    ExportEndpoints,
    PlanEndpoints,
    ReassignmentEndpoints,
    TaskEndpoints,
    UserEndpoints,
    WhatIfEndpoints,
):
    """Implements `leadline_common.api.administration.Administration` for one controller.

    The base classes implement the other groups of routes, each in its own module.
    """

    def __init__(self, controller: ControllerService, computer: Computer) -> None:
        self._controller = controller
        self._computer = computer

    def this_controller(self) -> models.ThisController:
        """Return this controller and the active one."""
        return models.ThisController(
            id=self._controller.id,
            url=self._controller.url,
            active=self._controller.is_active,
            controller=views.controller_view(self._controller.active),
        )

    async def cluster(self) -> models.ClusterBody:
        """Return statistics of the cluster."""
        return await views.cluster_view(
            self._controller.image(), self._controller.cluster_id(), self._controller.active
        )

    async def brokers(self) -> models.BrokersBody:
        """Return the live brokers in order of their ids."""
        return models.BrokersBody(brokers=await views.broker_views(self._controller.image()))

    async def broker(self, broker_id: int) -> models.BrokerBody:
        """Return one live broker."""
        found = self._controller.broker(broker_id)
        return await views.broker_view(self._controller.image(), found)

    async def topics(self) -> models.TopicsBody:
        """Return all topics in order of their names, without those being deleted."""
        found = self._controller.image().topics
        names = visible("topic", None, found.keys)
        listed = sorted(found if names is None else names)
        shown = [found[name] for name in listed if not found[name].deleting]
        summaries: list[models.TopicSummary] = []
        async for some in in_turns(parts(shown, lambda t: 10 + len(t.partitions), _AT_ONCE)):
            summaries += map(views.topic_summary, some)
        return models.TopicsBody(topics=summaries)

    async def topic(self, name: str) -> models.TopicBody:
        """Return one topic."""
        return await views.topic_view(self._controller.image(), self._controller.topic(name))

    async def partitions(self, name: str) -> models.PartitionsBody:
        """Return the partitions of a topic."""
        image, topic = self._controller.image(), self._controller.topic(name)
        return models.PartitionsBody(partitions=await views.partition_views(image, topic))

    async def create_topic(self, new: models.NewTopicBody) -> models.CreatedTopic:
        """Create a topic, or with `dry_run` only validate and plan it."""
        require(Action.OPERATE, "topic", [new.name])
        topic_id, assignment = await self._controller.create_topic(
            _new_topic(new), dry_run=new.dry_run
        )
        return models.CreatedTopic(
            name=new.name,
            topic_id=topic_id or None,
            partitions=len(assignment),
            replication_factor=max(map(len, assignment.values())),
            replica_assignment={str(p): list(replicas) for p, replicas in assignment.items()},
            dry_run=new.dry_run,
        )

    async def delete_topic(self, name: str, wait_ms: int) -> models.DeletedTopic:
        """Request the deletion of a topic, and wait up to `wait_ms` for its completion."""
        topic_id, complete = await self._controller.delete_topic(name, wait_ms)
        return models.DeletedTopic(name=name, topic_id=topic_id, complete=complete)

    async def add_partitions(self, topic: str, wanted: MorePartitionsBody) -> AddedPartitions:
        """Add partitions, or with `dry_run` only plan their replicas."""
        request = AddPartitions(
            topic=topic,
            total=wanted.partitions,
            replica_assignment=_replicas(wanted.replica_assignment),
            dry_run=wanted.dry_run,
        )
        added = (
            await self._controller.ask(request)
            if wanted.dry_run
            else await self._controller.ask_until_acknowledged(topic, request)
        )
        return AddedPartitions(
            topic=topic,
            topic_id=self._controller.topic(topic).topic_id,
            partitions=wanted.partitions,
            added={str(number): list(replicas) for number, replicas in added.items()},
            dry_run=wanted.dry_run,
        )

    async def remove_partitions(
        self, topic: str, wanted: RemovalBody, wait_ms: int
    ) -> RemovedPartitions:
        """Request the removal of partitions, and wait up to `wait_ms` for its completion."""
        known = self._controller.topic(topic)
        numbers = await self._controller.ask(
            RemovePartitions(
                topic=topic, partitions=tuple(wanted.partitions), dry_run=wanted.dry_run
            )
        )

        def are_gone() -> bool:
            return known.pending_removal.isdisjoint(numbers)

        complete = not wanted.dry_run and await self._controller.wait_until(are_gone, wait_ms)
        return RemovedPartitions(
            topic=topic,
            topic_id=known.topic_id,
            partitions=list(numbers),
            complete=complete,
            dry_run=wanted.dry_run,
        )

    async def elect(self, wanted: models.ElectionBody) -> models.Elections:
        """Elect preferred or unclean leaders."""
        topic_partitions = None
        if wanted.partitions is None:
            require_all(Action.OPERATE, "topic")
        else:
            require(Action.OPERATE, "topic", {row.topic for row in wanted.partitions})
            topic_partitions = tuple(
                TopicPartition(row.topic, row.partition) for row in wanted.partitions
            )
        decisions = await self._controller.ask(
            ElectLeaders(wanted.type == "unclean", topic_partitions, dry_run=wanted.dry_run)
        )
        elected: list[models.ElectedPartition] = []
        async for some in slices(decisions):
            elected += map(views.elected_view, some)
        return models.Elections(elected=elected, dry_run=wanted.dry_run)


def _new_topic(body: models.NewTopicBody) -> NewTopic:
    return NewTopic(
        name=body.name,
        partitions=body.partitions,
        replication_factor=body.replication_factor,
        replica_assignment=_replicas(body.replica_assignment),
        configs={name: text_of(value) for name, value in body.configs.items()},
    )


def _replicas(given: Mapping[str, Sequence[int]] | None) -> dict[int, tuple[int, ...]] | None:
    return None if given is None else {int(n): tuple(brokers) for n, brokers in given.items()}

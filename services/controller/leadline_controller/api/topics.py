"""Routes about topics: list, read, create, delete; and elections."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from leadline_client.errors import (
    NoController,
    PolicyViolation,
    RequestTimedOut,
    StoreOutcomeUnknown,
    TopicDeletionPending,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import NewTopic
from leadline_common.http import error_responses
from leadline_controller.api import models, views
from leadline_controller.domain.cluster import TopicPartition
from leadline_controller.runtime.service import ControllerService

TAG = "topics"
ELECTIONS_TAG = "elections"
_DELETE_WAIT_MS = 10_000

_Responses: TypeAlias = dict[int | str, dict[str, Any]]
TopicName = Annotated[str, Path(description="The topic's name", examples=["orders"])]


def topic_routes(controller: ControllerService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1")
    _add_reads(router, controller)
    _add_create(router, controller)
    _add_delete(router, controller)
    _add_elections(router, controller)
    return router


def _add_reads(router: APIRouter, controller: ControllerService) -> None:
    @router.get(
        "/topics", tags=[TAG], summary="All topics", responses=error_responses(NoController)
    )
    async def list_topics() -> models.Topics:
        """List the topics, by name, in numbers."""
        found = controller.image().topics
        shown = [found[name] for name in sorted(found) if not found[name].deleting]
        return models.Topics(topics=[views.topic_summary(topic) for topic in shown])

    @router.get(
        "/topics/{topic}",
        tags=[TAG],
        summary="One topic",
        responses=error_responses(NoController, UnknownTopic),
    )
    async def read_topic(topic: TopicName) -> models.Topic:
        """Read a topic's id, settings and partitions."""
        return views.topic_view(controller.topic(topic))

    @router.get(
        "/topics/{topic}/partitions",
        tags=[TAG],
        summary="The partitions of a topic",
        responses=error_responses(NoController, UnknownTopic),
    )
    async def list_partitions(topic: TopicName) -> models.Partitions:
        """List leaders, ISR and replicas."""
        return models.Partitions(partitions=views.partition_views(controller.topic(topic)))


def _add_create(router: APIRouter, controller: ControllerService) -> None:
    dry: _Responses = {
        200: {"model": models.CreatedTopic, "description": "What a dry run would create"}
    }

    @router.post(
        "/topics",
        tags=[TAG],
        summary="Create a topic",
        status_code=201,
        responses=dry
        | error_responses(
            NoController,
            PolicyViolation,
            TopicDeletionPending,
            RequestTimedOut,
            StoreOutcomeUnknown,
        ),
    )
    async def create_topic(body: models.NewTopicBody, response: Response) -> models.CreatedTopic:
        """Create a topic; answers when every partition has its state and the brokers have it.

        Replicas are placed on live brokers in a rack-aware round robin, or as given.
        A dry run answers 200 with a placement, and creates nothing.
        """
        topic_id, assignment = await controller.create_topic(_new_topic(body), dry_run=body.dry_run)
        if body.dry_run:
            response.status_code = 200
        return models.CreatedTopic(
            name=body.name,
            topic_id=topic_id or None,
            partitions=len(assignment),
            replication_factor=max(map(len, assignment.values())),
            replica_assignment={str(p): list(replicas) for p, replicas in assignment.items()},
            dry_run=body.dry_run,
        )


def _new_topic(body: models.NewTopicBody) -> NewTopic:
    assignment = body.replica_assignment
    return NewTopic(
        name=body.name,
        partitions=body.partitions,
        replication_factor=body.replication_factor,
        replica_assignment=None
        if assignment is None
        else {int(number): tuple(replicas) for number, replicas in assignment.items()},
        configs={name: _text(value) for name, value in body.configs.items()},
    )


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _add_delete(router: APIRouter, controller: ControllerService) -> None:
    later: _Responses = {
        202: {"model": models.DeletedTopic, "description": "Ordered, and not complete yet"}
    }

    @router.delete(
        "/topics/{topic}",
        tags=[TAG],
        summary="Delete a topic",
        responses=later
        | error_responses(NoController, UnknownTopic, TopicDeletionPending, StoreOutcomeUnknown),
    )
    async def delete_topic(
        topic: TopicName,
        response: Response,
        wait_ms: Annotated[
            int, Query(ge=0, le=60_000, description="How long to wait for the completion")
        ] = _DELETE_WAIT_MS,
    ) -> models.DeletedTopic:
        """Delete a topic with all its records.

        The order is durable at once, and carried out whatever happens to this
        controller. 200 means that nothing of the topic is left on live brokers and in
        ZooKeeper, 202 that it is still under way.
        """
        topic_id, complete = await controller.delete_topic(topic, wait_ms)
        if not complete:
            response.status_code = 202
        return models.DeletedTopic(name=topic, topic_id=topic_id, complete=complete)


def _add_elections(router: APIRouter, controller: ControllerService) -> None:
    @router.post(
        "/elections",
        tags=[ELECTIONS_TAG],
        summary="Elect leaders",
        responses=error_responses(
            NoController, UnknownTopic, UnknownPartition, StoreOutcomeUnknown
        ),
    )
    async def elect(body: models.ElectionBody) -> models.Elections:
        """Move leadership to the preferred replicas, or give leaderless partitions a leader.

        `preferred` changes only leaders, and only to replicas in the ISR. `unclean`
        gives each partition without a leader any live replica: committed records that
        only the members of the old ISR hold may be lost, and the audit entry says so.
        """
        names = None
        if body.partitions is not None:
            names = [TopicPartition(name.topic, name.partition) for name in body.partitions]
        decisions = await controller.elect(names, unclean=body.type == "unclean")
        return models.Elections(elected=[views.elected_view(decision) for decision in decisions])

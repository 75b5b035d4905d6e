"""The routes with which operators administer a cluster, and their documentation.

Every controller serves these routes, and every broker forwards them to the active
controller, because clients may not reach a controller. Both declare them from here, so
both show the same documentation. `Administration` is what a controller implements.
"""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, Query
from fastapi.routing import APIRoute
from starlette.responses import Response

from leadline_client.errors import (
    HistoryUnavailable,
    NotFound,
    PolicyViolation,
    RequestTimedOut,
    TopicDeletionPending,
    UnknownPartition,
    UnknownTopic,
)
from leadline_common.api import (
    audit,
    brokers,
    configs,
    events,
    exports,
    failed_brokers,
    models,
    partitions,
    plans,
    reassignments,
    tasks,
    what_if,
)
from leadline_common.api.guards import document_guards
from leadline_common.api.models import example_of
from leadline_common.api.past import PastClusterBody
from leadline_common.api.routes import (
    BrokerId,
    TopicName,
    get_administration,
    read_errors,
    success_response,
    write_errors,
)
from leadline_common.http.errors import Responses
from leadline_common.settings.fields import INT64_MAX

CLUSTER_TAG = "cluster"
TOPICS_TAG = "topics"
ELECTIONS_TAG = "elections"
TAGS = (
    {"name": CLUSTER_TAG, "description": "Controllers, brokers and metadata."},
    {"name": TOPICS_TAG, "description": "Topics and their partitions."},
    {"name": ELECTIONS_TAG, "description": "Preferred and unclean leader elections."},
    *what_if.TAGS,
    *plans.TAGS,
    *reassignments.TAGS,
    *tasks.TAGS,
    *configs.TAGS,
    *events.TAGS,
    *failed_brokers.TAGS,
    *audit.TAGS,
    *exports.TAGS,
)
_DRY_RUN = models.CreatedTopic(
    name="orders",
    topic_id=None,
    partitions=2,
    replication_factor=2,
    replica_assignment={"0": [1, 2], "1": [2, 3]},
    dry_run=True,
)
_RUNNING = models.DeletedTopic(
    name="orders", topic_id="b1946ac92492d2347c6235b4d2611184", complete=False
)

_CLUSTERS: Responses = {
    200: {
        "content": {
            "application/json": {
                "examples": {
                    "now": {"value": example_of(models.ClusterBody)},
                    "then": {"value": example_of(PastClusterBody)},
                }
            }
        }
    }
}
_DELETE_WAIT = Query(
    ge=0, le=60_000, description="How long to wait for the deletion to complete, in ms"
)


class Administration(
    audit.AuditAdministration,
    brokers.BrokerAdministration,
    configs.ConfigAdministration,
    events.EventAdministration,
    exports.ExportAdministration,
    failed_brokers.HealingAdministration,
    partitions.PartitionAdministration,
    plans.PlanAdministration,
    reassignments.ReassignmentAdministration,
    tasks.TaskAdministration,
    what_if.WhatIfAdministration,
    Protocol,
):
    """What a controller implements: one method for each route, which raises its errors."""

    def this_controller(self) -> models.ThisController:
        """Return this controller and the active one."""

    def cluster(self) -> models.ClusterBody:
        """Return a summary of the cluster."""

    def brokers(self) -> models.BrokersBody:
        """Return the live brokers."""

    def broker(self, broker_id: int) -> models.BrokerBody:
        """Return one live broker."""

    def topics(self) -> models.TopicsBody:
        """Return all topics."""

    def topic(self, name: str) -> models.TopicBody:
        """Return one topic."""

    def partitions(self, name: str) -> models.PartitionsBody:
        """Return the partitions of a topic."""

    async def create_topic(self, new: models.NewTopicBody) -> models.CreatedTopic:
        """Create a topic; with `dry_run` only return its placement."""

    async def delete_topic(self, name: str, wait_ms: int) -> models.DeletedTopic:
        """Start a topic's deletion, and wait at most `wait_ms` for it to complete."""

    async def elect(self, wanted: models.ElectionBody) -> models.Elections:
        """Elect leaders."""


def administration_routes(kind: type[APIRoute] = APIRoute) -> APIRouter:
    """Return the routes; `app.state.administration` handles the requests.

    A `kind` of route may handle requests itself, as a broker does to forward them. The
    documentation stays the same.
    """
    router = APIRouter(prefix="/v1", route_class=kind)
    _add_cluster(router)
    brokers.add_routes(router, CLUSTER_TAG)
    _add_topics(router)
    _add_topic_changes(router)
    partitions.add_routes(router, TOPICS_TAG)
    _add_elections(router)
    plans.add_routes(router)
    reassignments.add_routes(router)
    audit.add_routes(router)
    exports.add_routes(router)
    tasks.add_routes(router)
    what_if.add_routes(router)
    configs.add_routes(router)
    events.add_routes(router)
    failed_brokers.add_routes(router)
    document_guards(router)
    return router


Controller = Annotated[Administration, Depends(get_administration)]


def _add_cluster(router: APIRouter) -> None:
    @router.get(
        "/controller",
        tags=[CLUSTER_TAG],
        summary="Get the active controller",
        responses=read_errors(),
    )
    async def read_controller(controller: Controller) -> models.ThisController:
        """Return the controller that answers, and the active one.

        Every controller answers this itself, active or standby. A broker forwards it to
        the active controller.
        """
        return controller.this_controller()

    @router.get(
        "/cluster",
        tags=[CLUSTER_TAG],
        summary="Get a summary of the cluster, or its past state",
        responses=_CLUSTERS | read_errors(NotFound, HistoryUnavailable),
    )
    async def read_cluster(
        controller: Controller,
        at: Annotated[
            int | None, Query(ge=0, le=INT64_MAX, description="A time in the past, in Unix ms")
        ] = None,
        version: Annotated[
            int | None, Query(ge=0, le=INT64_MAX, description="A past metadata version")
        ] = None,
    ) -> models.ClusterBody | PastClusterBody:
        """Count brokers, topics, and offline and under-replicated partitions.

        With `at` or `version`, return the cluster at that time instead: every partition
        with its leader, ISR and replicas, rebuilt from the audit.
        """
        if at is None and version is None:
            return controller.cluster()
        return await controller.past_cluster(at, version)

    @router.get(
        "/brokers",
        tags=[CLUSTER_TAG],
        summary="List the live brokers",
        responses=read_errors(),
    )
    async def list_brokers(controller: Controller) -> models.BrokersBody:
        """List the live brokers by id, with their numbers of leaders and replicas."""
        return controller.brokers()

    @router.get(
        "/brokers/{broker_id}",
        tags=[CLUSTER_TAG],
        summary="Get a live broker",
        responses=read_errors(NotFound),
    )
    async def read_broker(controller: Controller, broker_id: BrokerId) -> models.BrokerBody:
        """Return a live broker with its numbers of leaders and replicas."""
        return controller.broker(broker_id)


def _add_topics(router: APIRouter) -> None:
    @router.get("/topics", tags=[TOPICS_TAG], summary="List topics", responses=read_errors())
    async def list_topics(controller: Controller) -> models.TopicsBody:
        """List all topics by name, with a summary of each."""
        return controller.topics()

    @router.get(
        "/topics/{topic}",
        tags=[TOPICS_TAG],
        summary="Get a topic",
        responses=read_errors(UnknownTopic),
    )
    async def read_topic(controller: Controller, topic: TopicName) -> models.TopicBody:
        """Return a topic's id, settings and partitions."""
        return controller.topic(topic)

    @router.get(
        "/topics/{topic}/partitions",
        tags=[TOPICS_TAG],
        summary="List the partitions of a topic",
        responses=read_errors(UnknownTopic),
    )
    async def list_partitions(controller: Controller, topic: TopicName) -> models.PartitionsBody:
        """List the partitions of a topic with their leaders, ISRs and replicas."""
        return controller.partitions(topic)


def _add_topic_changes(router: APIRouter) -> None:
    @router.post(
        "/topics",
        tags=[TOPICS_TAG],
        summary="Create a topic",
        status_code=201,
        response_description="The topic exists, and every live broker has its metadata",
        responses=success_response(200, models.CreatedTopic, "The result of a dry run", _DRY_RUN)
        | write_errors(PolicyViolation, TopicDeletionPending, RequestTimedOut),
    )
    async def create_topic(
        controller: Controller, body: models.NewTopicBody, response: Response
    ) -> models.CreatedTopic:
        """Create a topic, and answer when all live brokers have its metadata.

        Replicas are placed on live brokers in a rack-aware round robin, or as assigned in
        the request. A dry run answers 200 with the placement, and creates nothing.
        """
        created = await controller.create_topic(body)
        if created.dry_run:
            response.status_code = 200
        return created

    @router.delete(
        "/topics/{topic}",
        tags=[TOPICS_TAG],
        summary="Delete a topic",
        response_description="The topic is deleted",
        responses=success_response(
            202, models.DeletedTopic, "The deletion is accepted, and still running", _RUNNING
        )
        | write_errors(UnknownTopic, TopicDeletionPending),
    )
    async def delete_topic(
        controller: Controller,
        topic: TopicName,
        response: Response,
        wait_ms: Annotated[int, _DELETE_WAIT] = 10_000,
    ) -> models.DeletedTopic:
        """Delete a topic with all its records.

        The deletion is durable once accepted: it completes even if this controller fails.
        200 means that live brokers and ZooKeeper hold nothing of the topic any more, and
        202 that the deletion is still running.
        """
        deleted = await controller.delete_topic(topic, wait_ms)
        if not deleted.complete:
            response.status_code = 202
        return deleted


def _add_elections(router: APIRouter) -> None:
    @router.post(
        "/elections",
        tags=[ELECTIONS_TAG],
        summary="Elect leaders",
        responses=write_errors(UnknownTopic, UnknownPartition),
    )
    async def elect(controller: Controller, body: models.ElectionBody) -> models.Elections:
        """Elect preferred leaders, or leaders of partitions that have none.

        `preferred` moves leadership to the preferred replica where it is in the ISR.
        `unclean` lets any live replica lead a partition without a leader: committed
        records that only members of the old ISR hold may be lost. The answer, also of a
        dry run, and the audit entry name those members for each partition.
        """
        return await controller.elect(body)

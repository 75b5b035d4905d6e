"""The administration of a cluster: its routes, with all that a reader of the API needs.

Declared here once, because every controller serves them and every broker passes
them on: clients know brokers, and may not reach a controller. `Administration`
is what a controller does; a broker gives a kind of route that forwards instead
(see `administration_routes`). So both show the same words, bodies and examples.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Query
from fastapi.routing import APIRoute
from starlette.responses import Response

from leadline_client.errors import (
    ConnectionLost,
    HistoryUnavailable,
    NoController,
    NotFound,
    PolicyViolation,
    RequestTimedOut,
    StoreOutcomeUnknown,
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
from leadline_common.api.past import PastCluster
from leadline_common.api.routes import BrokerId, TopicName, also, answering_administration
from leadline_common.http.errors import error_responses
from leadline_common.settings.fields import INT64_MAX

CLUSTER_TAG = "cluster"
TOPICS_TAG = "topics"
ELECTIONS_TAG = "elections"
TAGS = (
    {"name": CLUSTER_TAG, "description": "Who rules, who is live, who leads what."},
    {"name": TOPICS_TAG, "description": "Creating, reading and deleting topics."},
    {"name": ELECTIONS_TAG, "description": "Electing leaders by hand."},
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
_UNDER_WAY = models.DeletedTopic(
    name="orders", topic_id="b1946ac92492d2347c6235b4d2611184", complete=False
)

_CLUSTERS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "application/json": {
                "examples": {
                    "now": {"value": example_of(models.Cluster)},
                    "then": {"value": example_of(PastCluster)},
                }
            }
        }
    }
}
_CREATE_ERRORS = error_responses(
    NoController,
    PolicyViolation,
    TopicDeletionPending,
    RequestTimedOut,
    StoreOutcomeUnknown,
    ConnectionLost,
)
_DELETE_ERRORS = error_responses(
    NoController, UnknownTopic, TopicDeletionPending, StoreOutcomeUnknown, ConnectionLost
)
_DELETE_WAIT = Query(
    ge=0, le=60_000, description="How long to wait for the deletion to be complete, in ms"
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
    """What a controller answers; each method is one route, and raises its documented errors."""

    def this_controller(self) -> models.ThisController:
        """Tell which controller this is, and which one rules."""

    def cluster(self) -> models.Cluster:
        """Return the cluster in numbers."""

    def brokers(self) -> models.Brokers:
        """Return the live brokers."""

    def broker(self, broker_id: int) -> models.Broker:
        """Return one live broker."""

    def topics(self) -> models.Topics:
        """Return all topics."""

    def topic(self, name: str) -> models.Topic:
        """Return one topic."""

    def partitions(self, name: str) -> models.Partitions:
        """Return the partitions of a topic."""

    async def create_topic(self, new: models.NewTopicBody) -> models.CreatedTopic:
        """Create a topic, or with `dry_run` say how it would be."""

    async def delete_topic(self, name: str, wait_ms: int) -> models.DeletedTopic:
        """Order a topic's deletion, and wait for it at most `wait_ms`."""

    async def elect(self, wanted: models.ElectionBody) -> models.Elections:
        """Elect leaders."""


def administration_routes(kind: type[APIRoute] = APIRoute) -> APIRouter:
    """Return the routes; `app.state.administration` answers, unless `kind` does.

    `kind` may replace what a route does with a request, and keeps what it says.
    """
    router = APIRouter(prefix="/v1", route_class=kind)
    _add_cluster(router)
    _add_brokers(router)
    brokers.add_routes(router, CLUSTER_TAG)
    _add_topics(router)
    _add_create(router)
    _add_delete(router)
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


Answering = Annotated[Administration, Depends(answering_administration)]


def _add_cluster(router: APIRouter) -> None:
    @router.get(
        "/controller",
        tags=[CLUSTER_TAG],
        summary="Which controller is this, and which one rules?",
        responses=error_responses(NoController),
    )
    async def read_controller(answering: Answering) -> models.ThisController:
        """Answered by each controller itself, active or standby; asked of a broker, by the active.

        Never refused by a controller.
        """
        return answering.this_controller()

    @router.get(
        "/cluster",
        tags=[CLUSTER_TAG],
        summary="The cluster in numbers, or as it once was",
        responses=_CLUSTERS | error_responses(NoController, NotFound, HistoryUnavailable),
    )
    async def read_cluster(
        answering: Answering,
        at: Annotated[
            int | None, Query(ge=0, le=INT64_MAX, description="As it was then: Unix time, ms")
        ] = None,
        version: Annotated[
            int | None,
            Query(ge=0, le=INT64_MAX, description="As it was at this version of the metadata"),
        ] = None,
    ) -> models.Cluster | PastCluster:
        """Count brokers, topics, partitions, and partitions that lack something.

        With `at` or `version`, return the past instead: every partition with its leader,
        ISR and replicas, rebuilt from the audit.
        """
        if at is None and version is None:
            return answering.cluster()
        return await answering.past_cluster(at, version)


def _add_brokers(router: APIRouter) -> None:
    @router.get(
        "/brokers",
        tags=[CLUSTER_TAG],
        summary="The live brokers",
        responses=error_responses(NoController),
    )
    async def list_brokers(answering: Answering) -> models.Brokers:
        """List the live brokers, by id, with what each leads and holds."""
        return answering.brokers()

    @router.get(
        "/brokers/{broker_id}",
        tags=[CLUSTER_TAG],
        summary="One live broker",
        responses=error_responses(NoController, NotFound),
    )
    async def read_broker(answering: Answering, broker_id: BrokerId) -> models.Broker:
        """Read a live broker, with what it leads and holds."""
        return answering.broker(broker_id)


def _add_topics(router: APIRouter) -> None:
    @router.get(
        "/topics", tags=[TOPICS_TAG], summary="All topics", responses=error_responses(NoController)
    )
    async def list_topics(answering: Answering) -> models.Topics:
        """List the topics, by name, in numbers."""
        return answering.topics()

    @router.get(
        "/topics/{topic}",
        tags=[TOPICS_TAG],
        summary="One topic",
        responses=error_responses(NoController, UnknownTopic),
    )
    async def read_topic(answering: Answering, topic: TopicName) -> models.Topic:
        """Read a topic's id, settings and partitions."""
        return answering.topic(topic)

    @router.get(
        "/topics/{topic}/partitions",
        tags=[TOPICS_TAG],
        summary="The partitions of a topic",
        responses=error_responses(NoController, UnknownTopic),
    )
    async def list_partitions(answering: Answering, topic: TopicName) -> models.Partitions:
        """List leaders, ISR and replicas."""
        return answering.partitions(topic)


def _add_create(router: APIRouter) -> None:
    @router.post(
        "/topics",
        tags=[TOPICS_TAG],
        summary="Create a topic",
        status_code=201,
        response_description="Every partition has its state, and every live broker knows it",
        responses=also(200, models.CreatedTopic, "What a dry run would create", _DRY_RUN)
        | _CREATE_ERRORS,
    )
    async def create_topic(
        answering: Answering, body: models.NewTopicBody, response: Response
    ) -> models.CreatedTopic:
        """Create a topic; answers when every partition has its state and the brokers have it.

        Replicas are placed on live brokers in a rack-aware round robin, or as given.
        A dry run answers 200 with a placement, and creates nothing.
        """
        created = await answering.create_topic(body)
        if created.dry_run:
            response.status_code = 200
        return created


def _add_delete(router: APIRouter) -> None:
    @router.delete(
        "/topics/{topic}",
        tags=[TOPICS_TAG],
        summary="Delete a topic",
        response_description="Complete: nothing of the topic is left in the cluster",
        responses=also(202, models.DeletedTopic, "Ordered, and not complete yet", _UNDER_WAY)
        | _DELETE_ERRORS,
    )
    async def delete_topic(
        answering: Answering,
        topic: TopicName,
        response: Response,
        wait_ms: Annotated[int, _DELETE_WAIT] = 10_000,
    ) -> models.DeletedTopic:
        """Delete a topic with all its records.

        The order is durable at once, and carried out whatever happens to this
        controller. 200 means that nothing of the topic is left on live brokers and in
        ZooKeeper, 202 that it is still under way.
        """
        deleted = await answering.delete_topic(topic, wait_ms)
        if not deleted.complete:
            response.status_code = 202
        return deleted


def _add_elections(router: APIRouter) -> None:
    @router.post(
        "/elections",
        tags=[ELECTIONS_TAG],
        summary="Elect leaders",
        responses=error_responses(
            NoController, UnknownTopic, UnknownPartition, StoreOutcomeUnknown, ConnectionLost
        ),
    )
    async def elect(answering: Answering, body: models.ElectionBody) -> models.Elections:
        """Move leadership to the preferred replicas, or give leaderless partitions a leader.

        `preferred` changes only leaders, and only to replicas in the ISR. `unclean`
        gives each partition without a leader any live replica: committed records that
        only the members of the old ISR hold may be lost. The answer says so for each
        partition, and a dry run does beforehand; so does the audit entry.
        """
        return await answering.elect(body)

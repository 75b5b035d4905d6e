"""The routes with which operators administer a cluster, and their documentation.

Every controller serves these routes, and every broker forwards them to the active
controller, because clients may not reach a controller. Both declare them from here, so
both show the same documentation. `Administration` is what a controller implements.
"""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import Depends, Query
from fastapi.routing import APIRoute

from leadline_client.errors import (
    HistoryUnavailable,
    NotFound,
    PolicyViolation,
    QuotaExceeded,
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
    models,
    partitions,
    plans,
    reassignments,
    tasks,
    users,
    what_if,
)
from leadline_common.api.audit import PastClusterBody
from leadline_common.api.guards import document_guards
from leadline_common.api.models import changed_example, example_of
from leadline_common.api.routes import (
    BrokerId,
    OtherSuccess,
    TopicName,
    add_declared_routes,
    dry_run,
    get_administration,
    read_errors,
    route,
)
from leadline_common.http.errors import Responses
from leadline_common.http.router import ServiceRouter
from leadline_common.http.strict_route import StrictRoute
from leadline_common.settings.fields import INT64_MAX

CLUSTER_TAG = "cluster"
TOPICS_TAG = "topics"
ELECTIONS_TAG = "elections"
TAGS = (
    {"name": CLUSTER_TAG, "description": "Controllers, brokers and metadata."},
    {"name": TOPICS_TAG, "description": "Topics and their partitions."},
    {"name": ELECTIONS_TAG, "description": "Preferred and unclean leader elections."},
    {
        "name": what_if.TAG,
        "description": "Simulations of the controller's decisions, which change nothing.",
    },
    {"name": plans.TAG, "description": "Plans to balance, expand or drain the cluster."},
    {
        "name": reassignments.TAG,
        "description": "Changing replicas of partitions while they are in use.",
    },
    {"name": tasks.TAG, "description": "Long operations, which survive controller failures."},
    {"name": configs.TAG, "description": "Settings of the cluster, brokers and topics."},
    {"name": events.TAG, "description": "Changes of the cluster, as a stream."},
    {
        "name": brokers.HEALING_TAG,
        "description": "Failed brokers, and the replacement of their replicas.",
    },
    {"name": audit.TAG, "description": "The audit of all changes, and the cluster's past."},
    *exports.TAGS,
    *users.TAGS,
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
DeletionWait = Annotated[
    int, Query(ge=0, le=60_000, description="How long to wait for the deletion to complete, in ms")
]


class ClusterAdministration(Protocol):
    """What a controller answers about controllers and live brokers."""

    @route("GET /controller", "Get the active controller", name="read_controller")
    def this_controller(self) -> models.ThisController:
        """Return the controller that answers, and the active one.

        Every controller answers this itself, active or standby. A broker forwards it to
        the active controller.
        """

    async def cluster(self) -> models.ClusterBody:
        """Return a summary of the cluster."""

    @route("GET /brokers", "List the live brokers", name="list_brokers")
    async def brokers(self) -> models.BrokersBody:
        """List the live brokers by id, with their numbers of leaders and replicas."""

    @route("GET /brokers/{broker_id}", "Get a live broker", NotFound, name="read_broker")
    async def broker(self, broker_id: BrokerId) -> models.BrokerBody:
        """Return a live broker with its numbers of leaders and replicas."""


class TopicAdministration(Protocol):
    """What a controller answers about topics."""

    @route("GET /topics", "List topics", name="list_topics")
    async def topics(self) -> models.TopicsBody:
        """List all topics by name, with a summary of each."""

    @route("GET /topics/{topic}", "Get a topic", UnknownTopic, name="read_topic")
    async def topic(self, topic: TopicName) -> models.TopicBody:
        """Return a topic's id, settings and partitions."""

    @route(
        "GET /topics/{topic}/partitions",
        "List the partitions of a topic",
        UnknownTopic,
        name="list_partitions",
    )
    async def partitions(self, topic: TopicName) -> models.PartitionsBody:
        """List the partitions of a topic with their leaders, ISRs and replicas."""

    @route(
        "POST /topics",
        "Create a topic",
        PolicyViolation,
        TopicDeletionPending,
        QuotaExceeded,
        RequestTimedOut,
        status_code=201,
        response_description="The topic exists, and every live broker has its metadata",
        other=dry_run(models.CreatedTopic, topic_id=None),
    )
    async def create_topic(self, new: models.NewTopicBody) -> models.CreatedTopic:
        """Create a topic, and answer when all live brokers have its metadata.

        Replicas are placed on live brokers in a rack-aware round robin, or as assigned in
        the request. A dry run answers 200 with the placement, and creates nothing.
        """

    @route(
        "DELETE /topics/{topic}",
        "Delete a topic",
        UnknownTopic,
        TopicDeletionPending,
        QuotaExceeded,
        response_description="The topic is deleted",
        other=OtherSuccess(
            202,
            "The deletion is accepted, and still running",
            changed_example(models.DeletedTopic, complete=False),
            lambda deleted: not deleted.complete,
        ),
        defaults={"wait_ms": 10_000},
    )
    async def delete_topic(self, topic: TopicName, wait_ms: DeletionWait) -> models.DeletedTopic:
        """Delete a topic with all its records.

        The deletion is durable once accepted: it completes even if this controller fails.
        200 means that live brokers and ZooKeeper hold nothing of the topic any more, and
        202 that the deletion is still running.
        """


class ElectionAdministration(Protocol):
    """What a controller answers about leader elections."""

    @route("POST /elections", "Elect leaders", UnknownTopic, UnknownPartition)
    async def elect(self, wanted: models.ElectionBody) -> models.Elections:
        """Elect preferred leaders, or leaders of partitions that have none.

        `preferred` moves leadership to the preferred replica where it is in the ISR.
        `unclean` lets any live replica lead a partition without a leader: committed
        records that only members of the old ISR hold may be lost. The answer, also of a
        dry run, and the audit entry name those members for each partition.
        """


class Administration(
    ClusterAdministration,
    TopicAdministration,
    ElectionAdministration,
    brokers.BrokerAdministration,
    configs.ConfigAdministration,
    events.EventAdministration,
    exports.ExportAdministration,
    brokers.HealingAdministration,
    partitions.PartitionAdministration,
    plans.PlanAdministration,
    reassignments.ReassignmentAdministration,
    tasks.TaskAdministration,
    users.UserAdministration,
    what_if.WhatIfAdministration,
    Protocol,
):
    """What a controller implements: one method for each route, which raises its errors."""


def administration_routes(kind: type[APIRoute] = StrictRoute) -> ServiceRouter:
    """Return the routes; `app.state.administration` handles the requests.

    A `kind` of route may handle requests itself, as a broker does to forward them. The
    documentation stays the same.
    """
    router = ServiceRouter(prefix="/v1", route_class=kind)
    add_declared_routes(router, ClusterAdministration, CLUSTER_TAG)
    _add_cluster(router)
    add_declared_routes(router, TopicAdministration, TOPICS_TAG)
    add_declared_routes(router, ElectionAdministration, ELECTIONS_TAG)
    add_declared_routes(router, partitions.PartitionAdministration, TOPICS_TAG)
    add_declared_routes(router, brokers.BrokerAdministration, CLUSTER_TAG)
    add_declared_routes(router, brokers.HealingAdministration, brokers.HEALING_TAG)
    add_declared_routes(router, plans.PlanAdministration, plans.TAG)
    add_declared_routes(router, reassignments.ReassignmentAdministration, reassignments.TAG)
    audit.add_routes(router)
    exports.add_routes(router)
    add_declared_routes(router, tasks.TaskAdministration, tasks.TAG)
    add_declared_routes(router, users.UserAdministration, users.TAG)
    add_declared_routes(router, what_if.WhatIfAdministration, what_if.TAG)
    configs.add_routes(router)
    events.add_routes(router)
    document_guards(router)
    return router


def _add_cluster(router: ServiceRouter) -> None:
    @router.get(
        "/cluster",
        tags=[CLUSTER_TAG],
        summary="Get a summary of the cluster, or its past state",
        responses=_CLUSTERS | read_errors(NotFound, HistoryUnavailable),
    )
    async def read_cluster(
        controller: Annotated[Administration, Depends(get_administration)],
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
            return await controller.cluster()
        return await controller.past_cluster(at, version)

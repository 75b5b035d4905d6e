"""Topics: listing, creating, growing and deleting them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Path, Query
from starlette.responses import JSONResponse, Response

from leadline_broker.api.v3.changes import refused_by_controller
from leadline_broker.api.v3.errors import INVALID_PAYLOAD, REFUSED, V3Error
from leadline_broker.api.v3.lookup import find_rows, settle
from leadline_broker.api.v3.models.topics import (
    KafkaNewTopic,
    KafkaNewTopicConfig,
    KafkaTopic,
    KafkaTopicList,
    PartitionsCount,
)
from leadline_broker.api.v3.routes import (
    READ,
    WRITE,
    WRITE_BODY,
    ClusterView,
    InCluster,
    TopicName,
    also,
    documented,
    list_response,
    v3_router,
)
from leadline_common.access.caller import current_caller, require
from leadline_common.access.rights import Action
from leadline_common.api.models import CreatedTopic, DeletedTopic, NewTopicBody
from leadline_common.api.partitions import AddedPartitions, MorePartitionsBody
from leadline_common.http.service_queries import path_of

TAG: Final = "v3 topics"
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_RESERVED: Final = frozenset({".", "..", "-"})
"""`-` stands for all topics in paths."""
_OPERATIONS: Final = {
    Action.DESCRIBE: ("DESCRIBE", "DESCRIBE_CONFIGS"),
    Action.READ: ("READ",),
    Action.WRITE: ("WRITE",),
    Action.OPERATE: ("ALTER", "ALTER_CONFIGS", "DELETE"),
}
"""Kafka's operations on a topic that an action allows."""
_DEFAULT: Final = -1
_MOST_PARTITIONS: Final = 200_000
_ASK_OPERATIONS: Final = "Whether to list what the caller may do to the topic"
router = v3_router(TAG)

DeletedTopicName = Annotated[str, Path(description="The topic's name", examples=["payments"])]
InList = Annotated[bool, Query(alias="includeAuthorizedOperations", description=_ASK_OPERATIONS)]
InTopic = Annotated[bool, Query(description=_ASK_OPERATIONS)]


@router.get(
    "/topics",
    response_model=KafkaTopicList,
    **documented("v3_list_topics", "List the topics", READ),
)
async def list_topics(cluster: InCluster, with_operations: InList = False) -> Response:
    """Return the topics that the caller may describe, by name."""
    names = current_caller().access.visible("topic", sorted(cluster.metadata.topic_names()))
    items = (
        shown_topic(cluster, name, with_operations=with_operations)
        for name in names
        if cluster.metadata.topic_id(name) is not None  # not deleted while the list is encoded
    )
    return await list_response("KafkaTopicList", cluster.links.listed("topics"), items)


@router.post(
    "/topics",
    status_code=201,
    response_model=KafkaTopic,
    **documented(
        "v3_create_topic",
        "Create a topic",
        also(200, KafkaTopic, "The topic would be created", WRITE_BODY),
    ),
)
async def create_topic(cluster: InCluster, new: KafkaNewTopic) -> Response:
    """Create a topic, and answer when all live brokers serve it.

    With `validate_only` the answer is 200, and nothing is created. Replicas are placed on live
    brokers unless they are assigned.
    """
    if not _NAME.fullmatch(new.topic_name) or new.topic_name in _RESERVED:
        raise V3Error(INVALID_PAYLOAD, f"{new.topic_name!r} is no name for a topic")
    require(Action.OPERATE, "topic", [new.topic_name])
    with refused_by_controller():
        created = await cluster.context.controller.change(
            "POST",
            path_of("topics"),
            CreatedTopic,
            body=wanted_topic(new),
            headers=cluster.idempotency,
        )
    metadata = cluster.metadata
    if not created.dry_run:
        await settle(metadata, lambda: metadata.topic_id(created.name) == created.topic_id)
    topic = topic_of(cluster, created.name, created.partitions, created.replication_factor)
    status = 200 if created.dry_run else 201
    headers = None if created.dry_run else {"Location": topic.metadata.self}
    return JSONResponse(topic.model_dump(), status, headers)


@router.get("/topics/{topic_name}", **documented("v3_read_topic", "Get a topic", READ))
async def read_topic(
    cluster: InCluster, topic_name: TopicName, include_authorized_operations: InTopic = False
) -> KafkaTopic:
    """Return a topic with links to its partitions and settings."""
    return shown_topic(cluster, topic_name, with_operations=include_authorized_operations)


@router.patch(
    "/topics/{topic_name}",
    **documented("v3_add_partitions", "Add partitions to a topic", WRITE_BODY),
)
async def add_partitions(
    cluster: InCluster, topic_name: TopicName, wanted: PartitionsCount
) -> KafkaTopic:
    """Increase the number of partitions of a topic; it never decreases here."""
    total = _checked("partitions_count", wanted.partitions_count, _MOST_PARTITIONS)
    with refused_by_controller():
        added = await cluster.context.controller.change(
            "POST",
            path_of("topics", topic_name, "partitions"),
            AddedPartitions,
            body=MorePartitionsBody(partitions=total),
            headers=cluster.idempotency,
        )
    metadata = cluster.metadata
    await settle(metadata, lambda: len(metadata.partition_numbers(topic_name)) >= added.partitions)
    first = metadata.partition(topic_name, 0)
    # The change is made, even if this broker has not been told of the topic yet.
    replicas = next(iter(added.added.values()), []) if first is None else first.replicas
    return topic_of(cluster, topic_name, added.partitions, len(replicas))


@router.delete(
    "/topics/{topic_name}",
    status_code=204,
    **documented("v3_delete_topic", "Delete a topic", WRITE),
)
async def delete_topic(cluster: InCluster, topic_name: DeletedTopicName) -> None:
    """Delete a topic with all its records.

    The deletion is durable when it is answered, and completes even if a broker is down.
    """
    with refused_by_controller():
        deleted = await cluster.context.controller.change(
            "DELETE",
            path_of("topics", topic_name),
            DeletedTopic,
            headers=cluster.idempotency,
        )
    metadata = cluster.metadata
    await settle(metadata, lambda: metadata.topic_id(topic_name) != deleted.topic_id)


def wanted_topic(new: KafkaNewTopic) -> NewTopicBody:
    """Return a topic to create as the controller understands it.

    Raises:
        V3Error: it is one that no cluster could create.

    """
    assignment = _assignment_of(new)
    return NewTopicBody(
        name=new.topic_name,
        partitions=None if assignment else _count("partitions_count", new.partitions_count),
        replication_factor=(
            None if assignment else _count("replication_factor", new.replication_factor, 32_767)
        ),
        replica_assignment=assignment,
        configs=_configs_of(new.configs or []),
        dry_run=bool(new.validate_only),
    )


def _count(name: str, count: int | None, most: int = _MOST_PARTITIONS) -> int | None:
    return None if count is None or count == _DEFAULT else _checked(name, count, most)


def _checked(name: str, count: int, most: int) -> int:
    """Refuse a number that the controller's model would not take."""
    if not 1 <= count <= most:
        raise V3Error(REFUSED, f"{name} must be from 1 to {most}, not {count}")
    return count


def _assignment_of(new: KafkaNewTopic) -> dict[str, list[int]] | None:
    given = new.replicas_assignments
    if not given:
        return None
    if isinstance(given, list):
        rows = [(f"{one.partition_id}", one.broker_ids) for one in given]
    else:
        rows = list(given.items())
    if any(not re.fullmatch(r"0|[1-9]\d{0,5}", number) for number, _ in rows):
        raise V3Error(REFUSED, "replicas_assignments: a partition is a number from 0 to 199999")
    if len(dict(rows)) < len(rows):
        raise V3Error(REFUSED, "replicas_assignments names a partition twice")
    return dict(rows)


def _configs_of(given: Sequence[KafkaNewTopicConfig]) -> dict[str, str | int | bool]:
    configs: dict[str, str | int | bool] = {}
    for one in given:
        if one.value is None or one.name in configs:
            reason = "has no value" if one.value is None else "is given twice"
            raise V3Error(REFUSED, f"the setting {one.name} {reason}")
        configs[one.name] = one.value
    return configs


def shown_topic(cluster: ClusterView, name: str, *, with_operations: bool) -> KafkaTopic:
    """Return a topic from the metadata.

    Raises:
        V3Error: there is no such topic.

    """
    rows = find_rows(cluster, name)
    allowed = _authorized_operations(name) if with_operations else []
    return topic_of(cluster, name, len(rows), len(rows[0].replicas), allowed)


def topic_of(
    cluster: ClusterView,
    name: str,
    partitions: int,
    replication_factor: int,
    authorized_operations: Sequence[str] = (),
) -> KafkaTopic:
    """Return a topic as the API shows it."""
    links = cluster.links
    return KafkaTopic(
        metadata=links.resource(("topics", name), f"topic={name}"),
        cluster_id=links.cluster_id,
        topic_name=name,
        replication_factor=replication_factor,
        partitions_count=partitions,
        partitions=links.related("topics", name, "partitions"),
        configs=links.related("topics", name, "configs"),
        partition_reassignments=links.related("topics", name, "partitions", "-", "reassignment"),
        authorized_operations=list(authorized_operations),
    )


def _authorized_operations(topic: str) -> list[str]:
    access = current_caller().access
    return sorted(
        operation
        for action, operations in _OPERATIONS.items()
        if access.allows(action, "topic", topic)
        for operation in operations
    )

"""Removing brokers, and what Leadline has instead of a balancer and of ACLs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, NoReturn

from fastapi import Path, Query
from starlette.responses import Response

from leadline_broker.api.v3.clusters import BROKERS_TAG, CLUSTERS_TAG
from leadline_broker.api.v3.errors import (
    NOT_FOUND,
    REFUSED,
    ErrorResponse,
    V3Error,
)
from leadline_broker.api.v3.models.cluster import (
    BrokersToRemove,
    KafkaBalancerStatus,
    KafkaBrokerRemoval,
    KafkaBrokerRemovalList,
    KafkaBrokerTask,
    KafkaBrokerTaskList,
    UnregisteredBroker,
)
from leadline_broker.api.v3.routes import (
    READ,
    WRITE,
    WRITE_BODY,
    BrokerId,
    ClusterView,
    InCluster,
    documented,
    list_response,
    v3_router,
)
from leadline_client.errors import LeadlineError
from leadline_common.api.brokers import DrainBody, ForgottenBroker
from leadline_common.api.tasks import TaskBody, TasksBody
from leadline_common.http.service_queries import path_of
from leadline_common.tasks import TaskState

TASK_TYPE: Final = "remove-broker"
_DRAIN: Final = "drain"
_MOVING: Final = "partition_reassignment_status"
router = v3_router(BROKERS_TAG)
unsupported = v3_router(CLUSTERS_TAG)

TaskStatus = Literal["FAILED", "IN_PROGRESS", "SUCCESS", "UNKNOWN"]
_SUB_TASK: Final[dict[TaskStatus, str]] = {
    "FAILED": "ERROR",
    "IN_PROGRESS": "IN_PROGRESS",
    "SUCCESS": "COMPLETED",
}
ShouldShutdown = Annotated[
    bool, Query(description="Has no effect: whoever runs the broker stops it once it is drained")
]


TaskType = Annotated[
    Literal["add-broker", "remove-broker"],
    Path(description="The kind of task", examples=["remove-broker"]),
]


@router.delete(
    "/brokers/{broker_id}",
    status_code=202,
    **documented("v3_remove_broker", "Remove a broker", WRITE),
)
async def remove_broker(
    cluster: InCluster,
    broker_id: BrokerId,
    should_shutdown: ShouldShutdown = True,
) -> KafkaBrokerRemoval:
    """Start a task that moves all leaders and replicas off a broker.

    The broker stays a member of the cluster until its process is stopped and it is unregistered.
    """
    del should_shutdown
    await _drain(cluster, broker_id)
    return removal_of(cluster, broker_id)


@router.post(
    "/brokers:delete",
    status_code=202,
    response_model=KafkaBrokerRemovalList,
    **documented("v3_remove_brokers", "Remove several brokers", WRITE_BODY),
)
async def remove_brokers(
    cluster: InCluster, wanted: BrokersToRemove, should_shutdown: ShouldShutdown = True
) -> Response:
    """Start a task for each broker that moves all leaders and replicas off it.

    All are checked before the first task starts. If a later one is refused nevertheless, the
    message names those that have started.
    """
    del should_shutdown
    if len(set(wanted.broker_ids)) < len(wanted.broker_ids):
        raise V3Error(REFUSED, "broker_ids names a broker twice")
    for broker_id in wanted.broker_ids:
        await _drain(cluster, broker_id, dry_run=True)
    started: list[int] = []
    for broker_id in wanted.broker_ids:
        try:
            await _drain(cluster, broker_id)
        except LeadlineError as error:
            if not started:
                raise
            before = f"brokers {started} are being removed; broker {broker_id}: "
            raise V3Error.of(error, before) from error
        started.append(broker_id)
    items = (removal_of(cluster, broker_id) for broker_id in started)
    return _accepted(
        await list_response("KafkaBrokerRemovalList", cluster.links.listed("brokers"), items)
    )


def _accepted(response: Response) -> Response:
    response.status_code = 202
    return response


@router.post(
    "/brokers/{broker_id}:unregister",
    status_code=202,
    **documented("v3_unregister_broker", "Unregister a broker that is down", WRITE),
)
async def unregister_broker(cluster: InCluster, broker_id: BrokerId) -> UnregisteredBroker:
    """Forget a broker that is down and has no replicas, because it will not return."""
    controller = cluster.context.controller
    path = path_of("failed-brokers", broker_id)
    gone = await controller.change("DELETE", path, ForgottenBroker, headers=cluster.idempotency)
    return UnregisteredBroker(cluster_id=cluster.cluster_id, broker_id=gone.id)


@router.get(
    "/brokers/-/tasks",
    response_model=KafkaBrokerTaskList,
    **documented("v3_list_broker_tasks", "List the removals of brokers", READ),
)
async def list_broker_tasks(cluster: InCluster) -> Response:
    """Return the latest removal of each broker, by broker."""
    found = await _removals(cluster)
    items = (task_of(cluster, broker_id, found[broker_id]) for broker_id in sorted(found))
    own = cluster.links.listed("brokers", "-", "tasks")
    return await list_response("KafkaBrokerTaskList", own, items)


@router.get(
    "/brokers/{broker_id}/tasks/{task_type}",
    **documented("v3_read_broker_task", "Get the removal of a broker", READ),
)
async def read_broker_task(
    cluster: InCluster,
    broker_id: BrokerId,
    task_type: TaskType,
) -> KafkaBrokerTask:
    """Return the latest removal of a broker; a new broker needs no task to be added."""
    found = await _removals(cluster)
    if task_type != TASK_TYPE or broker_id not in found:
        raise V3Error(NOT_FOUND, f"broker {broker_id} has no task {task_type}")
    return task_of(cluster, broker_id, found[broker_id])


@unsupported.get("/balancer", **documented("v3_read_balancer", "Get the balancer", READ))
async def read_balancer(cluster: InCluster) -> KafkaBalancerStatus:
    """Return that no balancer is enabled: an operator balances with plans."""
    links = cluster.links
    return KafkaBalancerStatus(
        metadata=links.resource(("balancer",), "balancer"),
        cluster_id=cluster.cluster_id,
        any_uneven_load=links.related("balancer", "any-uneven-load"),
        broker_tasks=links.related("brokers", "-", "tasks"),
    )


@unsupported.get(
    "/acls",
    status_code=400,
    response_model=ErrorResponse,
    **documented("v3_list_acls", "List the ACLs", READ),
)
async def list_acls(cluster: InCluster) -> NoReturn:
    """Refuse the request: Leadline has grants of roles to users (`GET /v1/users`), and no ACLs."""
    del cluster
    raise V3Error(REFUSED, "there are no ACLs: GET /v1/users lists users and what they may do")


async def _drain(cluster: ClusterView, broker_id: int, *, dry_run: bool = False) -> TaskBody:
    return await cluster.context.controller.change(
        "POST",
        path_of("brokers", broker_id, _DRAIN),
        TaskBody,
        body=DrainBody(dry_run=dry_run),
    )


async def _removals(cluster: ClusterView) -> dict[int, TaskBody]:
    found = await cluster.context.controller.get(path_of("tasks"), TasksBody)
    return latest_removals(found.tasks)


def latest_removals(tasks: Iterable[TaskBody]) -> dict[int, TaskBody]:
    """Return the latest drain of each broker; one that moves only leaders is no removal."""
    drains = (task for task in tasks if task.kind == _DRAIN and not task.details["leaders_only"])
    return {task.details["broker"]: task for task in sorted(drains, key=_age)}


def _age(task: TaskBody) -> tuple[int, str]:
    return task.created_at_ms, task.id or ""


def removal_of(cluster: ClusterView, broker_id: int) -> KafkaBrokerRemoval:
    """Return a removal that has begun."""
    links = cluster.links
    return KafkaBrokerRemoval(
        metadata=links.resource(("brokers", broker_id), f"broker={broker_id}"),
        cluster_id=cluster.cluster_id,
        broker_id=broker_id,
        broker_task=links.related("brokers", broker_id, "tasks", TASK_TYPE),
        broker=links.related("brokers", broker_id),
    )


def task_of(cluster: ClusterView, broker_id: int, task: TaskBody) -> KafkaBrokerTask:
    """Return a removal with its progress."""
    path = ("brokers", broker_id, "tasks", TASK_TYPE)
    status = _status_of(task.state)
    failed = status == "FAILED"
    ended_ms = task.finished_at_ms
    return KafkaBrokerTask(
        metadata=cluster.links.resource(path, f"broker={broker_id}", f"task={TASK_TYPE}"),
        cluster_id=cluster.cluster_id,
        broker_id=broker_id,
        task_type=TASK_TYPE,
        task_status=status,
        shutdown_scheduled=False,
        sub_task_statuses={_MOVING: _SUB_TASK[status]},
        created_at=rfc3339(task.created_at_ms),
        updated_at=rfc3339(ended_ms or cluster.context.now_ms()),
        error_code=500 if failed else None,
        error_message=f"the task has ended as {task.state}" if failed else None,
        broker=cluster.links.related("brokers", broker_id),
    )


def _status_of(state: TaskState) -> TaskStatus:
    if state is TaskState.DONE:
        return "SUCCESS"
    return "FAILED" if state.is_over else "IN_PROGRESS"


def rfc3339(time_ms: int) -> str:
    """Return a time in Unix ms in the format of the API."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC).replace(microsecond=time_ms % 1000 * 1000)
    return moment.isoformat("T", "milliseconds").replace("+00:00", "Z")

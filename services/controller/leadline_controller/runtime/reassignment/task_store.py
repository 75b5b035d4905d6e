"""The tasks under `/admin/reassign_partitions` (the path that KIP-46 names).

A task is written whole before anything is done for it, so accepting it is one write;
any controller finds it and goes on with it. What is left to do follows from the intents.
Tasks that are over are kept for a while, without their partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from leadline_client.errors import NotFound, TaskIsOver
from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.tasks import (
    TASK_PREFIX,
    TargetRow,
    TaskNode,
    TaskState,
    decode_task,
    request_number,
    task_path,
)
from leadline_common.zk.errors import MultiFailed, NotEmpty, RequestTooLarge
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp, Stat
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.history import EXTERNAL
from leadline_controller.domain.state import ReadNode
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventQueue
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.reassignment.events import TasksDue

logger = structlog.get_logger(__name__)

REFUSED = "task_refused"


@dataclass(eq=False, slots=True)
class ReassignmentTask:
    """One task: the value and the version of its node."""

    id: str
    node: TaskNode
    version: int

    @property
    def number(self) -> int:
        """The number of the request; a task with another name than a number comes first (-1)."""
        return request_number(self.id)

    @property
    def broker(self) -> int:
        """The broker that a drain empties, or whose replicas a chunk replaces; -1 without one."""
        broker = self.node.details.get("broker")
        return broker if isinstance(broker, int) else -1

    @property
    def is_unchecked(self) -> bool:
        """Whether an operator wrote the node directly into ZooKeeper, so that no one checked it."""
        return not self.node.cause


@dataclass(eq=False)
class TaskStore:
    """The tasks by id."""

    store: ControllerStore
    queue: EventQueue
    configs: DynamicConfigs
    writer: StateWriter
    audit: AuditLog
    _tasks: dict[str, ReassignmentTask] = field(default_factory=dict, init=False)
    _invalidated: set[str] = field(default_factory=set, init=False)
    _is_watched: bool = field(default=False, init=False)
    _listeners: list[tuple[Callable[[], None], str | None]] = field(
        default_factory=list, init=False
    )

    def subscribe(self, listener: Callable[[], None], kind: str | None = None) -> None:
        """Call `listener` whenever a task, or one of this kind, is added, changed or removed."""
        self._listeners.append((listener, kind))

    def _publish(self, task: ReassignmentTask) -> None:
        for listener, kind in self._listeners:
            if kind in (None, task.node.kind):
                listener()

    def __iter__(self) -> Iterator[ReassignmentTask]:
        """Yield the tasks in the order of their requests."""
        return iter(sorted(self._tasks.values(), key=lambda task: (task.number, task.id)))

    def get(self, task_id: str) -> ReassignmentTask | None:
        """Return a task, if there is one of this id."""
        return self._tasks.get(task_id)

    def find(self, task_id: str) -> ReassignmentTask:
        """Return a task.

        Raises:
            NotFound: there is none of this id, or it was over long ago.

        """
        task = self._tasks.get(task_id)
        if task is None:
            raise NotFound(f"there is no task {task_id!r}; the latest ones are kept")
        return task

    def find_open(self, task_id: str) -> ReassignmentTask:
        """Return a task that is not over.

        Raises:
            NotFound: there is none of this id.
            TaskIsOver: it has ended.

        """
        task = self.find(task_id)
        if task.node.state.is_over:
            raise TaskIsOver(f"task {task_id} is {task.node.state}")
        return task

    # -- reading ---------------------------------------------------------------

    async def read(self, *, everything: bool) -> None:
        """Read new and invalidated tasks, and forget deleted ones.

        Without `everything`, nothing is read unless a watch has fired or a write failed.
        """
        if self._is_watched and not self._invalidated and not everything:
            return
        self._is_watched = True
        root = await self.store.watched_node(znodes.REASSIGN_PARTITIONS, self._changed)
        if root is not None and root.data.strip():
            await self._accept_set(root)
        names = await self.store.list_children(znodes.REASSIGN_PARTITIONS, self._changed) or []
        for task_id in self._tasks.keys() - set(names):
            self._publish(self._tasks.pop(task_id))
        wanted = [name for name in names if name not in self._tasks or name in self._invalidated]
        nodes = await self.store.read_nodes([task_path(name) for name in wanted])
        for name, node in zip(wanted, nodes, strict=True):
            if node is None:
                continue
            try:
                value = decode_task(node.data)
            except (msgspec.MsgspecError, ValueError) as problem:
                delete = DeleteOp(task_path(name), node.version)
                await self._refuse(delete, f"it cannot be read: {problem}")
                continue
            self._tasks[name] = ReassignmentTask(name, value, node.version)
            self._publish(self._tasks[name])
        self._invalidated.clear()

    async def _accept_set(self, root: ReadNode) -> None:
        """Make a task of the reassignments that an operator wrote into the parent node itself.

        That is where Kafka and KIP-435 have them. The node is emptied in the same transaction.
        """
        taken = SetOp(znodes.REASSIGN_PARTITIONS, b"", root.version)
        try:
            node = decode_task(root.data)
        except (msgspec.MsgspecError, ValueError) as problem:
            await self._refuse(taken, f"it cannot be read: {problem}")
            return
        node = TaskNode(  # Without a cause it counts as unchecked.
            partitions=node.partitions,
            algorithm=node.algorithm,
            throttle_bytes_per_s=node.throttle_bytes_per_s,
            retarget=node.retarget,
        )
        entry = self._entry(
            "task_accepted", "", node, actor=EXTERNAL, partitions=by_topic(node.partitions)
        )
        create = CreateOp(TASK_PREFIX, znodes.encode_value(node), sequence=True)
        try:
            await self._commit_unless_changed([create, taken], entry)
        except RequestTooLarge as problem:
            await self._refuse(taken, f"it is too large for one task: {problem}")

    async def _refuse(self, op: Op, reason: str) -> None:
        """Delete what cannot become a task, and record that in the audit."""
        logger.error("task refused", path=op.path, reason=reason)
        entry = self.audit.entry(REFUSED, {"path": op.path}, outcome="refused", reason=reason)
        await self._commit_unless_changed([op], entry)

    async def _commit_unless_changed(self, ops: Sequence[Op], entry: AuditEntry) -> None:
        try:
            await self.writer.commit(ops, entry)
        except MultiFailed as failure:
            logger.warning("task node not written", error=str(failure))
            if not isinstance(failure.error, NotEmpty):  # That would be refused for ever.
                self._changed()

    def _changed(self) -> None:
        self._is_watched = False
        self.queue.trigger(TasksDue)

    # -- writing ---------------------------------------------------------------

    async def create(self, node: TaskNode) -> ReassignmentTask:
        """Write a task: from then on it is accepted.

        Raises:
            RequestTooLarge: it names too many partitions for one node.

        """
        op = CreateOp(TASK_PREFIX, znodes.encode_value(node), sequence=True)
        entry = self._entry("task_accepted", "", node, partitions=by_topic(node.partitions))
        (created,) = await self.writer.commit([op], entry)
        task = ReassignmentTask(str(created).rpartition("/")[2], node, 0)
        self._tasks[task.id] = task
        self._publish(task)
        return task

    async def change(
        self, task: ReassignmentTask, kind: str, *, actor: str = "", **members: Any
    ) -> None:
        """Replace members of a task's node; `kind` is that of the audit entry."""
        await self.put(task, kind, msgspec.structs.replace(task.node, **members), actor=actor)

    async def refuse(self, task: ReassignmentTask, reason: str) -> None:
        """End a task that an operator wrote and that cannot be executed."""
        failed = msgspec.structs.replace(task.node, state=TaskState.FAILED, reason=reason)
        await self.put(task, REFUSED, failed, outcome="refused")

    async def put(
        self,
        task: ReassignmentTask,
        kind: str,
        node: TaskNode,
        *,
        actor: str = "",
        outcome: str = "done",
    ) -> None:
        """Replace a task's node; if the write fails, the node is read again."""
        entry = self._entry(kind, task.id, node, actor=actor, outcome=outcome)
        self._invalidated.add(task.id)
        set_node = SetOp(task_path(task.id), znodes.encode_value(node), task.version)
        results = await self.writer.commit([set_node, *self._trim(node)], entry)
        self._invalidated.discard(task.id)
        if isinstance(results[0], Stat):
            task.version = results[0].version
        task.node = node
        self._publish(task)

    def _trim(self, node: TaskNode) -> list[Op]:
        """Return the operations that delete the oldest tasks if one more task is over."""
        if not node.state.is_over:
            return []
        over = [task.id for task in self if task.node.state.is_over]
        surplus = over[: max(0, len(over) + 1 - self.configs.current().tasks_kept)]
        for task_id in surplus:
            del self._tasks[task_id]
        return [DeleteOp(task_path(task_id), ANY_VERSION) for task_id in surplus]

    def _entry(
        self,
        kind: str,
        task_id: str,
        node: TaskNode,
        *,
        actor: str = "",
        outcome: str = "done",
        **more: Any,
    ) -> AuditEntry:
        return self.audit.entry(
            kind,
            {"task": task_id, "kind": node.kind, **more},
            actor=actor,
            outcome=outcome,
            reason=node.reason,
            after={
                "state": node.state,
                "algorithm": node.algorithm,
                "throttle_bytes_per_s": node.throttle_bytes_per_s,
                "total": node.total,
                "created_at": node.created_at,
                "finished_at": node.finished_at,
                "outcome": node.outcome,
                "details": node.details,
            },
        )


def by_topic(topic_partitions: Iterable[TopicPartition | TargetRow]) -> dict[str, list[int]]:
    """Return the partition numbers of each topic."""
    topics: dict[str, list[int]] = {}
    for one in topic_partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    return topics

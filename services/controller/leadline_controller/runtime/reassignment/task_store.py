"""The tasks under `/admin/reassign_partitions`, as they are known (seed 2 names the path).

A task is written whole before anything is done for it, so that accepting it is one
write; any controller finds it, and goes on with it. What is left to do follows from the
intents. Tasks that are over are kept for a while, without their partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from leadline_client.errors import NotFound, TaskIsOver
from leadline_common import znodes
from leadline_common.rpc import NO_THROTTLE
from leadline_common.tasks import (
    TASK_PREFIX,
    TaskNode,
    TaskState,
    decode_task,
    encode_task,
    task_path,
)
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp, Stat
from leadline_controller.runtime.engine.context import EventContext

_log = logging.getLogger(__name__)


class Task:
    """One task: its node's value and version."""

    __slots__ = ("id", "node", "version")

    def __init__(self, task_id: str, node: TaskNode, version: int) -> None:
        self.id = task_id
        self.node = node
        self.version = version

    @property
    def number(self) -> int:
        """The place in the order of requests; a task with a name of its own comes first."""
        return int(self.id) if self.id.isdecimal() else -1

    @property
    def is_by_hand(self) -> bool:
        """Whether somebody wrote the node in ZooKeeper: nobody has checked it."""
        return not self.node.cause


class TaskStore:
    """The tasks by id; `wake` is told when somebody has written one by hand."""

    def __init__(self, desk: EventContext, wake: Callable[[], None]) -> None:
        self._desk = desk
        self._wake = wake
        self._tasks: dict[str, Task] = {}
        self._doubted: set[str] = set()
        self._is_watched = False

    def __iter__(self) -> Iterator[Task]:
        """Yield the tasks in the order of their requests."""
        return iter(sorted(self._tasks.values(), key=lambda task: (task.number, task.id)))

    def get(self, task_id: str) -> Task | None:
        """Return a task, if there is one of this id."""
        return self._tasks.get(task_id)

    def find(self, task_id: str) -> Task:
        """Return a task.

        Raises:
            NotFound: there is none of this id, or it was over long ago.

        """
        task = self._tasks.get(task_id)
        if task is None:
            raise NotFound(f"there is no task {task_id!r}; the latest ones are kept")
        return task

    def find_open(self, task_id: str) -> Task:
        """Return a task that is not over.

        Raises:
            NotFound: there is none of this id.
            TaskIsOver: it has ended.

        """
        task = self.find(task_id)
        if task.node.state.is_over:
            raise TaskIsOver(f"task {task_id} is {task.node.state}")
        return task

    @property
    def moving_bytes_per_s(self) -> int:
        """The lowest throttle of the tasks that run; `NO_THROTTLE` where none has one."""
        rates = [
            task.node.throttle_bytes_per_s
            for task in self._tasks.values()
            if task.node.state.is_running and task.node.throttle_bytes_per_s is not None
        ]
        return min(rates, default=NO_THROTTLE)

    # -- reading ---------------------------------------------------------------

    async def look(self, *, everything: bool) -> None:
        """Read the tasks that are not known yet, or are doubted; forget those that are gone."""
        if self._is_watched and not self._doubted and not everything:
            return
        self._is_watched = True
        store = self._desk.office.store
        names = await store.list_children(znodes.REASSIGN_PARTITIONS, self._changed) or []
        for task_id in self._tasks.keys() - set(names):
            del self._tasks[task_id]
        wanted = [name for name in names if name not in self._tasks or name in self._doubted]
        nodes = await store.read_nodes([task_path(name) for name in wanted])
        for name, node in zip(wanted, nodes, strict=True):
            if node is not None:
                self._tasks[name] = Task(name, _readable(name, node.data), node.version)
        self._doubted.clear()

    def _changed(self) -> None:
        self._is_watched = False
        self._wake()

    # -- writing ---------------------------------------------------------------

    async def create(self, node: TaskNode) -> Task:
        """Write a task: from then on it is accepted.

        Raises:
            RequestTooLarge: it names too many partitions for one node.

        """
        op = CreateOp(TASK_PREFIX, encode_task(node), sequence=True)
        entry = self._entry("task_accepted", "", node, partitions=_by_topic(node))
        (created,) = await self._desk.writer.commit([op], entry)
        task = Task(str(created).rpartition("/")[2], node, 0)
        self._tasks[task.id] = task
        return task

    async def change(self, task: Task, kind: str, *, actor: str = "", **members: Any) -> None:
        """Replace members of a task's node."""
        await self.put(task, kind, msgspec.structs.replace(task.node, **members), actor=actor)

    async def put(self, task: Task, kind: str, node: TaskNode, *, actor: str = "") -> None:
        """Replace a task's node."""
        entry = self._entry(kind, task.id, node, actor=actor)
        ops = [self.set_op(task, node), *self._trim(node)]
        results = await self._desk.writer.commit(ops, entry)
        self.changed(task, node, results)

    def set_op(self, task: Task, node: TaskNode) -> SetOp:
        """Return the operation that replaces a task's node; without its outcome, it is doubted."""
        self._doubted.add(task.id)
        return SetOp(task_path(task.id), encode_task(node), task.version)

    def changed(self, task: Task, node: TaskNode, results: Sequence[Any]) -> None:
        """Note that a `set_op` was carried out, as the first operation of `results`."""
        self._doubted.discard(task.id)
        if isinstance(results[0], Stat):
            task.version = results[0].version
        task.node = node

    def _trim(self, node: TaskNode) -> list[Op]:
        """Return the operations that remove the oldest tasks that are over, if one more is so."""
        if not node.state.is_over:
            return []
        over = [task.id for task in self if task.node.state.is_over]
        surplus = over[: max(0, len(over) + 1 - self._desk.configs.current().tasks_kept)]
        for task_id in surplus:
            del self._tasks[task_id]
        return [DeleteOp(task_path(task_id), ANY_VERSION) for task_id in surplus]

    def _entry(
        self, kind: str, task_id: str, node: TaskNode, *, actor: str = "", **more: Any
    ) -> znodes.AuditEntry:
        return self._desk.entry(
            kind,
            {"task": task_id, "kind": node.kind, **more},
            actor=actor,
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


def _by_topic(node: TaskNode) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for row in node.partitions:
        topics.setdefault(row.topic, []).append(row.partition)
    return topics


def _readable(name: str, data: bytes) -> TaskNode:
    """Decode a task that a person may have written; what is none has failed."""
    try:
        return decode_task(data)
    except (msgspec.MsgspecError, ValueError) as problem:
        _log.error("the task %s cannot be read: %s", name, problem)
        return TaskNode(state=TaskState.FAILED, reason=f"cannot be read: {problem}")

"""The spans of requests to ZooKeeper."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from leadline_common.tracing import spans
from leadline_common.zk.errors import NoNode
from leadline_common.zk.ops import CheckOp, CreateOp, DeleteOp, MultiResults, Op, SetOp

_OPERATIONS: Final[dict[type[Any], str]] = {
    CreateOp: "create",
    SetOp: "set",
    DeleteOp: "delete",
    CheckOp: "check",
}


def operation_of(op: Op) -> str:
    """Return the name of an operation: create, set, delete or check."""
    return _OPERATIONS[type(op)]


def trace_request(
    future: asyncio.Future[Any], operation: str, path: str, parts: Sequence[object]
) -> None:
    """Record a request, which ends with its future, as a child of the current span.

    `path` is the first of those that it names. `parts` are the operations of a multi, which are
    counted by kind, or the paths of a bulk read.
    """
    span = spans.span(
        f"zookeeper {operation}",
        {"db.system.name": "zookeeper", "db.operation.name": operation, "zookeeper.path": path},
        "client",
    )
    if not span.is_recording:
        return
    if parts:
        span.set({"db.operation.batch.size": len(parts)})
    counts = Counter(_OPERATIONS[type(part)] for part in parts if type(part) in _OPERATIONS)
    span.set({f"zookeeper.multi.{kind}": count for kind, count in counts.items()})
    future.add_done_callback(lambda done: _end(span, done))


def _end(span: spans.Span, done: asyncio.Future[Any]) -> None:
    if done.cancelled():
        span.fail("cancelled")
    elif (error := done.exception()) is None:
        result = done.result()
        if isinstance(result, MultiResults):
            span.set({"zookeeper.zxid": result.zxid})
    elif isinstance(error, NoNode):  # an answer like any other to a read
        span.set({"error.type": type(error).__name__})
    else:
        span.fail(type(error).__name__, str(error))
    span.end()

"""What the spans of a produce say, by OpenTelemetry's conventions for messaging where they fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from leadline_broker.runtime.replication.partition import Partition
from leadline_common.tracing import spans


def describe_produce(partition: Partition, base: int, count: int, acks: str) -> None:
    """Add to the current span what was appended where."""
    spans.current_span().set(
        {
            "messaging.system": "leadline",
            "messaging.operation.name": "append",
            "messaging.destination.name": partition.topic,
            "messaging.destination.partition.id": str(partition.partition),
            "messaging.batch.message_count": count,
            "leadline.base_offset": base,
            "leadline.acks": acks,
        }
    )


@contextmanager
def replication_span(partition: Partition, end: int) -> Iterator[None]:
    """Record a wait until everything below `end` is committed.

    The span has an event `on disk` for each replica, when the leader has fsynced its log or a
    follower has stated that it did.
    """
    with spans.span("wait for replicas", {"leadline.end_offset": end}) as span:
        if not span.is_recording:
            yield
            return
        wait = partition.trace_wait(end, span)
        try:
            yield
        finally:
            partition.end_traced_wait(wait)

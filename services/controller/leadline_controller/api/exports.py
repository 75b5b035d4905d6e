"""Export routes: the current state as tables, and the extent of the audit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from leadline_client.wire import NO_LEADER
from leadline_common.api.exports import AuditHead, TableExport
from leadline_common.export_tables import ExportedPartition, Row, StateTable, encode_rows
from leadline_controller.api import views
from leadline_controller.api.reassignments import reassignments_view
from leadline_controller.domain.cluster import ClusterImage, PartitionImage
from leadline_controller.domain.history import AuditQuery
from leadline_controller.domain.stats import broker_counts
from leadline_controller.runtime.service import ControllerService


class ExportEndpoints:
    """Implements `leadline_common.api.exports.ExportAdministration`, with `AuditEndpoints`."""

    _controller: ControllerService

    async def audit_head(self) -> AuditHead:
        """Return the oldest and the newest id of the audit."""
        history = await self._controller.history()
        newest = await history.find(AuditQuery(), cursor=None, newest_first=True, limit=1)
        if not newest:
            return AuditHead(oldest=-1, head=-1, head_time=None)
        oldest, _ = await history.ids()
        return AuditHead(oldest=oldest, head=newest[0].id, head_time=newest[0].entry.time)

    async def export_table(self, table: StateTable) -> TableExport:
        """Return a consistent table of the current state."""
        if table == "reassignments":
            await self._controller.active_controller().agent.refresh()
        image = self._controller.image()
        version = image.version
        rows: Iterable[Row]
        if table == "partitions":
            rows = partition_rows(image)
        elif table == "brokers":
            rows = list(broker_rows(image))
        else:
            view = await reassignments_view(self._controller.active_controller(), None)
            rows = ({"metadata_version": version, **r.model_dump()} for r in view.reassignments)
        return TableExport(encode_rows(rows), version)


def broker_rows(image: ClusterImage) -> Iterator[dict[str, Any]]:
    """Yield the live brokers in order of their ids, all as of this version of the image."""
    for number in sorted(image.brokers):
        counts = broker_counts(image, image.brokers[number], image.hosted_by(number))
        broker = views.broker_body(image.brokers[number], counts)
        yield {
            "metadata_version": image.version,
            **broker.model_dump(),
            "draining": broker.id in image.draining,
            "stopping": broker.id in image.stopping,
        }


def partition_rows(image: ClusterImage) -> Iterator[ExportedPartition]:
    """Return the rows of all current partitions, each created when it is consumed.

    Until then this keeps the immutable partitions of the image. Creating a hundred thousand
    rows at once would block the event loop.
    """
    version = image.version
    snapshot = [
        (
            topic.name,
            topic.topic_id,
            image.min_insync_replicas(topic),
            dict(topic.active_partitions),
        )
        for _, topic in sorted(image.topics.items())
        if topic.is_visible
    ]
    return (
        _partition_row((version, name, topic_id, number), partition, floor)
        for name, topic_id, floor, partitions in snapshot
        for number, partition in partitions.items()
    )


def _partition_row(
    key: tuple[int, str, str, int], partition: PartitionImage, floor: int
) -> ExportedPartition:
    state = partition.state
    return ExportedPartition(
        *key,
        leader=state.leader if state else NO_LEADER,
        leader_epoch=state.leader_epoch if state else -1,
        isr=state.isr if state else (),
        replicas=partition.replicas,
        eligible=state.eligible if state else (),
        min_insync_replicas=floor,
    )

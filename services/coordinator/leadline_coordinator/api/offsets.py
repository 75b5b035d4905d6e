"""Reading, resetting and deleting offsets, and lag. `commit.py` commits offsets."""

from __future__ import annotations

from leadline_client.wire import TopicPartition
from leadline_common.access.caller import require, visible
from leadline_common.access.rights import Action
from leadline_common.api import group_models as models
from leadline_common.slices import in_order, slices
from leadline_coordinator.domain.records import CommittedOffset
from leadline_coordinator.runtime.service import CoordinatorService


class OffsetEndpoints:
    """Implements `leadline_common.api.groups.OffsetRoutes`."""

    _coordinator: CoordinatorService

    async def read_offsets(self, group: str) -> models.OffsetsBody:
        """Return the committed offsets of a group, in turns of the loop if they are many."""
        offsets = dict(self._coordinator.manager(group).committer.offsets)
        topics = _shown({one.topic for one in offsets})
        rows: list[models.OffsetBody] = []
        async for some in slices(in_order(offsets, lambda one: one)):
            rows += [_offset_body(one, offsets[one]) for one in some if one.topic in topics]
        return models.OffsetsBody(offsets=rows)

    async def read_lag(self, group: str) -> models.LagBody:
        """Return the lag of each partition, and the sum."""
        found = await self._coordinator.offsets().lag(group)
        topics = _shown({row.topic for row in found})
        rows: list[models.LagRow] = []
        async for some in slices(found):
            rows += [
                models.LagRow.model_validate(row, from_attributes=True)
                for row in some
                if row.topic in topics
            ]
        return models.LagBody(partitions=rows, total=sum(row.lag or 0 for row in rows))

    async def reset_offsets(self, group: str, body: models.ResetBody) -> models.ResetDone:
        """Set the offsets of a group without members."""
        named = {TopicPartition(one.topic, one.partition) for one in body.partitions}
        asked = {*body.topics, *(one.topic for one in (*body.partitions, *(body.offsets or ())))}
        require(Action.DESCRIBE, "topic", asked or self._topics_of(group))
        changes = await self._coordinator.offsets().reset(
            group,
            body.to,
            named | self._coordinator.partitions_of(body.topics),
            timestamp=body.timestamp,
            offsets={
                TopicPartition(one.topic, one.partition): one.offset for one in body.offsets or ()
            },
            dry_run=body.dry_run,
        )
        return models.ResetDone(
            offsets=[models.ResetRow.model_validate(row, from_attributes=True) for row in changes],
            dry_run=body.dry_run,
        )

    async def delete_offsets(self, group: str, topic: str | None) -> models.OffsetsGone:
        """Delete the offsets of a group without members."""
        require(Action.DESCRIBE, "topic", self._topics_of(group) if topic is None else [topic])
        deleted = await self._coordinator.offsets().delete(group, topic)
        return models.OffsetsGone(deleted=deleted)

    def _topics_of(self, group: str) -> set[str]:
        """Return the topics of a group's committed offsets.

        Raises:
            UnknownGroup: there is no such group.

        """
        return {one.topic for one in self._coordinator.manager(group).committer.offsets}


def _offset_body(one: TopicPartition, committed: CommittedOffset) -> models.OffsetBody:
    return models.OffsetBody(
        topic=one.topic,
        partition=one.partition,
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        time=committed.time_ms,
    )


def _shown(topics: set[str]) -> set[str]:
    """Return the topics that the sender of the request may see."""
    seen = visible("topic", topics, set)
    return topics if seen is None else set(seen)

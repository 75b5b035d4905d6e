"""Adding and removing partitions: from bodies to the runtime, and from its answers to bodies."""

from __future__ import annotations

from leadline_common.api.partitions import (
    AddedPartitions,
    MorePartitionsBody,
    RemovalBody,
    RemovedPartitions,
)
from leadline_controller.api.answers import Answers
from leadline_controller.runtime.topics.partition_intents import AddPartitions, RemovePartitions


class PartitionAnswers(Answers):
    """Answers `leadline_common.api.partitions.PartitionAdministration`."""

    async def add_partitions(self, topic: str, wanted: MorePartitionsBody) -> AddedPartitions:
        """Add partitions, or with `dry_run` say where they would be."""
        given = wanted.replica_assignment
        assignment = None
        if given is not None:
            assignment = {int(number): tuple(replicas) for number, replicas in given.items()}
        asked = self._controller.ask(
            AddPartitions(topic, wanted.partitions, assignment, dry_run=wanted.dry_run)
        )
        added = await (
            asked if wanted.dry_run else self._controller.until_acknowledged(topic, asked)
        )
        return AddedPartitions(
            topic=topic,
            topic_id=self._controller.topic(topic).topic_id,
            partitions=wanted.partitions,
            added={str(number): list(replicas) for number, replicas in added.items()},
            dry_run=wanted.dry_run,
        )

    async def remove_partitions(
        self, topic: str, going: RemovalBody, wait_ms: int
    ) -> RemovedPartitions:
        """Order the removal of partitions, and wait for it at most `wait_ms`."""
        known = self._controller.topic(topic)
        numbers = await self._controller.ask(
            RemovePartitions(topic, tuple(going.partitions), dry_run=going.dry_run)
        )

        def are_gone() -> bool:
            return known.leaving.isdisjoint(numbers)

        complete = not going.dry_run and await self._controller.wait_until(are_gone, wait_ms)
        return RemovedPartitions(
            topic=topic,
            topic_id=known.topic_id,
            partitions=list(numbers),
            complete=complete,
            dry_run=going.dry_run,
        )

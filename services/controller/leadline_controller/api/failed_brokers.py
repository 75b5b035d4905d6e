"""Failed brokers, answered from the engine, and their history, from the database."""

from __future__ import annotations

from leadline_common.api import failed_brokers as models
from leadline_controller.api.answers import Answers
from leadline_controller.domain.healing import replicas_on
from leadline_controller.domain.history import FailureRecord
from leadline_controller.runtime.active_controller import ActiveController


class HealingAnswers(Answers):
    """Answers `leadline_common.api.failed_brokers.HealingAdministration`."""

    def failed_brokers(self) -> models.FailedBrokersBody:
        """Return the brokers that are down."""
        reign = self._controller.reign()
        healing = reign.healing
        chunked = {task.node.details.get("broker", -1) for task in healing.chunks()}
        return models.FailedBrokersBody(
            suspended=healing.is_suspended,
            interval_ms=reign.desk.configs.current().failed_broker_interval_ms,
            brokers=[_failed(reign, broker) for broker in sorted({*healing.failed, *chunked})],
        )

    async def broker_failures(self, broker: int | None, limit: int) -> models.BrokerFailures:
        """Return the failures of a broker, or of all."""
        history = await self._controller.history()
        found = await history.failures(broker, limit)
        return models.BrokerFailures(failures=[_failure(record) for record in found])


def _failed(reign: ActiveController, broker: int) -> models.FailedBrokerBody:
    noted = reign.healing.failed.get(broker)
    return models.FailedBrokerBody(
        id=broker,
        failed_at=noted.failure_timestamp if noted else None,
        due_at=reign.healing.due_at(broker) if noted else None,
        incarnation=noted.incarnation if noted else None,
        detected_in_controller_epoch=noted.controller_epoch if noted else None,
        partitions=len(replicas_on(reign.image, broker)),
        chunks=[task.id for task in reign.healing.chunks(broker)],
    )


def _failure(record: FailureRecord) -> models.BrokerFailure:
    return models.BrokerFailure(
        broker=record.broker,
        failed_at=record.failed_at,
        incarnation=record.incarnation,
        detected_by=record.detected_by,
        controller_epoch=record.controller_epoch,
        outcome=record.outcome,
        queued_at=record.queued_at,
        over_at=record.over_at,
        returned_at=record.returned_at,
        chunks=record.chunks,
        chunks_over=record.chunks_over,
        chunks_cancelled=record.chunks_cancelled,
        partitions=record.partitions,
        partitions_moved=record.partitions_moved,
        bytes_moved=record.bytes_moved,
        down_ms=_between(record.failed_at, record.returned_at),
        healing_ms=_between(record.queued_at, record.over_at),
    )


def _between(since: int | None, until: int | None) -> int | None:
    return None if since is None or until is None else until - since

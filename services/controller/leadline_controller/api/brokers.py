"""Taking brokers out of service: from bodies to the runtime, and from its answers to bodies."""

from __future__ import annotations

import asyncio

from leadline_common.api import failed_brokers as models
from leadline_common.api.brokers import CanStop, DrainBody, RiskRow
from leadline_common.api.models import PartitionName
from leadline_common.api.tasks import Task
from leadline_controller.api.reassignments import dry_run_view
from leadline_controller.api.tasks import task_view
from leadline_controller.domain.controlled_shutdown import (
    assess_stop_risks,
    partitions_hosted_by,
    partitions_led_by,
)
from leadline_controller.domain.draining import move_leaders_off
from leadline_controller.domain.healing import replicas_on
from leadline_controller.domain.history import FailureRecord
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.reassignment.drains import DrainBroker, submission_of_drain
from leadline_controller.runtime.service import ControllerService

SHOWN = 20
"""Partitions that are named for each risk; the total counts them all."""


class BrokerEndpoints:
    """Answers `leadline_common.api.brokers.BrokerAdministration`."""

    _controller: ControllerService

    def can_stop(self, broker_id: int) -> CanStop:
        """Tell whether a broker may stop without harm."""
        self._controller.broker(broker_id)
        risks = assess_stop_risks(self._controller.image(), broker_id)
        return CanStop(
            broker=broker_id,
            can_stop=risks.can_stop,
            reasons=[
                RiskRow(
                    reason=risk,
                    total=len(names),
                    partitions=[
                        PartitionName(topic=name.topic, partition=name.partition)
                        for name in names[:SHOWN]
                    ],
                )
                for risk, names in risks.partitions.items()
            ],
        )

    async def drain(self, broker_id: int, wanted: DrainBody) -> Task:
        """Begin to empty a broker, or with `dry_run` only plan it."""
        if wanted.dry_run:
            return await self._plan_drain(broker_id, wanted)
        task_id = await self._controller.ask(
            DrainBroker,
            broker_id=broker_id,
            leaders_only=wanted.leaders_only,
            throttle_bytes_per_s=wanted.throttle_bytes_per_s,
        )
        active = self._controller.reign()
        return task_view(active, active.tasks.book.find(task_id))

    async def _plan_drain(self, broker_id: int, wanted: DrainBody) -> Task:
        active = self._controller.reign()
        question = active.drains.question(broker_id)
        rows = () if wanted.leaders_only else await asyncio.to_thread(question.plan)
        names = partitions_hosted_by(active.image, broker_id)
        leaders = len(move_leaders_off(active.image, names, frozenset({broker_id})))
        details = {
            "broker": broker_id,
            "leaders_only": wanted.leaders_only,
            "leaders": leaders,
            "leaders_that_stay": len(partitions_led_by(active.image, broker_id)) - leaders,
        }
        rate = wanted.throttle_bytes_per_s
        return dry_run_view(submission_of_drain(rows, details, rate, "operator"))

    def failed_brokers(self) -> models.FailedBrokers:
        """Return the brokers that are down."""
        active = self._controller.reign()
        healing = active.healing
        chunked = {task.node.details.get("broker", -1) for task in healing.chunks()}
        return models.FailedBrokers(
            suspended=healing.is_suspended,
            interval_ms=active.desk.configs.current().failed_broker_interval_ms,
            brokers=[_failed(active, broker) for broker in sorted({*healing.failed, *chunked})],
        )

    async def broker_failures(self, broker: int | None, limit: int) -> models.BrokerFailures:
        """Return the failures of a broker, or of all."""
        history = await self._controller.history()
        found = await history.failures(broker, limit)
        return models.BrokerFailures(failures=[_failure(record) for record in found])


def _failed(active: ActiveController, broker: int) -> models.FailedBroker:
    noted = active.healing.failed.get(broker)
    return models.FailedBroker(
        id=broker,
        failed_at=noted.failure_timestamp if noted else None,
        due_at=active.healing.due_at(broker) if noted else None,
        incarnation=noted.incarnation if noted else None,
        detected_in_controller_epoch=noted.controller_epoch if noted else None,
        partitions=len(replicas_on(active.image, broker)),
        chunks=[task.id for task in active.healing.chunks(broker)],
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

"""Broker routes: stop risks, drains, and failed brokers with their history."""

from __future__ import annotations

import asyncio

import msgspec

from leadline_common.access.caller import current_actor
from leadline_common.api import brokers as models
from leadline_common.api.brokers import CanStop, DrainBody, RiskRow
from leadline_common.api.models import TopicPartitionBody
from leadline_common.api.tasks import TaskBody
from leadline_common.slices import slices
from leadline_controller.api.reassignments import dry_run_view
from leadline_controller.api.tasks import find_task
from leadline_controller.domain.controlled_shutdown import (
    StopRisks,
    assess_stop_risks,
    partitions_hosted_by,
    partitions_led_by,
)
from leadline_controller.domain.draining import move_leaders_off
from leadline_controller.domain.healing import replicas_on
from leadline_controller.domain.history import FailureRecord
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.reassignment.drains import DrainBroker, submission_of_drain
from leadline_controller.runtime.reassignment.events import ForgetBroker
from leadline_controller.runtime.service import ControllerService

SHOWN = 20
"""The number of partitions listed for each risk; the total counts all of them."""


class BrokerEndpoints:
    """Implements `BrokerAdministration` and `HealingAdministration` of `leadline_common.api`."""

    _controller: ControllerService

    async def can_stop(self, broker_id: int) -> CanStop:
        """Tell whether a broker can stop without risk, and list the risks."""
        self._controller.broker(broker_id)
        image, risks = self._controller.image(), StopRisks({})
        async for some in slices(partitions_hosted_by(image, broker_id)):
            risks = risks.plus(assess_stop_risks(image, broker_id, some))
        return CanStop(
            broker=broker_id,
            can_stop=risks.can_stop,
            reasons=[
                RiskRow(
                    reason=risk,
                    total=len(partitions),
                    partitions=[
                        TopicPartitionBody(topic=topic, partition=number)
                        for topic, number in partitions[:SHOWN]
                    ],
                )
                for risk, partitions in risks.partitions.items()
            ],
        )

    async def drain(self, broker_id: int, wanted: DrainBody) -> TaskBody:
        """Start to drain a broker, or with `dry_run` only plan it."""
        if wanted.dry_run:
            return await self._plan_drain(broker_id, wanted)
        task_id = await self._controller.ask(
            DrainBroker(broker_id, wanted.leaders_only, wanted.throttle_bytes_per_s)
        )
        return find_task(self._controller, task_id)

    async def _plan_drain(self, broker_id: int, wanted: DrainBody) -> TaskBody:
        active = self._controller.active_controller()
        plan_input = active.drains.plan_input(broker_id)
        rows = () if wanted.leaders_only else await asyncio.to_thread(plan_input.plan)
        hosted = partitions_hosted_by(active.image, broker_id)
        leaders = len(move_leaders_off(active.image, hosted, frozenset({broker_id})))
        details = {
            "broker": broker_id,
            "leaders_only": wanted.leaders_only,
            "leaders": leaders,
            "leaders_that_stay": len(partitions_led_by(active.image, broker_id)) - leaders,
        }
        rate = wanted.throttle_bytes_per_s
        return dry_run_view(submission_of_drain(rows, details, rate, current_actor()))

    def failed_brokers(self) -> models.FailedBrokersBody:
        """Return the brokers that are down, and those whose healing has not ended."""
        active = self._controller.active_controller()
        return models.FailedBrokersBody(
            suspended=active.healing.is_suspended,
            interval_ms=active.configs.current().failed_broker_interval_ms,
            brokers=[_failed(active, broker) for broker in active.healing.shown()],
        )

    async def forget_broker(self, broker_id: int) -> models.ForgottenBroker:
        """Forget a broker that is down and has no replicas."""
        failed_at = await self._controller.ask(ForgetBroker(broker_id))
        return models.ForgottenBroker(id=broker_id, failed_at=failed_at)

    async def broker_failures(self, broker: int | None, limit: int) -> models.BrokerFailures:
        """Return the latest failures of a broker, or of all brokers with None."""
        history = await self._controller.history()
        found = await history.failures(broker, limit)
        return models.BrokerFailures(failures=[_failure(record) for record in found])


def _failed(active: ActiveController, broker: int) -> models.FailedBrokerBody:
    healing, records = active.healing, active.healing.records
    failed, dead = records.failed.get(broker), records.dead.get(broker)
    known, partitions = failed or dead, len(replicas_on(active.image, broker))
    return models.FailedBrokerBody(
        id=broker,
        state=healing.state_of(broker),
        waits_for=healing.waits_for(broker),
        failed_at=known.failure_timestamp if known else None,
        due_at=healing.due_at(broker) if failed else None,
        incarnation=known.incarnation if known else None,
        detected_in_controller_epoch=known.controller_epoch if known else None,
        partitions=partitions,
        partitions_moved=max(0, known.partitions - partitions) if known else 0,
        chunks=[task.id for task in healing.chunks(broker)],
        chunks_queued=dead.chunks if dead and not failed else None,
        queued_at=dead.queued_at if dead and not failed else None,
        healed_at=dead.healed_at if dead and not failed else None,
    )


def _failure(record: FailureRecord) -> models.BrokerFailure:
    return models.BrokerFailure(
        **msgspec.structs.asdict(record),
        outcome=record.outcome,
        down_ms=_between(record.failed_at, record.returned_at),
        healing_ms=_between(record.queued_at, record.over_at),
    )


def _between(since: int | None, until: int | None) -> int | None:
    return None if since is None or until is None else until - since

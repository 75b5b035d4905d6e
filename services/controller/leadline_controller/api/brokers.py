"""Taking brokers out of service: from bodies to the runtime, and from its answers to bodies."""

from __future__ import annotations

import asyncio

from leadline_common.api.brokers import CanStop, DrainBody, RiskRow
from leadline_common.api.models import TopicPartitionBody
from leadline_common.api.tasks import TaskBody
from leadline_controller.api.answers import Answers
from leadline_controller.api.reassignments import dry_run_view
from leadline_controller.api.tasks import task_view
from leadline_controller.domain.draining import move_leaders_off
from leadline_controller.domain.stopping import hosted_names, led_by, risks_of_stopping
from leadline_controller.runtime.reassignment.drains import DrainBroker, submission_of_drain

SHOWN = 20
"""Partitions that are named for each risk; the total counts them all."""


class BrokerAnswers(Answers):
    """Answers `leadline_common.api.brokers.BrokerAdministration`."""

    def can_stop(self, broker_id: int) -> CanStop:
        """Tell whether a broker may stop without harm."""
        self._controller.broker(broker_id)
        risks = risks_of_stopping(self._controller.image(), broker_id)
        return CanStop(
            broker=broker_id,
            can_stop=risks.can_stop,
            reasons=[
                RiskRow(
                    reason=risk,
                    total=len(names),
                    partitions=[
                        TopicPartitionBody(topic=name.topic, partition=name.partition)
                        for name in names[:SHOWN]
                    ],
                )
                for risk, names in risks.partitions.items()
            ],
        )

    async def drain(self, broker_id: int, wanted: DrainBody) -> TaskBody:
        """Begin to empty a broker, or with `dry_run` only plan it."""
        if wanted.dry_run:
            return await self._plan_drain(broker_id, wanted)
        task_id = await self._controller.ask(
            DrainBroker,
            broker_id=broker_id,
            leaders_only=wanted.leaders_only,
            throttle_bytes_per_s=wanted.throttle_bytes_per_s,
        )
        reign = self._controller.reign()
        return task_view(reign, reign.tasks.book.find(task_id))

    async def _plan_drain(self, broker_id: int, wanted: DrainBody) -> TaskBody:
        reign = self._controller.reign()
        question = reign.drains.question(broker_id)
        rows = () if wanted.leaders_only else await asyncio.to_thread(question.plan)
        names = hosted_names(reign.image, broker_id)
        leaders = len(move_leaders_off(reign.image, names, frozenset({broker_id})))
        details = {
            "broker": broker_id,
            "leaders_only": wanted.leaders_only,
            "leaders": leaders,
            "leaders_that_stay": len(led_by(reign.image, broker_id)) - leaders,
        }
        rate = wanted.throttle_bytes_per_s
        return dry_run_view(submission_of_drain(rows, details, rate, "operator"))

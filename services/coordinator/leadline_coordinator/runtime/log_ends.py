"""How far the logs reach, so that no offset is committed that no consumer can have read.

A commit up to an end that a leader has reported is accepted at once. For a commit beyond it the
leader is asked. Commits that arrive while others are asked about are asked about together, so the
number of requests does not grow with the number of commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from leadline_client.errors import LeadlineError
from leadline_client.wire import TopicPartition
from leadline_common.zk.errors import ZkError
from leadline_coordinator.domain.log_ends import LogPoint, is_within, later, refusal
from leadline_coordinator.runtime.context import CoordinatorContext

_PARALLEL: Final = 4
"""Questions at a time: a leader that does not answer does not hold up what others lead."""
_PAUSE_S: Final = 0.2


@dataclass(slots=True, eq=False)
class _Question:
    """Partitions that are asked about together, with the ids of their topics."""

    topic_ids: dict[TopicPartition, str] = field(default_factory=dict)
    answers: dict[TopicPartition, LogPoint] = field(default_factory=dict)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class LogEnds:
    """The highest end and leader epoch of each log that its leaders have reported in this term."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._known: dict[TopicPartition, LogPoint] = {}
        self._next = _Question()
        self._asking: set[asyncio.Task[None]] = set()
        self._closed = False

    async def refusals(
        self, points: Mapping[TopicPartition, LogPoint]
    ) -> dict[TopicPartition, LeadlineError]:
        """Return why some points may not be committed; nothing is awaited if all are known to.

        Waits at most `offsets.commit.timeout.ms` for leaders. An OffsetOutOfRange is certain;
        LeaderNotAvailable means that nobody knows.
        """
        beyond = self._beyond(points)
        if not beyond:
            return {}
        answers: dict[TopicPartition, LogPoint] = {}
        timeout_s = self._context.settings.offsets_commit_timeout_ms / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                unanswered = {one: at.topic_id for one, at in beyond.items()}
                while unanswered and not self._closed:
                    answers |= await self._ask(unanswered)
                    unanswered = {
                        one: topic_id for one, topic_id in unanswered.items() if one not in answers
                    }
                    if unanswered and not self._closed:
                        await asyncio.sleep(_PAUSE_S)
        return {
            one: refusal(one, point, answers.get(one))
            for one, point in self._beyond(points).items()
        }

    def forget(self, topic: str) -> None:
        """Forget the logs of a topic that was deleted."""
        for one in [one for one in self._known if one.topic == topic]:
            del self._known[one]

    async def close(self) -> None:
        """Stop asking; whoever waits is told that leaders do not answer."""
        self._closed = True
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        self._next.over.set()

    def _beyond(self, points: Mapping[TopicPartition, LogPoint]) -> dict[TopicPartition, LogPoint]:
        return {one: at for one, at in points.items() if not is_within(at, self._known.get(one))}

    async def _ask(self, topic_ids: Mapping[TopicPartition, str]) -> dict[TopicPartition, LogPoint]:
        """Ask the leaders, together with others that wait; return what they report."""
        question = self._next
        question.topic_ids.update(topic_ids)
        if len(self._asking) < _PARALLEL:
            task = asyncio.create_task(self._answer_all(), name="log-ends")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        await question.over.wait()
        return {one: at for one, at in question.answers.items() if one in topic_ids}

    async def _answer_all(self) -> None:
        while self._next.topic_ids:
            question, self._next = self._next, _Question()
            try:
                await self._answer(question)
            finally:
                question.over.set()

    async def _answer(self, question: _Question) -> None:
        try:
            brokers = await self._context.store.brokers()
        except ZkError:
            return
        ends = await self._context.brokers.log_ends(brokers, question.topic_ids.keys())
        for one, (offset, leader_epoch) in ends.items():
            reported = LogPoint(question.topic_ids[one], offset, leader_epoch)
            question.answers[one] = self._known[one] = later(self._known.get(one), reported)

"""The offsets of many partitions of the whole cluster in one request.

This broker answers for the partitions that it leads and asks the other leaders for the rest,
concurrently. Each partition has its own result, so one error does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from leadline_broker.domain.replica import Role
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    LeadlineError,
    NotLeader,
)
from leadline_client.wire import TopicPartition
from leadline_common.bulk_offsets import (
    BulkAnswer,
    BulkQuestion,
    LeaderRow,
    PartitionAnswer,
    PartitionQuestion,
)
from leadline_common.clock import Clock
from leadline_common.identity import ServiceAddress
from leadline_common.rpc import NO_ERROR
from leadline_common.slices import batched, slices
from leadline_common.waiting import CountedWait

_ATTEMPTS: Final = 2
"""How often to ask the leader of a partition: it may have just moved."""
MOST_ASKED: Final = 2_000
"""How many partitions a request to another leader names: it takes 10 ms to write and to read."""
_REQUEST_TIMEOUT_MS: Final = 3_000
_LOOKUP_MS: Final = 30
"""The additional timeout per timestamp, which may require reading a whole large batch."""
_WAIT_MARGIN_MS: Final = 2_000
"""How much longer than its wait a response may take."""
_RETRY_MS: Final = 300
"""How long to wait before asking again about partitions without a result."""


@dataclass(eq=False, kw_only=True)
class OffsetFinder:
    """Answers `POST /v1/offsets`. Owned by the event loop."""

    broker_state: BrokerState
    metadata: ClusterMetadataCache
    replicas: ReplicaManager
    serving: Serving
    peers: Peers
    clock: Clock
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def stop(self) -> None:
        """Answer every waiting request now, because the broker is about to stop."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the broker is about to stop, so that nobody may wait."""
        return self._stopping.is_set()

    async def until_stopping(self) -> None:
        """Wait until the broker is about to stop."""
        await self._stopping.wait()

    async def answer(self, question: BulkQuestion) -> BulkAnswer:
        """Return a result for each partition, in order; with `wait_ms`, wait for an update.

        Raises:
            InvalidRequest: no partition is requested, or `after` names one that is not.

        """
        asked = await self._expand(question)
        after = await _thresholds(question, asked)
        ask_leaders = question.scope == "cluster"
        deadline = self.clock.monotonic_ms() + question.wait_ms
        while True:
            found = await self._find(asked, ask_leaders=ask_leaders)
            left = deadline - self.clock.monotonic_ms()
            expired = left <= 0 or self.is_stopping
            if expired or (after and await _is_any_beyond(found, after)):
                return BulkAnswer(found)
            with CountedWait():
                await self._wait_for_update(found, after, left, ask_leaders=ask_leaders)

    async def _expand(self, question: BulkQuestion) -> list[PartitionQuestion]:
        if not question.topics and not question.partitions:
            raise InvalidRequest("name topics or partitions")
        named = (
            PartitionQuestion(topic, number, question.timestamp)
            for topic in question.topics
            for number in self.metadata.partition_numbers(topic) or [0]
        )
        expanded: list[PartitionQuestion] = []
        async for some in slices(chain(named, question.partitions)):
            expanded += some
        return expanded

    async def _find(
        self, asked: Sequence[PartitionQuestion], *, ask_leaders: bool
    ) -> list[PartitionAnswer]:
        """Return the results of this broker, and those of the other leaders for the rest."""
        found: list[PartitionAnswer] = []
        async for some in slices(asked):
            found += [await self._find_local(question) for question in some]
        for _ in range(_ATTEMPTS if ask_leaders else 0):
            by_leader = await self._by_leader(found)
            if not by_leader:
                break
            answers = await asyncio.gather(
                *(self._ask(to, [asked[i] for i in indexes]) for to, indexes in by_leader.items())
            )
            for indexes, rows in zip(by_leader.values(), answers, strict=True):
                for index, row in zip(indexes, rows, strict=True):
                    found[index] = row
        return found

    async def _by_leader(self, found: Sequence[PartitionAnswer]) -> dict[ServiceAddress, list[int]]:
        """Return the places of the results for which another leader is to be asked."""
        by_leader: dict[ServiceAddress, list[int]] = {}
        async for some in slices(enumerate(found)):
            for index, answer in some:
                leader = self._leader_to_ask(answer)
                if leader is not None:
                    by_leader.setdefault(leader, []).append(index)
        return by_leader

    async def _find_local(self, question: PartitionQuestion) -> PartitionAnswer:
        topic, partition = question.topic_partition
        if question.timestamp is not None:
            await asyncio.sleep(0)  # Each lookup reads the disk: let other tasks run.
        try:
            ends = await self.serving.offsets(topic, partition, question.timestamp)
        except LeadlineError as error:
            return _error_answer(question, error)
        identity = self.broker_state
        leader = LeaderRow(identity.broker_id, identity.url, ends.leader_epoch)
        return PartitionAnswer(topic, partition, leader=leader, offsets=ends)

    def _leader_to_ask(self, answer: PartitionAnswer) -> ServiceAddress | None:
        """Return the leader to ask instead of this broker, None if there is none."""
        hint = answer.leader
        if answer.error_code != NotLeader.code or hint is None:
            return None
        is_other = hint.id != self.broker_state.broker_id
        return self.broker_state.address_of(hint.id) if is_other else None

    async def _ask(
        self, leader: ServiceAddress, asked: Sequence[PartitionQuestion]
    ) -> list[PartitionAnswer]:
        """Return a leader's results, of which a limited number is asked for at a time.

        One that does not respond is not asked for the rest.
        """
        found: list[PartitionAnswer] = []
        for some in batched(asked, MOST_ASKED):
            try:
                found += await self._ask_some(leader, some)
            except LeadlineError as error:
                found += [_unavailable(row, error) for row in asked[len(found) :]]
                break
        return found

    async def _ask_some(
        self, leader: ServiceAddress, asked: list[PartitionQuestion]
    ) -> Sequence[PartitionAnswer]:
        """Return a leader's results. Raises LeadlineError if it gives none."""
        question = BulkQuestion(partitions=asked, scope="local")
        lookups = sum(row.timestamp is not None for row in asked)
        timeout_ms = _REQUEST_TIMEOUT_MS + lookups * _LOOKUP_MS
        rows = (await self.peers.offsets(leader, question, timeout_ms)).partitions
        if [row.topic_partition for row in rows] != [row.topic_partition for row in asked]:
            raise InvalidRequest("the response has other partitions")
        return rows

    async def _wait_for_update(
        self,
        found: Sequence[PartitionAnswer],
        after: Mapping[TopicPartition, int],
        left_ms: float,
        *,
        ask_leaders: bool,
    ) -> None:
        """Wait until a result may have changed, at most `left_ms`."""
        by_leader: dict[int, list[TopicPartition]] = {}
        watched = [answer for answer in found if answer.topic_partition in after]
        for answer in watched:
            if answer.leader is not None and answer.error_code == NO_ERROR:
                by_leader.setdefault(answer.leader.id, []).append(answer.topic_partition)
        if any(answer.error_code != NO_ERROR for answer in watched):
            left_ms = min(left_ms, _RETRY_MS)
        waits: list[Coroutine[Any, Any, object]] = [
            self._wait_local(topic_partitions, after)
            if leader == self.broker_state.broker_id
            else self._wait_at(leader, topic_partitions, after, left_ms)
            for leader, topic_partitions in by_leader.items()
        ]
        waits.append(self.until_stopping())
        if ask_leaders:
            version = self.metadata.version
            waits.append(self.metadata.wait_newer(version, max(1, int(left_ms))))
        await _first(waits, left_ms)

    async def _wait_local(
        self, topic_partitions: Iterable[TopicPartition], after: Mapping[TopicPartition, int]
    ) -> None:
        """Wait until a high watermark passes its offset, or this broker stops leading one."""
        led = [(key, self.replicas.named(*key)) for key in topic_partitions]
        watched = [(partition, after[key]) for key, partition in led if partition is not None]
        while all(
            partition.replica.role is Role.LEADER
            and partition.replica.state.high_watermark <= offset
            for partition, offset in watched
        ):
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            for partition, _ in watched:
                partition.watch(changed)
            try:
                await changed
            finally:
                for partition, _ in watched:
                    partition.unwatch(changed)

    async def _wait_at(
        self,
        leader: int,
        topic_partitions: Sequence[TopicPartition],
        after: Mapping[TopicPartition, int],
        left_ms: float,
    ) -> None:
        """Long-poll another leader; if that fails, return after a short pause."""
        wait_ms = max(1, int(left_ms))
        question = BulkQuestion(
            partitions=[PartitionQuestion(*key) for key in topic_partitions],
            scope="local",
            wait_ms=wait_ms,
            after=_nested({key: after[key] for key in topic_partitions}),
        )
        address = self.broker_state.address_of(leader)
        try:
            if address is None:
                raise LeaderNotAvailable(f"the address of broker {leader} is unknown")
            await self.peers.offsets(address, question, wait_ms + _WAIT_MARGIN_MS)
        except LeadlineError:
            await asyncio.sleep(_RETRY_MS / 1000)


async def _first(waits: Sequence[Coroutine[Any, Any, object]], left_ms: float) -> None:
    """Wait for the first coroutine to end, at most `left_ms`; cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _thresholds(
    question: BulkQuestion, asked: Iterable[PartitionQuestion]
) -> dict[TopicPartition, int]:
    if not question.after:
        return {}
    after = {
        TopicPartition(topic, partition): offset
        for topic, offsets in question.after.items()
        for partition, offset in offsets.items()
    }
    not_asked = set(after)
    async for some in slices(asked):
        not_asked.difference_update(row.topic_partition for row in some)
    if not_asked:
        raise InvalidRequest(f"after names {min(not_asked)}, which is not requested")
    return after


async def _is_any_beyond(
    found: Iterable[PartitionAnswer], after: Mapping[TopicPartition, int]
) -> bool:
    async for some in slices(found):
        for answer in some:
            offset, ends = after.get(answer.topic_partition), answer.offsets
            if offset is not None and ends is not None and ends.high_watermark > offset:
                return True
    return False


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    nested: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        nested.setdefault(topic, {})[partition] = offset
    return nested


def _error_answer(question: PartitionQuestion, error: LeadlineError) -> PartitionAnswer:
    hint = error.leader
    leader = LeaderRow(hint.id, hint.url, hint.epoch) if hint else None
    return PartitionAnswer(*question.topic_partition, error.code, error.message, leader)


def _unavailable(question: PartitionQuestion, error: LeadlineError) -> PartitionAnswer:
    """Return the result for a leader that did not respond."""
    unavailable = LeaderNotAvailable(
        f"the leader did not respond: {error.message}", leader=error.leader
    )
    return _error_answer(question, unavailable)

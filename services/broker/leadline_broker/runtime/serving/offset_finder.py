"""Where partitions begin and end, for many at once and over the whole cluster.

What this broker leads it answers itself; for the rest it asks the leaders, side
by side. Each partition is answered on its own: a refusal of one spoils nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from leadline_broker.domain.replica import Role
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.errors import (
    InvalidRequest,
    LeaderHint,
    LeaderNotAvailable,
    LeadlineError,
    NotLeader,
)
from leadline_common.bulk_offsets import (
    BulkAnswer,
    BulkQuestion,
    LeaderRow,
    PartitionAnswer,
    PartitionEnds,
    PartitionQuestion,
)
from leadline_common.clock import Clock
from leadline_common.rpc import NO_ERROR

Name = tuple[str, int]
"""Topic and partition."""

_HOPS: Final = 2
"""How often a partition is asked about elsewhere: its leader may just have moved."""
_PEER_MS: Final = 3_000
_LOOKUP_MS: Final = 30
"""How much longer each time to be looked up may take: of a large batch all records are read."""
_GRACE_MS: Final = 2_000
_UNSETTLED_MS: Final = 300
"""How long to wait before looking again at partitions that nobody could answer for."""


class OffsetFinder:
    """Answers `POST /v1/offsets`. Owned by the event loop."""

    def __init__(
        self,
        *,
        broker_state: BrokerState,
        metadata: ClusterMetadataCache,
        replicas: ReplicaManager,
        serving: Serving,
        peers: Peers,
        clock: Clock,
    ) -> None:
        self._broker_state = broker_state
        self._metadata = metadata
        self._replicas = replicas
        self._serving = serving
        self._peers = peers
        self._clock = clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Answer everybody who waits with what there is: the broker is about to go."""
        self._stopping.set()

    async def answer(self, question: BulkQuestion) -> BulkAnswer:
        """Answer for each partition in order, waiting for one to move if asked to.

        Raises:
            InvalidRequest: nothing is asked, or `after` names what is not asked.

        """
        asked = self._expand(question)
        after = _watched(question, asked)
        elsewhere = question.scope == "cluster"
        deadline = self._clock.monotonic_ms() + question.wait_ms
        while True:
            found = await self._look(asked, elsewhere=elsewhere)
            left = deadline - self._clock.monotonic_ms()
            over = left <= 0 or self._stopping.is_set()
            if over or any(_is_beyond(one, after) for one in found):
                return BulkAnswer(found)
            await self._until_news(found, after, left, elsewhere=elsewhere)

    def _expand(self, question: BulkQuestion) -> list[PartitionQuestion]:
        if not question.topics and not question.partitions:
            raise InvalidRequest("name topics or partitions")
        whole = [
            PartitionQuestion(topic, number, question.timestamp)
            for topic in question.topics
            for number in self._metadata.partition_numbers(topic) or [0]
        ]
        return [*whole, *question.partitions]

    async def _look(
        self, asked: Sequence[PartitionQuestion], *, elsewhere: bool
    ) -> list[PartitionAnswer]:
        """Answer for what is led here, and let the other leaders answer for the rest."""
        found = [await self._here(one) for one in asked]
        for _ in range(_HOPS if elsewhere else 0):
            by_url: dict[str, list[int]] = {}
            for place, one in enumerate(found):
                url = self._to_ask(one)
                if url:
                    by_url.setdefault(url, []).append(place)
            if not by_url:
                break
            answers = await asyncio.gather(
                *(self._there(url, [asked[p] for p in places]) for url, places in by_url.items())
            )
            for places, rows in zip(by_url.values(), answers, strict=True):
                for place, row in zip(places, rows, strict=True):
                    found[place] = row
        return found

    async def _here(self, one: PartitionQuestion) -> PartitionAnswer:
        if one.timestamp is not None:
            await asyncio.sleep(0)  # Each look-up reads the disk; others want their turn.
        try:
            ends = self._serving.offsets(*one.name)
            offset, timestamp = None, None
            if one.timestamp is not None:
                offset, timestamp = self._serving.offset_for_timestamp(*one.name, one.timestamp)
        except LeadlineError as error:
            return _refused(one, error)
        return PartitionAnswer(
            *one.name,
            leader=LeaderRow(
                self._broker_state.broker_id, self._broker_state.url, ends.leader_epoch
            ),
            offsets=PartitionEnds(
                ends.log_start_offset,
                ends.high_watermark,
                ends.log_end_offset,
                ends.leader_epoch,
                offset,
                timestamp,
            ),
        )

    def _to_ask(self, found: PartitionAnswer) -> str:
        """Return the URL of the broker that leads what was refused; empty where none is known."""
        hint = found.leader
        if found.error_code != NotLeader.code or hint is None:
            return ""
        return hint.url if hint.id != self._broker_state.broker_id else ""

    async def _there(
        self, url: str, asked: Sequence[PartitionQuestion]
    ) -> Sequence[PartitionAnswer]:
        question = BulkQuestion(partitions=list(asked), scope="local")
        timed = sum(one.timestamp is not None for one in asked)
        timeout_ms = _PEER_MS + timed * _LOOKUP_MS
        try:
            rows = (await self._peers.offsets(url, question, timeout_ms)).partitions
        except LeadlineError as error:
            return [_silent(one, error) for one in asked]
        if [row.name for row in rows] != [one.name for one in asked]:
            return [_silent(one, InvalidRequest("it answered for others")) for one in asked]
        return rows

    async def _until_news(
        self,
        found: Sequence[PartitionAnswer],
        after: Mapping[Name, int],
        left_ms: float,
        *,
        elsewhere: bool,
    ) -> None:
        """Wait until it is worth looking again, no longer than `left_ms`."""
        by_url: dict[str, list[Name]] = {}
        for one in found:
            if one.leader is not None and one.error_code == NO_ERROR and one.name in after:
                by_url.setdefault(one.leader.url, []).append(one.name)
        if any(one.error_code != NO_ERROR and one.name in after for one in found):
            left_ms = min(left_ms, _UNSETTLED_MS)
        waits: list[Coroutine[Any, Any, object]] = [
            self._moved_here(names, after)
            if url == self._broker_state.url
            else self._moved_there(url, names, after, left_ms)
            for url, names in by_url.items()
        ]
        waits.append(self._stopping.wait())
        if elsewhere:
            version = self._metadata.version
            waits.append(self._metadata.wait_newer(version, max(1, int(left_ms))))
        await _first(waits, left_ms)

    async def _moved_here(self, names: Iterable[Name], after: Mapping[Name, int]) -> None:
        """Wait until one moves past its offset, or is led here no more."""
        led = [(name, self._replicas.named(*name)) for name in names]
        watched = [(partition, after[name]) for name, partition in led if partition is not None]
        while all(
            partition.replica.role is Role.LEADER
            and partition.replica.state.high_watermark <= offset
            for partition, offset in watched
        ):
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            for partition, _ in watched:
                partition.watch(news)
            try:
                await news
            finally:
                for partition, _ in watched:
                    partition.unwatch(news)

    async def _moved_there(
        self, url: str, names: Sequence[Name], after: Mapping[Name, int], left_ms: float
    ) -> None:
        """Have another leader wait; where it does not answer, look again a little later."""
        wait_ms = max(1, int(left_ms))
        question = BulkQuestion(
            partitions=[PartitionQuestion(*name) for name in names],
            scope="local",
            wait_ms=wait_ms,
            after=_nested({name: after[name] for name in names}),
        )
        try:
            await self._peers.offsets(url, question, wait_ms + _GRACE_MS)
        except LeadlineError:
            await asyncio.sleep(_UNSETTLED_MS / 1000)


async def _first(waits: Sequence[Coroutine[Any, Any, object]], left_ms: float) -> None:
    """Wait for the first to end, or for the time; the others are given up."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _watched(question: BulkQuestion, asked: Iterable[PartitionQuestion]) -> dict[Name, int]:
    after = {
        (topic, partition): offset
        for topic, offsets in question.after.items()
        for partition, offset in offsets.items()
    }
    unasked = after.keys() - {one.name for one in asked}
    if unasked:
        topic, partition = min(unasked)
        raise InvalidRequest(f"after names {topic}-{partition}, which is not asked about")
    return after


def _is_beyond(one: PartitionAnswer, after: Mapping[Name, int]) -> bool:
    offset = after.get(one.name)
    return offset is not None and one.offsets is not None and one.offsets.high_watermark > offset


def _nested(offsets: Mapping[Name, int]) -> dict[str, dict[int, int]]:
    nested: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        nested.setdefault(topic, {})[partition] = offset
    return nested


def _refused(one: PartitionQuestion, error: LeadlineError) -> PartitionAnswer:
    return PartitionAnswer(*one.name, error.code, error.message, _row(error.leader))


def _silent(one: PartitionQuestion, error: LeadlineError) -> PartitionAnswer:
    """Answer for a leader that did not: to the reader it is not there at present."""
    refusal = LeaderNotAvailable(f"the leader did not say: {error.message}", leader=error.leader)
    return _refused(one, refusal)


def _row(hint: LeaderHint | None) -> LeaderRow | None:
    return LeaderRow(hint.id, hint.url, hint.epoch) if hint else None

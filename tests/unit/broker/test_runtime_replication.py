"""Followers, fetch sessions and ISR changes, by brokers that replicate for real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from leadline_client.errors import (
    ConnectionLost,
    FetchSessionUnknown,
    LeadershipLost,
    UnknownPartition,
)
from leadline_common import rpc
from leadline_common.identity import InternalAddress
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch, three


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


def isr(cluster: SmallCluster) -> tuple[int, ...]:
    return cluster.nodes.states[TOPIC, 0].isr


async def test_a_new_leader_serves_all_that_was_acknowledged(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a", "b")
    cluster.cut = {1}
    cluster.publish(2, 1, (2, 3))
    await cluster.grant(2, 3)

    result = await cluster.produce(2, "c")

    assert (result.base_offset, result.leader_epoch) == (2, 1)
    assert await cluster.read(2) == ["a", "b", "c"]


async def test_a_former_leader_drops_what_was_never_committed(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a")
    cluster.cut = {1}
    lost = asyncio.create_task(cluster.produce(1, "x", "y"))
    await cluster.until(lambda: cluster.end(1) == 3, "the old leader appends")
    cluster.publish(2, 1, (2, 3))
    await cluster.grant(2, 3)
    await cluster.produce(2, "b")

    cluster.cut = set()
    await cluster.grant(1)

    with pytest.raises(LeadershipLost):
        await lost
    await cluster.until(lambda: cluster.stored(1) == cluster.stored(2), "the logs are one")
    await cluster.until(lambda: 1 in isr(cluster), "it is in sync again")
    assert await cluster.read(2) == ["a", "b"]


def has_log(cluster: SmallCluster, number: int) -> bool:
    """Return whether a replica has ever written anything."""
    (replica,) = cluster.brokers[number].engine.replicas.describe()
    return Path(replica.log_dir).exists()


async def test_defect_08_a_follower_appends_nothing_of_an_epoch_above_the_leaders(
    cluster: SmallCluster,
) -> None:
    refused: list[bytes] = []

    def flip(records: bytes) -> bytes:
        if not records:
            return records
        refused.append(records)
        return records[:13] + bytes([records[13] ^ 4]) + records[14:]

    cluster.wires[3].damage = flip

    await cluster.produce(1, "a", acks="1")
    await cluster.until(lambda: len(refused) > 1, "the follower refuses it, and fetches again")

    assert not has_log(cluster, 3)
    cluster.wires[3].damage = bytes
    await cluster.until(lambda: cluster.stored(3) == cluster.stored(1) != b"", "it catches up")


@pytest.mark.parametrize("change", [{"nonce": 0}, {"incarnation": 0}])
async def test_an_answer_to_another_request_or_of_an_earlier_leader_is_not_used(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, change: dict[str, int]
) -> None:
    """It may be late: what it says of the leader's log may be true no more (rules R1, R3)."""
    fetch = cluster.wires[3].fetch
    changed: list[rpc.ReplicaFetchResponse] = []

    async def late(
        to: InternalAddress, request: rpc.ReplicaFetchRequest, timeout_ms: int
    ) -> rpc.ReplicaFetchResponse:
        answer = msgspec.structs.replace(await fetch(to, request, timeout_ms), **change)
        changed.append(answer)
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(cluster.wires[3], "fetch", late)
        await cluster.until(lambda: bool(changed), "the last answer that was in time is used")
        await cluster.produce(1, "a", acks="1")
        await cluster.until(
            lambda: sum(bool(answer.topics) for answer in changed) > 1, "records came, and again"
        )
        assert not has_log(cluster, 3)

    await cluster.until(lambda: cluster.stored(3) == cluster.stored(1) != b"", "it catches up")


async def test_a_silent_follower_leaves_the_isr_and_comes_back(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a")
    cluster.cut = {3}

    await cluster.produce(1, "b")
    assert isr(cluster) == (1, 2)
    cluster.cut = set()

    await cluster.until(lambda: isr(cluster) == (1, 2, 3), "it is in sync again")
    assert [proposal.reason for proposal in cluster.stores[1].written] == ["lagging", "caught up"]
    assert cluster.stored(1) == cluster.stored(3)


async def test_a_refused_joiner_is_asked_again(cluster: SmallCluster) -> None:
    cluster.cut = {3}
    await cluster.produce(1, "a")
    cluster.stores[1].refused_joiners = 2

    cluster.cut = set()

    await cluster.until(lambda: isr(cluster) == (1, 2, 3), "it is in sync again")
    assert cluster.stores[1].refused_joiners == 0


async def test_an_isr_write_of_unknown_outcome_is_settled_by_reading(
    cluster: SmallCluster,
) -> None:
    cluster.stores[1].lost_answers = 1
    cluster.cut = {3}

    await cluster.produce(1, "a")

    assert isr(cluster) == (1, 2)
    broker, beats = cluster.brokers[1], cluster.wires[1].heartbeats
    assert broker.engine.replicas.describe()[0].isr == (1, 2)
    await cluster.until(
        lambda: any((TOPIC, 0) in beat.isr_changes for beat in beats), "the controller is told"
    )
    registry = broker._dependencies.metrics._metrics.registry
    assert registry.get_sample_value("leadline_isr_changes_total", {"kind": "shrink"}) == 1


async def test_a_leader_that_was_succeeded_steps_down_by_what_it_reads(
    cluster: SmallCluster,
) -> None:
    cluster.cut = {2, 3}
    produce = asyncio.create_task(cluster.produce(1, "a"))
    cluster.publish(2, 1, (2, 3))

    with pytest.raises(LeadershipLost):
        await produce

    assert cluster.brokers[1].engine.replicas.describe()[0].role == "fenced"
    await cluster.until(
        lambda: cluster.wires[1].heartbeats[-1].replicas == 0, "the heartbeat tells it"
    )


async def test_the_commit_waits_for_a_proposed_member(cluster: SmallCluster) -> None:
    cluster.cut = {3}
    await cluster.produce(1, "a")
    cluster.stores[1].writing.clear()
    cluster.cut = set()
    await cluster.until(
        lambda: cluster.end(3) == 1, "the follower has the record, its admission is being written"
    )
    cluster.cut = {3}

    produce = asyncio.create_task(cluster.produce(1, "b", timeout_ms=10_000))
    await cluster.until(lambda: cluster.end(2) == 2, "the other follower has the record")
    cluster.stores[1].writing.set()

    await produce
    assert isr(cluster) == (1, 2)


async def test_followers_learn_the_high_watermark(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a")

    await cluster.until(
        lambda: all(
            b.engine.replicas.describe()[0].high_watermark == 1 for b in cluster.brokers.values()
        ),
        "everybody knows the high watermark",
    )


async def test_partitions_added_to_a_parked_fetcher_do_not_wait_for_it(tmp_path: Path) -> None:
    async with await three(tmp_path, replica_fetch_wait_max_ms=60_000) as cluster:
        await cluster.produce(1, "a")
        cluster.publish(1, 0, (1, 2, 3), partition=1)
        await cluster.grant(1, 2, 3, partitions=(1,))

        result = await cluster.brokers[1].engine.serving.produce(
            TOPIC, 1, batch("b"), acks="all", timeout_ms=10_000
        )

        assert result.base_offset == 0


class WatchedFetches:
    """What broker 2 asks its leader.

    `breaks` answers the next request that waits for nothing. With `holds` the next response with
    records stays on its way until there was such a request; `held` is set meanwhile. With `delays`
    no request that waits for nothing reaches the leader. `under_way` counts the requests.
    """

    def __init__(self, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.named: list[int] = []
        self.breaks: Callable[[rpc.ReplicaFetchRequest], rpc.ReplicaFetchResponse] | None = None
        self.holds = False
        self.held = asyncio.Event()
        self.delays = False
        self.under_way = 0
        self._second = asyncio.Event()
        self._never = asyncio.Event()
        """Held here: the collector would end a request that waits for an event of its own."""
        self._cluster = cluster
        self._waiting = 0
        self._fetch = cluster.wires[2].fetch
        monkeypatch.setattr(cluster.wires[2], "fetch", self._watched)

    async def parked(self) -> None:
        """Wait until a request of a follower that has everything waits at the leader."""
        await self._cluster.until(lambda: self._waiting == 1 and not self._behind(), "it waits")

    def _behind(self) -> bool:
        ends = [
            {one.partition: one.log_end_offset for one in broker.engine.replicas.describe()}
            for number, broker in self._cluster.brokers.items()
            if number != 3
        ]
        return ends[0] != ends[1]

    async def _watched(
        self, to: InternalAddress, request: rpc.ReplicaFetchRequest, timeout_ms: int
    ) -> rpc.ReplicaFetchResponse:
        self.under_way += 1
        try:
            if self.delays and not request.wait_ms:
                await self._never.wait()
            return await self._answer(to, request, timeout_ms)
        finally:
            self.under_way -= 1

    async def _answer(
        self, to: InternalAddress, request: rpc.ReplicaFetchRequest, timeout_ms: int
    ) -> rpc.ReplicaFetchResponse:
        self.named.extend(row.partition for topic in request.topics for row in topic.partitions)
        if not request.wait_ms:
            self._second.set()
            if self.breaks is not None:
                breaks, self.breaks = self.breaks, None
                return breaks(request)
        self._waiting += request.wait_ms > 0
        try:
            answer = await self._fetch(to, request, timeout_ms)
        finally:
            self._waiting -= request.wait_ms > 0
        if self.holds and any(row.records for topic in answer.topics for row in topic.partitions):
            self.holds = False
            self.held.set()
            await self._second.wait()
        return answer


async def add_partition(cluster: SmallCluster, number: int) -> None:
    cluster.publish(1, 0, (1, 2, 3), partition=number)
    await cluster.grant(1, 2, 3, partitions=(number,))


async def produce_to(cluster: SmallCluster, partition: int) -> None:
    await cluster.brokers[1].engine.serving.produce(
        TOPIC, partition, batch("b"), acks="all", timeout_ms=10_000
    )


async def test_partitions_added_to_a_parked_fetcher_are_named_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that names every partition costs much where there are ten thousand."""
    async with await three(tmp_path, replica_fetch_wait_max_ms=60_000) as cluster:
        watched = WatchedFetches(cluster, monkeypatch)
        await cluster.produce(1, "a")
        for partition in (1, 2, 3):
            await watched.parked()
            watched.named.clear()
            await add_partition(cluster, partition)
            await produce_to(cluster, partition)
            assert set(watched.named) == {partition}


async def test_records_that_came_while_a_wait_was_ended_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader has sent them, and would not send them again in this session."""
    async with await three(tmp_path, replica_fetch_wait_max_ms=60_000) as cluster:
        watched = WatchedFetches(cluster, monkeypatch)
        await cluster.produce(1, "a")
        await watched.parked()
        watched.holds = True
        produced = asyncio.create_task(produce_to(cluster, 0))
        await watched.held.wait()

        await add_partition(cluster, 1)

        await produced
        await produce_to(cluster, 1)
        assert isr(cluster) == (1, 2, 3)


def lose(request: rpc.ReplicaFetchRequest) -> rpc.ReplicaFetchResponse:
    raise ConnectionLost(f"request {request.nonce} was lost")


def forget_session(request: rpc.ReplicaFetchRequest) -> rpc.ReplicaFetchResponse:
    return rpc.ReplicaFetchResponse(request.nonce, 1, FetchSessionUnknown.code, [])


@pytest.mark.parametrize("fault", [lose, forget_session])
async def test_a_fetcher_that_cannot_end_a_wait_names_every_partition(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[rpc.ReplicaFetchRequest], rpc.ReplicaFetchResponse],
) -> None:
    async with await three(tmp_path, replica_fetch_wait_max_ms=60_000) as cluster:
        watched = WatchedFetches(cluster, monkeypatch)
        await cluster.produce(1, "a")
        await watched.parked()
        watched.named.clear()
        watched.breaks = fault

        await add_partition(cluster, 1)
        await produce_to(cluster, 1)

        assert watched.breaks is None
        assert set(watched.named) == {0, 1}
        await produce_to(cluster, 0)


async def test_a_fetcher_that_is_stopped_leaves_no_request_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await three(tmp_path, replica_fetch_wait_max_ms=60_000) as cluster:
        watched = WatchedFetches(cluster, monkeypatch)
        await cluster.produce(1, "a")
        await watched.parked()
        watched.delays = True
        await add_partition(cluster, 1)
        await add_partition(cluster, 2)
        await cluster.until(lambda: watched.under_way > 1, "a second request is under way")
        assert watched.under_way == 2, "however many partitions are added"

        await cluster.stop(2)

        assert watched.under_way == 0


async def test_an_idle_partition_is_not_in_the_answer(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a")
    session = Session(cluster)

    first = await session.ask(0, rows=[rpc.FetchRow(0, 0, 0, -1)])
    second = await session.ask(1, rows=[rpc.FetchRow(0, 0, 1, 0)])
    third = await session.ask(2)

    assert [row.records != b"" for row in session.rows(first)] == [True]
    assert [row.records for row in session.rows(second)] in ([], [b""])
    assert session.rows(third) == []


async def test_what_does_not_fit_comes_with_the_next_answer(cluster: SmallCluster) -> None:
    cluster.publish(1, 0, (1, 2, 3), partition=1)
    await cluster.grant(1, 2, 3, partitions=(1,))
    for partition in (0, 1):
        await cluster.brokers[1].engine.serving.produce(
            TOPIC, partition, batch("a"), acks="all", timeout_ms=5_000
        )
    session = Session(cluster)

    first = await session.ask(
        0, rows=[rpc.FetchRow(0, 0, 0, -1), rpc.FetchRow(1, 0, 0, -1)], max_bytes=1
    )
    second = await session.ask(1, max_bytes=1)

    rows = [*session.rows(first), *session.rows(second)]
    served = [row.partition for row in rows if row.records]
    assert served == [0, 1]


async def test_an_unknown_session_is_refused(cluster: SmallCluster) -> None:
    session = Session(cluster)

    answer = await session.ask(5)

    assert answer.error_code == FetchSessionUnknown.code


async def test_a_repeated_request_is_refused(cluster: SmallCluster) -> None:
    session = Session(cluster)
    await session.ask(0, rows=[rpc.FetchRow(0, 0, 0, -1)])
    await session.ask(1)

    again = await session.ask(1)

    assert again.error_code == FetchSessionUnknown.code


async def test_a_newer_request_ends_the_wait_of_an_older_one(cluster: SmallCluster) -> None:
    session = Session(cluster)
    await session.ask(0, rows=[rpc.FetchRow(0, 0, 0, -1)])
    parked = asyncio.create_task(session.ask(1, wait_ms=60_000))
    await asyncio.sleep(0)

    newer = asyncio.create_task(session.ask(2, wait_ms=60_000))
    await asyncio.sleep(0)
    await cluster.produce(1, "a", acks="1")

    assert session.rows(await asyncio.wait_for(parked, 5)) == []
    assert [row.records != b"" for row in session.rows(await asyncio.wait_for(newer, 5))] == [True]


async def test_an_unknown_partition_is_named_in_the_answer(cluster: SmallCluster) -> None:
    session = Session(cluster)

    answer = await session.ask(0, rows=[rpc.FetchRow(9, 0, 0, -1)])

    assert [row.error_code for row in session.rows(answer)] == [UnknownPartition.code]


class Session:
    """A follower's session with broker 1 as broker 3, which is cut off."""

    FIRST = 1_000_000

    def __init__(self, cluster: SmallCluster) -> None:
        cluster.cut = {3}
        self._leader = cluster.brokers[1]

    async def ask(
        self,
        step: int,
        *,
        rows: list[rpc.FetchRow] | None = None,
        max_bytes: int = 1 << 20,
        wait_ms: int = 1,
    ) -> rpc.ReplicaFetchResponse:
        """Send the request number `step` of the session; number 0 opens it."""
        return await self._leader.engine.sessions.fetch(
            rpc.ReplicaFetchRequest(
                broker_id=3,
                incarnation=1,
                session=self.FIRST,
                nonce=self.FIRST + step,
                wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                topics=[rpc.FetchTopic(TOPIC_ID, rows)] if rows else [],
            )
        )

    @staticmethod
    def rows(answer: rpc.ReplicaFetchResponse) -> list[rpc.FetchedRow]:
        """Return the rows of an answer."""
        return [row for topic in answer.topics for row in topic.partitions]


async def test_a_fetcher_survives_what_nobody_expects(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError("a fault in an answer")

    with monkeypatch.context() as patched:
        patched.setattr(cluster.wires[2], "fetch", fault)
        cluster.publish(1, 1, (1, 2, 3))
        await cluster.grant(1, 2, 3)
        await cluster.produce(1, "a", acks="1")
        await cluster.until(lambda: cluster.end(3) == 1, "the other follower has the record")

    await cluster.produce(1, "b", acks="1")
    await cluster.until(lambda: cluster.end(2) == 2, "the follower fetches again")

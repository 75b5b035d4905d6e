"""What a session returns, and how long a leader remembers a follower's position."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from leadline_broker.adapters.log.kernel_fsyncs import Fsyncs
from leadline_broker.domain.replica import Replica
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.replication.fetch_sessions import FetchSessions
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.throttle import MovingThrottle, Throttle
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_client.batch_header import parse_headers
from leadline_client.batches import stamp
from leadline_common import rpc
from leadline_common.settings import BrokerSettings
from tests.unit.broker.log_support import open_log
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, batch

HOUR_MS = 3_600_000


class SettableClock:
    """A clock that the test sets."""

    now = 0

    def monotonic_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now


def led(
    root: Path, number: int, *, moving: bool = False, fsyncs: Fsyncs | None = None
) -> Partition:
    """Return a partition that this broker, 1, leads, and that 2 follows or is being added to."""
    root.joinpath(str(number)).mkdir()
    log = open_log(root / str(number), fsyncs=fsyncs)
    replica = Replica(broker_id=1, topic_id=TOPIC_ID, partition=number, log=log)
    isr, adding = ((1,), (2,)) if moving else ((1, 2), ())
    replica.on_leader_and_isr(rpc.PartitionRow(number, 1, 0, isr, (1, 2), 0, (), adding), 0)
    settings = TopicSettings(BrokerSettings(broker_id=1, log_dir=str(root))).of({})
    return Partition(TOPIC, TOPIC_ID, number, log, replica, settings)


def opening(nonce: int, *partitions: int) -> rpc.ReplicaFetchRequest:
    """Return the first request of a session of follower 2."""
    rows = [rpc.FetchRow(number, 0, 0, -1) for number in partitions]
    return rpc.ReplicaFetchRequest(
        broker_id=2,
        incarnation=1,
        session=nonce,
        nonce=nonce,
        wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        topics=[rpc.FetchTopic(TOPIC_ID, rows)],
        forgotten=[],
    )


def next_one(
    nonce: int, *, wait_ms: int, topics: list[rpc.FetchTopic] | None = None
) -> rpc.ReplicaFetchRequest:
    """Return a later request of the session 1."""
    return msgspec.structs.replace(opening(1), nonce=nonce, wait_ms=wait_ms, topics=topics or [])


def rates(bytes_per_s: int) -> list[rpc.MovingRate]:
    return [rpc.MovingRate("7", bytes_per_s, {TOPIC_ID: [0]})]


def all_sessions(
    partitions: dict[tuple[str, int], Partition],
    clock: SettableClock,
    moving: list[rpc.MovingRate] | None = None,
) -> FetchSessions:
    throttle = MovingThrottle(*(Throttle(clock, lambda _: None) for _ in range(2)))
    throttle.on_heartbeat_response(moving)
    return FetchSessions(
        broker_state=BrokerState(1, lambda: True),
        find=partitions.get,
        execute=lambda *_: None,
        clock=clock,
        throttle=throttle,
        read=lambda partition, *what: partition.log.read(*what),
    )


def sizes(answer: rpc.ReplicaFetchResponse) -> dict[int, int]:
    """Return the bytes of records that an answer has for each partition."""
    rows = [row for topic in answer.topics for row in topic.partitions]
    return {row.partition: len(row.records) for row in rows if row.records}


async def test_moving_replicas_come_last_and_within_the_throttle(tmp_path: Path) -> None:
    """They share a session if follower and leader disagree about which replicas move."""
    moving, normal = led(tmp_path, 0, moving=True), led(tmp_path, 1)
    for partition in (moving, normal):
        for offset in range(10):
            data = batch("x" * 1_000)
            stamp(data, next(parse_headers(data)), offset, 0)
            partition.log.append(data)
    size = moving.log.size_bytes // 10
    clock = SettableClock()
    sessions = all_sessions({p.key: p for p in (moving, normal)}, clock, rates(10 * size))
    small = msgspec.structs.replace(opening(1, 0, 1), max_bytes=size)
    request = msgspec.structs.replace(opening(2, 0, 1), max_bytes=100 * size, wait_ms=5)

    free = all_sessions({p.key: p for p in (moving, normal)}, clock)
    assert sizes(await free.fetch(small)) == {1: size}
    free.close_all()

    assert sizes(await sessions.fetch(request)) == {1: 10 * size}

    clock.now = 500
    again = msgspec.structs.replace(request, nonce=3, topics=[])
    assert sizes(await sessions.fetch(again)) == {0: 5 * size}

    stated = [rpc.FetchTopic(TOPIC_ID, [rpc.FetchRow(0, 0, 5, 0)])]
    again = msgspec.structs.replace(request, nonce=4, topics=stated)
    assert sizes(await sessions.fetch(again)) == {}


async def test_appends_do_not_wake_a_follower_that_is_held_back(tmp_path: Path) -> None:
    moving = led(tmp_path, 0, moving=True)
    sessions = all_sessions({moving.key: moving}, SettableClock(), rates(0))
    request = msgspec.structs.replace(opening(1, 0), wait_ms=60_000)
    parked = asyncio.ensure_future(sessions.fetch(request))
    await asyncio.sleep(0)

    moving.appended(1_000)
    await asyncio.sleep(0)
    assert not parked.done()

    sessions.close_all()
    await parked


async def test_a_follower_of_an_earlier_epoch_is_told_nothing_until_it_asks_in_the_new_one(
    tmp_path: Path,
) -> None:
    """It has to get its own role first: its positions could only be refused."""
    partition = led(tmp_path, 0)
    sessions = all_sessions({(TOPIC_ID, 0): partition}, SettableClock())
    await sessions.fetch(opening(1, 0))
    waiting = asyncio.create_task(sessions.fetch(next_one(2, wait_ms=60_000)))
    await asyncio.sleep(0)

    partition.replica.on_leader_and_isr(rpc.PartitionRow(0, 1, 1, (1, 2), (1, 2), 1), 0)
    partition.role_changed()
    await asyncio.sleep(0)

    assert not waiting.done()
    assert partition.subscribers is None
    position = rpc.FetchTopic(TOPIC_ID, [rpc.FetchRow(0, 1, 0, -1)])
    answer = await sessions.fetch(next_one(3, wait_ms=0, topics=[position]))
    assert all(row.error_code == rpc.NO_ERROR for t in answer.topics for row in t.partitions)
    assert partition.subscribers is not None
    assert not (await waiting).topics


async def test_a_session_that_was_left_behind_is_closed_in_time(tmp_path: Path) -> None:
    """The follower left it for a new one and no longer follows one of its partitions."""
    partitions = {(TOPIC_ID, number): led(tmp_path, number) for number in (0, 1)}
    clock = SettableClock()
    sessions = all_sessions(partitions, clock)
    await sessions.fetch(opening(1, 0, 1))
    await sessions.fetch(opening(2, 0))
    assert len(sessions) == 2

    clock.now = HOUR_MS
    await sessions.fetch(opening(3, 0))

    assert len(sessions) == 1
    assert partitions[TOPIC_ID, 1].subscribers is None

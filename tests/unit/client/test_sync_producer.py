"""The blocking producer: how often it changes threads, order, room, and what it refuses."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import pytest

from leadline_client.errors import InvalidRequest, UnknownPartition, UnknownTopic
from leadline_client.event_loop_thread import EventLoopThread
from leadline_client.partition_queue import Acknowledgement
from leadline_client.payloads import OutgoingRecord
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.sync_producer import Producer, SendQueue, SentRecord
from tests.unit.client.standin import StandInCluster

T = TypeVar("T")
DEADLINE_S = 20


class CountedThread(EventLoopThread):
    """Counts how often another thread turns to this one."""

    hand_overs = 0

    def call_soon(self, action: Callable[[], object]) -> None:
        type(self).hand_overs += 1
        super().call_soon(action)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        type(self).hand_overs += 1
        return super().start(work)


class HeldProducer(AsyncProducer):
    """Keeps the first record back until `let_go` is set, as it does without room or metadata."""

    holds = threading.Event()
    let_go = asyncio.Event()

    async def add(
        self,
        topic: str,
        partition: int | None,
        record: OutgoingRecord,
        size: int,
        future: Acknowledgement,
    ) -> None:
        self.holds.set()
        await self.let_go.wait()
        await super().add(topic, partition, record, size, future)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> type[HeldProducer]:
    HeldProducer.holds, HeldProducer.let_go = threading.Event(), asyncio.Event()
    monkeypatch.setattr("leadline_client.sync_producer.AsyncProducer", HeldProducer)
    return HeldProducer


class Interrupted(Exception):
    """What a signal's handler raises, as Ctrl-C does."""


@contextmanager
def interrupted_by(event: threading.Event) -> Iterator[None]:
    """Have the main thread interrupted when the event is set."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    def press() -> None:
        event.wait(DEADLINE_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        yield
    finally:
        pressing.join()
        signal.signal(signal.SIGUSR1, before)


def sent(size: int) -> SentRecord:
    return SentRecord("t", 0, OutgoingRecord(b""), size, Future())


def queue(limit: int = 10_000, batch_bytes: int = 1_000) -> tuple[SendQueue, list[bool]]:
    wakes: list[bool] = []
    return SendQueue(limit=limit, batch_bytes=batch_bytes, wake=wakes.append), wakes


def test_defect_21_the_thread_is_woken_once_per_take_and_once_per_batch() -> None:
    waiting, wakes = queue()
    for _ in range(99):
        waiting.add(sent(10))
    assert wakes == [False]
    waiting.add(sent(10))
    assert wakes == [False, True]
    assert len(waiting.take()) == 100
    waiting.add(sent(10))
    assert wakes == [False, True, False]


def test_a_full_queue_waits_until_records_are_acknowledged() -> None:
    waiting, wakes = queue(limit=100, batch_bytes=10_000)
    waiting.add(sent(60))
    adding = threading.Thread(target=waiting.add, args=[sent(60)], daemon=True)
    adding.start()
    while len(wakes) < 2:
        adding.join(0.01)
    assert wakes == [False, True], "whoever waits for room has the records taken at once"
    assert len(waiting.take()) == 1
    waiting.acknowledge(60)
    adding.join(DEADLINE_S)
    assert len(waiting.take()) == 1


def test_a_closed_queue_refuses_also_those_who_wait() -> None:
    waiting, _ = queue(limit=100)
    waiting.add(sent(60))
    waiting.close()
    with pytest.raises(InvalidRequest, match="is closed"):
        waiting.add(sent(60))


def test_defect_21_a_stream_of_records_changes_threads_a_few_times(
    cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline_client.sync_producer.EventLoopThread", CountedThread)
    patient = ProducerSettings(linger_ms=60_000)
    with Producer(cluster.bootstrap, patient) as producer:
        before = CountedThread.hand_overs
        futures = [producer.send("t", b"%d" % n, partition=0) for n in range(2_000)]
        assert CountedThread.hand_overs - before <= 2, "the first metadata, and one wake-up"
        producer.flush()
    assert [future.result().offset for future in futures] == list(range(2_000))
    assert cluster.values(0) == [b"%d" % n for n in range(2_000)]


def test_records_are_sent_without_a_flush_and_in_order(cluster: StandInCluster) -> None:
    small = ProducerSettings(linger_ms=1, batch_bytes=300, buffer_bytes=2_000)
    with Producer(cluster.bootstrap, small) as producer:
        futures = [producer.send("t", b"%d" % n, partition=1) for n in range(500)]
        assert futures[-1].result(DEADLINE_S).offset == 499
    assert cluster.values(1) == [b"%d" % n for n in range(500)]


def test_what_does_not_exist_is_refused_by_the_call_itself(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap) as producer:
        with pytest.raises(UnknownTopic):
            producer.send("nowhere", b"v")
        for partition in (-1, 3):
            with pytest.raises(UnknownPartition):
                producer.send("t", b"v", partition=partition)
        assert producer.send("t", b"v", partition=2).result(DEADLINE_S).offset == 0


def test_a_record_that_was_cancelled_in_time_is_not_sent(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap, ProducerSettings(linger_ms=60_000)) as producer:
        first = producer.send("t", b"a", partition=0)
        assert producer.send("t", b"b", partition=0).cancel()
        producer.flush()
        assert first.result().offset == 0
        assert not first.cancel()
    assert cluster.values(0) == [b"a"]


def test_a_flush_leaves_no_timer_for_what_it_has_sent(cluster: StandInCluster) -> None:
    """Such a timer would start a move when the producer closes, which nothing waits for."""
    with Producer(cluster.bootstrap, ProducerSettings(linger_ms=60_000)) as producer:
        for _ in range(2):
            producer.send("t", b"v", partition=0)
            assert producer._thread.call(lambda: producer._timer) is not None
            producer.flush()
            assert producer._thread.call(lambda: producer._timer) is None


def test_a_closed_producer_refuses_records(cluster: StandInCluster) -> None:
    producer = Producer(cluster.bootstrap)
    last = producer.send("t", b"v", partition=0)
    producer.close()
    assert last.result().offset == 0, "closing delivers what was sent"
    with pytest.raises(InvalidRequest, match="is closed"):
        producer.send("t", b"v", partition=0)


def test_an_interrupted_flush_loses_no_record(
    cluster: StandInCluster, held: type[HeldProducer]
) -> None:
    with Producer(cluster.bootstrap, ProducerSettings(linger_ms=60_000)) as producer:
        futures = [producer.send("t", b"%d" % n, partition=0) for n in range(5)]
        with interrupted_by(held.holds), pytest.raises(Interrupted):
            producer.flush()
        producer._thread.call(held.let_go.set)
        producer.flush()
        assert [future.result(DEADLINE_S).offset for future in futures] == list(range(5))
    assert cluster.values(0) == [b"%d" % n for n in range(5)]


def test_an_interrupted_close_leaves_no_future_open(
    cluster: StandInCluster, held: type[HeldProducer]
) -> None:
    producer = Producer(cluster.bootstrap, ProducerSettings(linger_ms=60_000))
    futures = [producer.send("t", b"%d" % n, partition=0) for n in range(5)]
    with interrupted_by(held.holds), pytest.raises(Interrupted):
        producer.close()
    for future in futures:
        with pytest.raises((asyncio.CancelledError, CancelledError)):
            future.result(DEADLINE_S)
    assert cluster.values(0) == []


def test_a_producer_may_be_closed_twice_and_then_refuses_every_topic(
    cluster: StandInCluster,
) -> None:
    with Producer(cluster.bootstrap) as producer:
        producer.close()
        with pytest.raises(InvalidRequest, match="is closed"):
            producer.send("never seen", b"v")


def test_a_callback_that_waits_for_its_own_thread_is_refused(cluster: StandInCluster) -> None:
    refused = threading.Event()

    def flush(_: object) -> None:
        with pytest.raises(RuntimeError, match="must not wait"):
            producer.flush()
        refused.set()

    with Producer(cluster.bootstrap) as producer:
        producer.send("t", b"v", partition=0).add_done_callback(flush)
        assert refused.wait(DEADLINE_S)

"""Any number of replicas is stopped in requests of a bounded size."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from leadline_client.errors import ConnectionLost, StorageFailed
from leadline_common import rpc
from leadline_common.identity import InternalAddress
from leadline_controller.domain.cluster import ClusterImage, DeletionPending
from leadline_controller.runtime.channel import broker_queue
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue
from leadline_controller.runtime.channel.pending_roles import MOST_STOPS
from tests.support.services.zookeeper import until
from tests.unit.controller.broker_queues import Broker, Held, empty_queue, image_of, sending

SIZES = [MOST_STOPS // 2] * 5 + [3 * MOST_STOPS]


class StoppingBroker(Broker):
    """Notes the replicas that it stops; refuses those in `kept`, and loses the `lost` requests."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[list[tuple[str, int]]] = []
        self.kept: set[tuple[str, int]] = set()
        self.lost: set[int] = set()
        self.queue: BrokerRequestQueue | None = None
        self.role_at: int | None = None

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        if path != rpc.STOP_REPLICA_PATH:
            return await super().post(to, path, body, timeout_ms)
        self.paths.append(path)
        request = msgspec.json.decode(body, type=rpc.StopReplicaRequest)
        rows = [(t.topic, row.partition) for t in request.topics for row in t.partitions]
        is_lost = len(self.stops) in self.lost
        self.stops.append([] if is_lost else rows)
        if self.queue is not None and len(self.stops) == self.role_at:
            self.queue.add_roles("t0", [0])
        if is_lost:
            raise ConnectionLost("nobody answers")
        codes = [
            [
                StorageFailed.code if (t.topic, row.partition) in self.kept else rpc.NO_ERROR
                for row in t.partitions
            ]
            for t in request.topics
        ]
        return msgspec.json.encode(rpc.CommandResponse(1, 0, codes))

    def stopped(self) -> Counter[tuple[str, int]]:
        """Return how often each replica was stopped."""
        return Counter(row for rows in self.stops for row in rows)


def deleting(receiver: StoppingBroker) -> BrokerRequestQueue:
    """Return the queue of broker 1, of which all topics but the first are being deleted."""
    queue = empty_queue(image_of([1, *SIZES]), receiver, Held())
    receiver.queue = queue
    delete_all(queue.image, queue)
    return queue


def delete_all(image: ClusterImage, queue: BrokerRequestQueue) -> None:
    """Begin to delete all topics but the first."""
    for name, topic in list(image.topics.items())[1:]:
        image.apply([DeletionPending(name, 20)])
        queue.add_stop(name, topic.partitions)


async def test_very_many_replicas_are_deleted_in_requests_of_a_bounded_size() -> None:
    receiver = StoppingBroker()
    queue = deleting(receiver)
    async with sending(queue):
        await until(lambda: queue.idle, "everything is acknowledged")

    assert max(map(len, receiver.stops)) == MOST_STOPS
    assert len(receiver.stopped()) == sum(SIZES)
    assert set(receiver.stopped().values()) == {1}


async def test_what_is_not_answered_is_pending_until_it_is() -> None:
    receiver = StoppingBroker()
    receiver.lost = {1}
    receiver.kept = {("t1", 0), ("t6", 7)}
    queue = deleting(receiver)
    async with sending(queue):
        await until(lambda: receiver.stopped()["t6", 7] > 1, "it is asked again")
        assert queue.stop_pending("t1", [0])
        assert queue.stop_pending("t6", [7])
        assert not queue.stop_pending("t6", [8])
        receiver.kept.clear()
        await until(lambda: queue.idle, "everything is acknowledged")

    assert len(receiver.stopped()) == sum(SIZES)


async def test_what_is_refused_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_queue, "MIN_BACKOFF_S", 3_600.0)
    receiver = StoppingBroker()
    receiver.kept = {(f"t{number}", 0) for number in range(1, 1 + len(SIZES))}
    queue = deleting(receiver)
    async with sending(queue):
        await until(lambda: len(receiver.stopped()) == sum(SIZES), "each is stopped")
        assert set(receiver.stopped().values()) == {1}


async def test_a_role_does_not_wait_for_all_stops() -> None:
    receiver = StoppingBroker()
    receiver.role_at = 2
    queue = deleting(receiver)
    async with sending(queue):
        await until(lambda: queue.idle, "everything is acknowledged")

    assert receiver.paths.index(rpc.LEADER_AND_ISR_PATH) == 1 + receiver.role_at  # metadata first
    assert len(receiver.stopped()) == sum(SIZES)


@pytest.mark.parametrize("lost", [set[int](), {2}])
async def test_a_grant_waits_for_all_stops(lost: set[int]) -> None:
    """It would make strays of what is still to be deleted."""
    receiver = StoppingBroker()
    queue = empty_queue(image_of([1, *SIZES]), receiver, Held())
    receiver.lost = lost
    queue.add_grant()
    delete_all(queue.image, queue)
    queue.add_roles("t0", [0])
    async with sending(queue):
        await until(lambda: queue.idle, "everything is acknowledged")

    before = receiver.paths[: receiver.paths.index(rpc.LEADER_AND_ISR_PATH)]
    assert before == [rpc.STOP_REPLICA_PATH] * len(receiver.stops)
    assert [len(one.topics) for one in receiver.requests] == [1]

"""The requests of one broker's queue, and a broker that takes them, for tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec

from leadline_client.errors import ConnectionLost, StorageFailed
from leadline_common import rpc
from leadline_common.identity import InternalAddress
from leadline_common.rpc import ControllerRow
from leadline_common.znodes import PartitionState, TopicAssignment
from leadline_controller.domain.cluster import BrokerUp, ClusterImage, StateSet, TopicSet
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue
from leadline_controller.runtime.channel.calls import BrokerCalls
from leadline_controller.runtime.channel.listener import DispatchListener
from leadline_controller.runtime.channel.requests import RequestBuilder
from tests.unit.controller.images import broker

_decode = msgspec.json.Decoder(rpc.LeaderAndIsrRequest).decode


class Broker:
    """Takes every role that is not `refused`, and has the latest metadata."""

    def __init__(self) -> None:
        self.requests: list[rpc.LeaderAndIsrRequest] = []
        self.paths: list[str] = []
        self.before_metadata: list[rpc.LeaderAndIsrRequest] | None = None
        self.refused: set[tuple[str, int]] = set()
        self.is_gone = False

    def code(self, topic: str, partition: int) -> int:
        return StorageFailed.code if (topic, partition) in self.refused else rpc.NO_ERROR

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        del to, timeout_ms
        self.paths.append(path)
        if self.is_gone:
            raise ConnectionLost("nobody answers")
        if path == rpc.UPDATE_METADATA_PATH:
            if self.before_metadata is None:
                self.before_metadata = list(self.requests)
            version = msgspec.json.decode(body)["version"]
            return msgspec.json.encode(rpc.UpdateMetadataResponse(1, version))
        if path == rpc.STOP_REPLICA_PATH:
            return msgspec.json.encode(rpc.CommandResponse(1, 0, [[rpc.NO_ERROR]]))
        request = _decode(body)
        self.requests.append(request)
        codes = [
            [self.code(topic.topic, row.partition) for row in topic.partitions]
            for topic in request.topics
        ]
        return msgspec.json.encode(rpc.CommandResponse(1, 0, codes))

    async def close(self) -> None:
        """Nothing is open."""


def image_of(sizes: list[int]) -> ClusterImage:
    """Return an image with topics of so many partitions, all led by broker 1."""
    image = ClusterImage(controller_epoch=7)
    image.apply([BrokerUp(broker(1), zxid=1)])
    for number, size in enumerate(sizes):
        assignment = TopicAssignment(f"id-{number}", dict.fromkeys(range(size), (1,)))
        image.apply([TopicSet(f"t{number}", assignment, 0, zxid=2)])
        state = PartitionState(1, 4, (1,), controller_epoch=6)
        image.apply([StateSet(f"t{number}", p, state, 3, 10) for p in range(size)])
    return image


class Held:
    """Whether metadata is held, because more changes are being written."""

    def __init__(self) -> None:
        self.is_held = False


def empty_queue(
    image: ClusterImage,
    receiver: Broker,
    held: Held,
    progressed: Callable[[], None] = lambda: None,
) -> BrokerRequestQueue:
    """Return the queue of broker 1, which has nothing pending but metadata."""
    listener = DispatchListener(
        progressed=progressed,
        invalidate=lambda _: None,
        controller_changed=lambda: None,
        sent=lambda *_: None,
        holds_metadata=lambda: held.is_held,
    )
    builder = RequestBuilder(image, "c1", ControllerRow(7, "http://127.0.0.1:1", 3), 1000)
    calls = BrokerCalls(image.brokers[1], receiver, listener, 1000)
    return BrokerRequestQueue(image.brokers[1], image, builder, listener, calls)


def queue_of(
    sizes: list[int], receiver: Broker, *, waiting: int = 0, held: Held | None = None
) -> BrokerRequestQueue:
    """Return the queue of broker 1, with the roles of topics of so many partitions.

    The last `waiting` topics may wait for metadata.
    """
    queue = empty_queue(image_of(sizes), receiver, held or Held())
    for number, size in enumerate(sizes):
        may_wait = number >= len(sizes) - waiting
        queue.add_roles(f"t{number}", range(size), may_wait=may_wait)
    return queue


@asynccontextmanager
async def sending(queue: BrokerRequestQueue) -> AsyncIterator[None]:
    running = asyncio.create_task(queue.run())
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def sent_in(requests: Iterable[rpc.LeaderAndIsrRequest]) -> Counter[tuple[str, int]]:
    """Return how often each role was sent."""
    return Counter(
        (topic.topic, row.partition)
        for request in requests
        for topic in request.topics
        for row in topic.partitions
    )

"""How the pending roles of one broker are divided into requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec
import pytest

from leadline_client.errors import StorageFailed
from leadline_common import rpc
from leadline_common.identity import InternalAddress
from leadline_common.rpc import ControllerRow
from leadline_common.znodes import PartitionState, TopicAssignment
from leadline_controller.domain.cluster import BrokerUp, ClusterImage, StateSet, TopicSet
from leadline_controller.runtime.channel.broker_queue import (
    BrokerRequestQueue,
    DispatchListener,
)
from leadline_controller.runtime.channel.pending_roles import MOST_ROLES
from leadline_controller.runtime.channel.requests import RequestBuilder
from tests.support.services.zookeeper import until
from tests.unit.controller.images import broker

_decode = msgspec.json.Decoder(rpc.LeaderAndIsrRequest).decode


class Broker:
    """Takes every role that is not `refused`, and has the latest metadata."""

    def __init__(self) -> None:
        self.requests: list[rpc.LeaderAndIsrRequest] = []
        self.before_metadata: list[rpc.LeaderAndIsrRequest] | None = None
        self.refused: set[tuple[str, int]] = set()

    def code(self, topic: str, partition: int) -> int:
        return StorageFailed.code if (topic, partition) in self.refused else rpc.NO_ERROR

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        del to, timeout_ms
        if path == rpc.UPDATE_METADATA_PATH:
            if self.before_metadata is None:
                self.before_metadata = list(self.requests)
            version = msgspec.json.decode(body)["version"]
            return msgspec.json.encode(rpc.UpdateMetadataResponse(1, version))
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


def queue_of(sizes: list[int], receiver: Broker) -> BrokerRequestQueue:
    """Return the queue of broker 1, with the roles of topics of so many partitions."""
    image = image_of(sizes)
    listener = DispatchListener(
        progressed=lambda: None,
        invalidate=lambda _: None,
        controller_changed=lambda: None,
        sent=lambda *_: None,
        holds_metadata=lambda: False,
    )
    builder = RequestBuilder(image, "c1", ControllerRow(7, "http://127.0.0.1:1", 3), 1000)
    queue = BrokerRequestQueue(image.brokers[1], image, builder, receiver, listener, 1000)
    for number, size in enumerate(sizes):
        queue.add_roles(f"t{number}", range(size))
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


@pytest.mark.parametrize(
    "sizes",
    [
        [1],
        [MOST_ROLES],
        [MOST_ROLES + 1],
        [3 * MOST_ROLES],
        [700] * 10,
        [1, MOST_ROLES, 1],
        [10, 2 * MOST_ROLES + 5, 10],
    ],
)
async def test_each_role_is_sent_once_and_no_request_has_too_many(sizes: list[int]) -> None:
    receiver = Broker()
    queue = queue_of(sizes, receiver)

    async with sending(queue):
        await until(lambda: queue.idle, "everything is acknowledged")

    sent = sent_in(receiver.requests)
    expected = {(f"t{number}", p) for number, size in enumerate(sizes) for p in range(size)}
    assert sent == Counter(expected)
    counts = [sum(len(topic.partitions) for topic in one.topics) for one in receiver.requests]
    assert max(counts) <= MOST_ROLES
    assert len(counts) <= 2 * sum(sizes) / MOST_ROLES + 1


@pytest.mark.parametrize("refused", [("t0", 0), ("t3", 600), ("t9", 699)])
async def test_no_role_waits_for_one_that_is_refused(refused: tuple[str, int]) -> None:
    """All others precede the metadata, as without it; it is sent again until it is taken."""
    receiver = Broker()
    receiver.refused = {refused}
    sizes = [700] * 10
    queue = queue_of(sizes, receiver)

    async with sending(queue):
        await until(lambda: sent_in(receiver.requests)[refused] > 2, "it is sent again")
        assert receiver.before_metadata is not None
        assert len(sent_in(receiver.before_metadata)) == sum(sizes)
        assert queue.roles_pending
        assert not queue.roles_unanswered
        receiver.refused.clear()
        await until(lambda: queue.idle, "everything is acknowledged")

    others = sent_in(receiver.requests)
    del others[refused]
    assert set(others.values()) == {1}


async def test_others_are_served_while_the_metadata_of_many_topics_is_encoded() -> None:
    """Each change of a topic is encoded once, for all brokers."""
    image = image_of([500] * 8)
    builder = RequestBuilder(image, "c1", ControllerRow(7, "http://127.0.0.1:1", 3), 1000)
    encoding = [asyncio.create_task(builder.encode_topics(None)) for _ in range(2)]
    turns = 0
    while not all(task.done() for task in encoding):
        await asyncio.sleep(0)
        turns += 1

    body, version = builder.metadata(image.brokers[1], None, "cause")

    assert turns >= 2
    assert version == image.version
    assert len(msgspec.json.decode(body)["topics"]) == 8

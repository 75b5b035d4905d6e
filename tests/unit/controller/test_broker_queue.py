"""How the pending roles of one broker are divided into requests."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

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
    """Takes every role, and has the latest metadata."""

    def __init__(self) -> None:
        self.requests: list[rpc.LeaderAndIsrRequest] = []

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        del to, timeout_ms
        if path == rpc.UPDATE_METADATA_PATH:
            version = msgspec.json.decode(body)["version"]
            return msgspec.json.encode(rpc.UpdateMetadataResponse(1, version))
        request = _decode(body)
        self.requests.append(request)
        codes = [[rpc.NO_ERROR] * len(topic.partitions) for topic in request.topics]
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
    image, receiver = image_of(sizes), Broker()
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

    running = asyncio.create_task(queue.run())
    await until(lambda: queue.idle, "everything is acknowledged")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    sent = Counter(
        (topic.topic, row.partition)
        for request in receiver.requests
        for topic in request.topics
        for row in topic.partitions
    )
    expected = {(f"t{number}", p) for number, size in enumerate(sizes) for p in range(size)}
    assert sent == Counter(expected)
    counts = [sum(len(topic.partitions) for topic in one.topics) for one in receiver.requests]
    assert max(counts) <= MOST_ROLES
    assert len(counts) <= 2 * sum(sizes) / MOST_ROLES + 1

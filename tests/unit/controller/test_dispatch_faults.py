"""What becomes of the requests to a broker after a fault in sending them."""

from __future__ import annotations

import pytest

from leadline_common import rpc
from leadline_common.identity import InternalAddress
from leadline_common.znodes import PartitionState
from leadline_controller.domain.cluster import StateSet
from leadline_controller.runtime.channel import dispatcher
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from tests.support.services.zookeeper import until
from tests.unit.controller.broker_queues import Broker, Held, empty_queue, image_of


class FaultyBroker(Broker):
    """While it is faulty, its next answer is nested too deeply for the decoder."""

    is_faulty = False

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        if self.is_faulty and path == rpc.LEADER_AND_ISR_PATH:
            self.is_faulty = False
            return b'{"unknown":' + 100_000 * b"["
        return await super().post(to, path, body, timeout_ms)


async def test_a_fault_does_not_end_what_is_sent_to_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does what was in flight seem acknowledged until it is sent again."""
    monkeypatch.setattr(dispatcher, "PAUSE_AFTER_FAULT_S", 0.1)
    image, receiver = image_of([3]), FaultyBroker()
    sender = BrokerDispatcher(image, lambda _: empty_queue(image, receiver, Held()))
    sender.follow_image([1])
    try:
        await until(sender.idle, "the broker has its grant")
        receiver.is_faulty = True
        change = StateSet("t0", 2, PartitionState(1, 5, (1,), controller_epoch=7), 4, 11)
        image.apply([change])
        sender.send_roles([change])
        await until(lambda: sender.idle() and not receiver.is_faulty, "the role has been sent")
    finally:
        await sender.close()
    epochs = {row.partition: row.leader_epoch for row in receiver.requests[-1].topics[0].partitions}
    assert epochs[2] == 5

"""Comparing what brokers have applied with what they should have, a part at a time."""

from __future__ import annotations

import pytest

from leadline_common import rpc
from leadline_common.znodes import PartitionState, TopicAssignment
from leadline_controller.domain.cluster import BrokerUp, ClusterImage, StateSet, TopicSet
from leadline_controller.runtime.channel import dispatcher
from leadline_controller.runtime.channel.dispatcher import Digests
from tests.unit.controller.images import broker

PARTITIONS = 25
TOPIC_ID = "1" * 32


def image_of_one_topic() -> ClusterImage:
    """Return an image with 25 partitions, all led by broker 1 in epoch 4."""
    image = ClusterImage(controller_epoch=7)
    image.apply([BrokerUp(broker(1), zxid=1)])
    assignment = TopicAssignment(TOPIC_ID, dict.fromkeys(range(PARTITIONS), (1,)))
    image.apply([TopicSet("t", assignment, 0, zxid=2)])
    state = PartitionState(1, 4, (1,), controller_epoch=6)
    image.apply([StateSet("t", p, state, 3, 10) for p in range(PARTITIONS)])
    return image


def test_what_changed_is_summed_up_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "MOST_DIGESTED", 10)
    image = image_of_one_topic()
    digests = Digests(image)

    assert [digests.follow() for _ in range(3)] == [False, False, True]
    expected = rpc.digest_of((TOPIC_ID, number, 4) for number in range(PARTITIONS))
    assert digests.of(1) == (PARTITIONS, expected)

    image.apply([StateSet("t", 7, PartitionState(1, 5, (1,), 6), 4, 11)])
    digests.touch("t", 7)
    assert digests.follow()
    expected = rpc.digest_of((TOPIC_ID, n, 5 if n == 7 else 4) for n in range(PARTITIONS))
    assert digests.of(1) == (PARTITIONS, expected)

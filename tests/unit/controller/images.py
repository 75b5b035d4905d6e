"""Small cluster images for tests of decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.znodes import BrokerRegistration, PartitionState, TopicAssignment
from leadline_controller.domain.cluster import (
    BrokerUp,
    ClusterImage,
    ClusterPolicy,
    StateSet,
    TopicSet,
)
from leadline_controller.domain.failover import StateDecision

TOPIC = "orders"
NAME = TopicPartition(TOPIC, 0)


def broker(broker_id: int, incarnation: int = 0, rack: str | None = None) -> BrokerRegistration:
    url = f"http://127.0.0.1:{9000 + broker_id}"
    return BrokerRegistration(broker_id, "127.0.0.1", 9000 + broker_id, url, rack, incarnation)


def on_directory(broker_id: int, epoch: int, incarnation: int = 1) -> BrokerRegistration:
    """Return the registration of a broker with its directory of this epoch."""
    return msgspec.structs.replace(broker(broker_id, incarnation), directory_epoch=epoch)


def brokers(ids: Collection[int], incarnation: int = 0) -> dict[int, BrokerRegistration]:
    return {b: broker(b, incarnation) for b in sorted(ids)}


def cluster(
    live: Collection[int],
    assignment: Mapping[int, tuple[int, ...]],
    states: Mapping[int, PartitionState] | None = None,
    *,
    policy: ClusterPolicy | None = None,
    zxid: int = 10,
) -> ClusterImage:
    """Return an image with one topic; brokers registered at zxid 1, states written at `zxid`."""
    image = ClusterImage(policy, controller_epoch=7)
    image.apply([BrokerUp(broker(b), zxid=1) for b in sorted(live)])
    image.apply([TopicSet(TOPIC, TopicAssignment("id-1", dict(assignment)), 0, zxid=2)])
    image.apply([StateSet(TOPIC, p, state, 3, zxid) for p, state in (states or {}).items()])
    return image


def state(leader: int, isr: tuple[int, ...], epoch: int = 4) -> PartitionState:
    return PartitionState(leader, epoch, isr, controller_epoch=6)


def carry_out(image: ClusterImage, decisions: list[StateDecision], zxid: int = 100) -> None:
    """Apply decisions as if ZooKeeper had accepted every write."""
    image.apply([StateSet(d.topic, d.partition, d.after, d.version + 1, zxid) for d in decisions])


def the_state(image: ClusterImage, name: TopicPartition = NAME) -> PartitionState:
    partition = image.partition(name)
    assert partition is not None
    assert partition.state is not None
    return partition.state

"""Loading the cluster image after an election, with everything that decisions depend on."""

from __future__ import annotations

from leadline_common import znodes
from leadline_common.leader_election import LeadershipTerm
from leadline_controller.domain.cluster import (
    Change,
    ClusterImage,
    ClusterPolicy,
    DeletionPending,
    RemovalPending,
)
from leadline_controller.domain.topics import is_meant_for
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.topics.partition_intents import find_removals


async def load_image(
    store: ControllerStore, policy: ClusterPolicy, term: LeadershipTerm
) -> ClusterImage:
    """Read brokers, topics, partition states, and pending deletions and removals.

    An earlier controller may have died in the middle of a deletion. So its orders are read
    before anything is decided: no role may be granted, and no state written, for what is
    to be deleted (rule R12). They are read last. Only a controller completes a deletion,
    and the earlier ones cannot write any more (rule R11), so no topic is read without a
    tombstone that it had. What operators change meanwhile is found when the watches are set.

    Costs at most N/1000 + T/500 + 9 reads for N partitions and T topics, and two for each
    topic with partitions to remove.
    """
    image = ClusterImage(policy, controller_epoch=term.epoch)
    live = await store.live_brokers()
    image.apply(live.brokers.values())
    image.apply(await store.read_topics(await store.topic_names()))
    image.apply(await store.read_states([one for one, _ in image.partitions()]))
    image.apply(await _pending_removals(store, image))
    image.apply(await _pending_deletions(store, image))
    return image


async def _pending_deletions(store: ControllerStore, image: ClusterImage) -> list[Change]:
    return [
        DeletionPending(tombstone.topic)
        for tombstone in await store.tombstones()
        if (topic := image.topics.get(tombstone.topic)) is not None
        and is_meant_for(topic, tombstone.topic_id)
    ]


async def _pending_removals(store: ControllerStore, image: ClusterImage) -> list[Change]:
    found: list[Change] = []
    for name, intents in (await store.intents(znodes.PARTITIONS_REMOVE)).items():
        topic = image.topics.get(name)
        if topic is not None:
            found.append(RemovalPending(name, find_removals(topic, intents).numbers))
    return found

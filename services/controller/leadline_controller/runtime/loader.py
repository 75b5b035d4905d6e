"""Loading the world after winning: bulk reads, one image, the same `apply` as in live work.

Cost: at most N/1000 + T/500 + 7 reads for N partitions and T topics.
"""

from __future__ import annotations

from leadline_common.leader_election import LeadershipTerm
from leadline_controller.domain.cluster import ClusterImage, ClusterPolicy
from leadline_controller.runtime.ports import Store


async def load_image(store: Store, policy: ClusterPolicy, term: LeadershipTerm) -> ClusterImage:
    """Read brokers, topics and states. What changes meanwhile is found when watches are set."""
    image = ClusterImage(policy, controller_epoch=term.epoch)
    live = await store.live_brokers()
    image.apply(live.brokers.values())
    image.apply(await store.read_topics(await store.topic_names()))
    image.apply(await store.read_states([name for name, _ in image.partitions()]))
    return image

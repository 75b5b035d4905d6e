"""Creating many topics, one after another."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping

from peers.report.samples import Metric
from peers.sequences.on_cluster import Subject
from peers.systems.system import BROKERS
from peers.systems.waiting import until, until_whole


async def measure(subject: Subject) -> AsyncIterator[Mapping[Metric, float]]:
    """Create all topics; yield how long it took until every broker's metadata had them."""
    system, sizes = subject.system, subject.sizes
    await until_whole(system)  # A broker may have lost its session while all of them started.
    known = len((await system.view(BROKERS[0])).partitions)
    wanted = known + sizes.topics * sizes.partitions
    begun = time.monotonic()
    for number in range(sizes.topics):
        await system.create_topic(f"t{number:03d}", sizes.partitions)

    async def named_everywhere() -> bool:
        views = [await system.view(number) for number in BROKERS]
        return all(
            len(view.partitions) == wanted and all(one.leader >= 0 for one in view.partitions)
            for view in views
        )

    done = await until(named_everywhere, "every broker has all topics")
    yield {Metric(f"create {sizes.topics} topics of {sizes.partitions}", "s"): done - begun}

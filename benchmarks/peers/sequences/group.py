"""A consumer group, whose members are tasks of one process, each with connections of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from peers.clients.work import Work
from peers.report.samples import Metric
from peers.sequences.on_cluster import Subject

PARTITIONS_EACH = 3


async def measure(subject: Subject) -> AsyncIterator[Mapping[Metric, float]]:
    """Have a group settle, grow and shrink; yield the seconds until all partitions have owners."""
    members = subject.sizes.members
    # The first group of a Kafka makes it create the topic of its offsets.
    await _live(subject, Work("first-group", PARTITIONS_EACH, 0, 0))
    work = Work("group", PARTITIONS_EACH * members, 0, 0, clients=members)
    times_s = await _live(subject, work)
    yield {
        Metric(f"group of {members}: {change}", "s"): seconds for change, seconds in times_s.items()
    }


async def _live(subject: Subject, work: Work) -> Mapping[str, float]:
    await subject.system.create_topic(work.topic, work.partitions)
    watch = await subject.client.do("live_in_group", subject.system.bootstrap, work)
    return watch.times_s

"""How long a coordinator that takes over reads the consumer groups.

Run `python benchmarks/group_takeover.py [--groups 1000] [--members 1] [--partitions 3]
[--rounds 7]`. ZooKeeper is real, and the groups are written as a coordinator writes them: members,
owners, and an offset for each partition. Every round is a coordinator that knows nothing yet.
Printed: the median time until all groups are read.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

# The embedded ZooKeeper server is the tests' own.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes
from leadline_common.leader_election import LeadershipTerm
from leadline_common.zk.session import ZkSession
from leadline_coordinator.adapters.group_nodes import GroupNodes
from leadline_coordinator.domain.records import CommittedOffset, GroupRecord, MemberSubscription
from tests.support.embedded_zookeeper import EmbeddedZooKeeper

TOPIC = "bench"


async def write_group(store: GroupNodes, name: str, members: int, partitions: int) -> None:
    """Write a group whose members own all partitions and have committed in each."""
    term = LeadershipTerm(0, 0)
    names = [f"{name}-m{number}" for number in range(members)]
    topic_partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
    subscriptions = {member: MemberSubscription(topics=(TOPIC,)) for member in names}
    owners = {
        topic_partition: names[topic_partition.partition % members]
        for topic_partition in topic_partitions
    }
    await store.record(term, GroupRecord(name, "range", "eager", 1, subscriptions, owners))
    await store.write_offsets(
        term, name, {topic_partition: CommittedOffset(7, 0) for topic_partition in topic_partitions}
    )


async def measure(hosts: str, options: argparse.Namespace) -> list[float]:
    """Write the groups; return the seconds of each round."""
    session = ZkSession()
    await session.start(hosts, 30_000)
    await session.ensure_path(consumer_znodes.GROUPS)
    await session.create(consumer_znodes.COORDINATOR_EPOCH, b"0")
    store = GroupNodes(session)
    for number in range(options.groups):
        await write_group(store, f"g{number}", options.members, options.partitions)
    took: list[float] = []
    for _ in range(options.rounds):
        began = time.monotonic()
        found = await GroupNodes(session).load()
        took.append(time.monotonic() - began)
        assert len(found) == options.groups
    await session.close()
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    with (
        tempfile.TemporaryDirectory(prefix="leadline-bench-") as directory,
        EmbeddedZooKeeper(Path(directory)) as zookeeper,
    ):
        took = asyncio.run(measure(zookeeper.hosts, options))
    print(
        f"{options.groups} groups read in {statistics.median(took) * 1000:.0f} ms (median of "
        f"{len(took)}, {min(took) * 1000:.0f} to {max(took) * 1000:.0f} ms)"
    )


if __name__ == "__main__":
    main()

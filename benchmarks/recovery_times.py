"""How long a cluster with sessions of 2 s is without acknowledgements after a fault, under load.

Run `python benchmarks/recovery_times.py [--rounds 20] [--quorum-rounds 5]`. Three brokers with two
controllers take 1,200 records of 100 bytes per second, acks=all, in six partitions with three
replicas, in batches of ten. Nobody closes the sessions of killed processes, so ZooKeeper has to end
them, as after the loss of a host. Printed are median, p99 and maximum, over rounds and partitions:

- leader killed: from the kill to the first record that a new leader acknowledges;
- clean hand-over: a leader is stopped by SIGTERM; the longest time without an acknowledgement
  around the change of leaders. A record is offered to each partition every 50 ms;
- controller killed: from the kill of the active controller to the next topic that is created;
- quorum lost: two of three ZooKeeper servers are killed and started again 6 s later; from the
  moment when the second one serves to the first acknowledgement.

In the end everything that was acknowledged is read, and all invariants of the fault scenarios are
checked. Goals: p50 3 s and p99 6 s; p99 0.5 s; p99 4 s; p99 4 s.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from leadline_client.client import AsyncClient
from leadline_client.errors import LeadlineError
from leadline_client.wire import NewTopic

# The load and the checks of the fault scenarios.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.faults.load import IMPATIENT, Ack, Load
from tests.support.faults.scenario import TOPIC, Scenario
from tests.support.services.cluster import Cluster, wait_until

PARTITIONS = 6
RATE = 1_200
BATCH_RECORDS = 10
WITHOUT_QUORUM_S = 6.0
DEADLINE_S = 120.0


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quorum-rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(run(options.rounds, options.quorum_rounds))


async def run(rounds: int, quorum_rounds: int) -> None:
    """Measure everything and print it."""
    async with loaded(zookeeper_members=1) as running:
        show("leader killed", [await leader_killed(running) for _ in range(rounds)])
        show("clean hand-over", [await handed_over(running) for _ in range(rounds)])
        killed = [[await controller_killed(running, f"t{number}")] for number in range(rounds)]
        show("controller killed", killed)
    if quorum_rounds:
        async with loaded(zookeeper_members=3) as running:
            show("quorum lost", [await quorum_lost(running) for _ in range(quorum_rounds)])


@asynccontextmanager
async def loaded(zookeeper_members: int) -> AsyncIterator[Scenario]:
    """Run a cluster under load, and check it in the end."""
    with tempfile.TemporaryDirectory() as folder:
        async with Cluster(
            Path(folder), controllers=2, zookeeper_members=zookeeper_members, policy=IMPATIENT
        ) as cluster:
            await cluster.client.create_topic(NewTopic(TOPIC, PARTITIONS, 3))
            async with Load(
                cluster.bootstrap, TOPIC, PARTITIONS, RATE, batch_size=BATCH_RECORDS
            ) as load:
                await load.progress()
                running = Scenario(cluster, load)
                yield running
                await running.verify()


async def leader_killed(running: Scenario) -> list[float]:
    """Return the seconds without a leader of each partition that the killed broker led."""
    victim = await running.leader()
    before = epochs(running)
    led = await running.led_by(victim)
    began_s = time.monotonic()
    await running.cluster.kill(victim)
    firsts = [await first_of_new_leader(running, number, before[number]) for number in led]
    await whole_again(running, victim)
    return [first.at_s - began_s for first in firsts]


async def handed_over(running: Scenario) -> list[float]:
    """Return the seconds between two acknowledgements around each change of leaders."""
    victim = await running.leader()
    before = epochs(running)
    led = await running.led_by(victim)
    await running.cluster.terminate(victim)
    firsts = [await first_of_new_leader(running, number, before[number]) for number in led]
    gaps = [first.at_s - last_before(running, first) for first in firsts]
    await whole_again(running, victim)
    return gaps


async def controller_killed(running: Scenario, topic: str) -> float:
    """Return the seconds until a topic is created."""
    cluster = running.cluster
    victim = await cluster.active_controller()
    began_s = time.monotonic()
    await cluster.kill(victim)
    async with AsyncClient(cluster.bootstrap, policy=IMPATIENT) as client:
        attempt = 0
        while True:
            try:
                await client.create_topic(NewTopic(f"{topic}-{attempt}", 3, 3))
            except LeadlineError:
                attempt += 1
            else:
                break
    took_s = time.monotonic() - began_s
    await whole_again(running, victim)
    return took_s


async def quorum_lost(running: Scenario) -> list[float]:
    """Return the seconds without an acknowledgement once there is a quorum again."""
    cluster = running.cluster
    victims = [server.name for server in cluster.supervisor.layout.zookeeper_servers[:2]]
    for victim in victims:
        await cluster.kill(victim)
    await asyncio.sleep(WITHOUT_QUORUM_S)
    for victim in victims:
        cluster.restart(victim)
    await wait_until(lambda: has_quorum(cluster), "ZooKeeper serves again", DEADLINE_S)
    served_s = time.monotonic()
    firsts = [await first_after(running, number, served_s) for number in range(PARTITIONS)]
    await running.full_isr()
    await running.load.progress()
    return [first.at_s - served_s for first in firsts]


async def has_quorum(cluster: Cluster) -> bool:
    """Tell whether ZooKeeper opens sessions."""
    try:
        async with asyncio.timeout(1), cluster.zookeeper():
            return True
    except (LeadlineError, OSError, TimeoutError):
        return False


async def whole_again(running: Scenario, victim: str) -> None:
    """Start a service again, and wait until it is ready and every replica is in sync."""
    running.cluster.restart(victim)
    await running.cluster.until_ready(victim, DEADLINE_S)
    await running.full_isr()
    await running.load.progress()


def epochs(running: Scenario) -> list[int]:
    """Return the leader epoch of the latest acknowledgement in each partition."""
    latest = {ack.partition: ack.leader_epoch for ack in running.load.acks}
    return [latest[number] for number in range(PARTITIONS)]


async def first_of_new_leader(running: Scenario, partition: int, epoch: int) -> Ack:
    """Wait for the first acknowledgement of a later leader epoch."""

    async def found() -> Ack | None:
        newer = (
            ack
            for ack in running.load.acks
            if ack.partition == partition and ack.leader_epoch > epoch
        )
        return next(newer, None)

    return await wait_until(found, f"a new leader of partition {partition} acknowledges")


async def first_after(running: Scenario, partition: int, at_s: float) -> Ack:
    """Wait for the first acknowledgement after a moment."""

    async def found() -> Ack | None:
        later = (a for a in running.load.acks if a.partition == partition and a.at_s > at_s)
        return next(later, None)

    return await wait_until(found, f"partition {partition} acknowledges again", DEADLINE_S)


def last_before(running: Scenario, first: Ack) -> float:
    """Return when the acknowledgement before `first` came in its partition."""
    return max(
        ack.at_s
        for ack in running.load.acks
        if ack.partition == first.partition and ack.at_s < first.at_s
    )


def show(name: str, rounds: Sequence[Sequence[float]]) -> None:
    """Print median, p99 and maximum."""
    ordered = sorted(seconds for times in rounds for seconds in times)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    print(
        f"{name:18} p50 {statistics.median(ordered):5.2f} s  p99 {p99:5.2f} s  "
        f"max {ordered[-1]:5.2f} s  ({len(ordered)} in {len(rounds)} rounds; "
        f"load average {os.getloadavg()[0]:.1f})",
        flush=True,
    )


if __name__ == "__main__":
    main()

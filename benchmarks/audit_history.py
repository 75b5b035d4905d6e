"""Does storing the audit slow a failover down? 100,000 entries come in while a broker dies.

Run `python benchmarks/audit_history.py [--topics 100] [--partitions 100] [--entries 100000]
[--rounds 5]`. The rig is that of `failover.py`, with a replicator that stores the outbox in an
SQLite file. Failures alternate: one with an idle outbox, one while the replicator works off
`--entries` entries that were just written. Printed: the time from the watch to the last
acknowledgement, with and without, and their ratio; how many entries were stored in a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop
from failover import BROKERS, Bench, broker_process, heal

from leadline_client.wire import NewTopic
from leadline_common.audit_outbox import audit_op
from leadline_common.clock import SystemClock
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.adapters.history.store import SqlHistory
from leadline_controller.adapters.peer_audit import HttpPeerAuditClient
from leadline_controller.runtime.audit.replication import AuditReplicator
from tests.support.embedded_zookeeper import EmbeddedZooKeeper

VICTIM = BROKERS[0]
MULTI = 500


def keep_history(bench: Bench, folder: Path) -> AuditReplicator:
    """Give the controller a replicator."""
    history = SqlHistory(f"sqlite:///{folder / 'history.db'}")
    peers, leadership = HttpPeerAuditClient(), bench.leadership
    leadership.audit_replicator = AuditReplicator(
        leadership.settings, leadership.url, history, peers, SystemClock(), leadership.metrics
    )
    return leadership.audit_replicator


async def flood(session: ZkSession, entries: int) -> None:
    """Write audit entries, as leaders do that change their ISR."""
    change = StateChange("t0", 0, "shrunk", (1, 4, (1, 2, 3)), (1, 4, (1, 2)), 7)
    entry = AuditEntry(0, "isr-1-1-1", "broker 1", "isr_change", changes=(change,))
    op = audit_op(entry)
    pending = [session.submit_multi([op] * MULTI) for _ in range(entries // MULTI)]
    await asyncio.gather(*pending)


async def one_failure(bench: Bench) -> float:
    """Kill a broker that leads a third; return the milliseconds to the last acknowledgement."""
    async with broker_process(VICTIM, bench.hosts) as end:
        await bench.settled(len(BROKERS))
        await heal(bench)
        bench.gateway.reset()
        bench.store.fired_at = 0.0
        end()
        await bench.until(lambda: VICTIM not in bench.service.image().brokers)
        await bench.dispatcher.until(lambda: not bench.dispatcher.holds_metadata)
        await bench.dispatcher.until(bench.dispatcher.settled)
        return (bench.gateway.last_ack - bench.store.fired_at) * 1000


@contextlib.asynccontextmanager
async def flooded(
    replicator: AuditReplicator, session: ZkSession, entries: int
) -> AsyncIterator[None]:
    """Have entries stored within the block; print how fast that was."""
    begun, before = time.monotonic(), replicator.stored
    writing = asyncio.create_task(flood(session, entries))
    yield
    still = before + entries - replicator.stored
    await writing
    assert await replicator.catch_up(600)
    took = time.monotonic() - begun
    print(f"   {still} entries were still to be stored then; {entries / took:.0f} entries/s")


async def measure(bench: Bench, replicator: AuditReplicator, entries: int, rounds: int) -> None:
    """Alternate failures with and without a flood."""
    session = ZkSession()
    await session.start(bench.hosts, 10_000)
    idle, busy = [], []
    async with contextlib.AsyncExitStack() as others:
        for broker_id in BROKERS[1:]:
            await others.enter_async_context(broker_process(broker_id, bench.hosts))
        for _ in range(rounds):
            idle.append(await one_failure(bench))
            async with flooded(replicator, session, entries):
                busy.append(await one_failure(bench))
            print(f"failure: {idle[-1]:6.1f} ms idle, {busy[-1]:6.1f} ms while storing")
    await session.close()
    ratio = statistics.median(busy) / statistics.median(idle)
    print(
        f"median {statistics.median(idle):.1f} ms idle, {statistics.median(busy):.1f} ms while "
        f"storing: {ratio:.2f}"
    )


async def run(hosts: str, folder: Path, options: argparse.Namespace) -> None:
    """Set up the rig, and measure."""
    bench = Bench(hosts)
    replicator = keep_history(bench, folder)
    async with bench.as_active_controller():
        async with contextlib.AsyncExitStack() as stack:
            for broker_id in BROKERS:
                await stack.enter_async_context(broker_process(broker_id, hosts))
            await bench.settled(len(BROKERS))
            for number in range(options.topics):
                topic = NewTopic(f"t{number}", options.partitions, 3)
                await bench.service.create_topic(topic, dry_run=False)
        await bench.settled(0)
        await measure(bench, replicator, options.entries, options.rounds)
    await replicator.history.close()


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100, help="per topic")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedZooKeeper(Path(folder) / "zk") as server:
        uvloop.run(run(f"{server.hosts}/bench", Path(folder), options))


if __name__ == "__main__":
    main()

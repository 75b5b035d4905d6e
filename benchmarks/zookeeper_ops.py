"""Time of bulk ZooKeeper operations through `leadline_common.zk`, against an embedded server.

Run `python benchmarks/zookeeper_ops.py [--nodes N] [--batch N] [--rounds N]`. Prints the
median and the range of the rounds in milliseconds, and the load average, without which
the figures mean little.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp
from leadline_common.zk.session import ZkSession

# The embedded ZooKeeper server is the tests' own.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.embedded_zookeeper import EmbeddedZooKeeper

VALUE = b'{"version":1,"leader":1,"leader_epoch":7,"isr":[1,2,3],"controller_epoch":4}'


async def in_multis(session: ZkSession, ops: list[Op], batch: int) -> None:
    """Apply the operations in pipelined multis."""
    multis = [session.submit_multi(ops[i : i + batch]) for i in range(0, len(ops), batch)]
    await asyncio.gather(*multis)


async def report(name: str, rounds: int, action: Callable[[], Awaitable[object]]) -> None:
    """Run the action and print how long it took."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await action()
        times.append((time.perf_counter() - began) * 1000)
    print(
        f"{name:40} {statistics.median(times):8.1f} ms  ({min(times):.1f}-{max(times):.1f})"
        f"  load {os.getloadavg()[0]:.2f}"
    )


async def measure(hosts: str, nodes: int, batch: int, rounds: int) -> None:
    """Create, write, read and delete `nodes` nodes."""
    session = ZkSession()
    await session.start(hosts, 10_000)
    await session.ensure_path("/topic")
    paths = [f"/topic/{number}" for number in range(nodes)]
    versions = dict.fromkeys(paths, 0)

    async def create() -> None:
        await in_multis(session, [CreateOp(path, VALUE) for path in paths], batch)

    async def write() -> None:
        await in_multis(session, [SetOp(path, VALUE, versions[path]) for path in paths], batch)
        for path in paths:
            versions[path] += 1

    async def get_one_by_one() -> None:
        await asyncio.gather(*(session.get(path) for path in paths))

    async def delete() -> None:
        await in_multis(session, [DeleteOp(path, ANY_VERSION) for path in paths], batch)

    await report(f"create {nodes}, multis of {batch}", 1, create)
    await report(f"conditional set {nodes}, multis of {batch}", rounds, write)
    await report(f"multiRead {nodes}, batches of 1000", rounds, lambda: session.get_many(paths))
    await report(f"get {nodes}, pipelined one by one", 1, get_one_by_one)
    await report("sync", rounds, session.sync)
    await report(f"delete {nodes}, multis of {batch}", 1, delete)
    await session.close()


def main() -> None:
    """Start a server in a temporary directory and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedZooKeeper(Path(directory)) as server,
    ):
        asyncio.run(measure(server.hosts, arguments.nodes, arguments.batch, arguments.rounds))


if __name__ == "__main__":
    main()

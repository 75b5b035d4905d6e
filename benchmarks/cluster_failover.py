"""One of three real brokers is killed under ten thousand partitions: what the cluster takes.

Run `python benchmarks/cluster_failover.py [--topics 100] [--partitions 100] [--rounds 3]`.
Everything is real: ZooKeeper, two controllers and three brokers, each a process, started as
`leadline up` starts them. Printed for each round, and as medians: the time to create the topics;
the time from the news of the broker's death at the controller to the last acknowledgement of a
role; the time from the kill until a client's metadata names the dead broker nowhere (the session
timeout is in it); how many commands were sent. Then the memory and idle CPU of a broker.
`failover.py` has the same failure as ratios to bare ZooKeeper requests.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import tempfile
import time
from pathlib import Path

import httpx

from leadline_cli.cluster_layout import ClusterOptions
from leadline_cli.supervisor import Supervisor
from leadline_client.client import AsyncClient
from leadline_client.wire import NewTopic

SESSION_TIMEOUT_MS = 2_000
DEADLINE_S = 180.0
IDLE_S = 5.0
_SAMPLE = re.compile(r"^leadline_(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    rounds = [
        asyncio.run(measure(arguments.topics, arguments.partitions))
        for _ in range(arguments.rounds)
    ]
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        shown = "  ".join(f"{value:10.1f}" for value in values)
        print(f"{name:58} {shown}   median {statistics.median(values):10.1f}")


async def measure(topics: int, partitions: int) -> dict[str, float]:
    """Run one cluster from start to failover; return figures by name."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as directory:
        settings = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
        options = ClusterOptions(Path(directory), 3, 2, coordinators=0, settings=settings)
        async with Supervisor(options) as cluster:
            urls = [broker.url for broker in cluster.layout.brokers]
            try:
                await _create(AsyncClient(urls), topics, partitions, figures)
                await _idle(cluster, figures)
                await _fail(cluster, topics * partitions, figures)
            finally:
                await cluster.stop()
    return figures


async def _create(
    client: AsyncClient, topics: int, partitions: int, figures: dict[str, float]
) -> None:
    begun = time.monotonic()
    for number in range(topics):
        await client.create_topic(NewTopic(f"t{number:03d}", partitions, 3))
    figures[f"create {topics} topics of {partitions}, one after another, ms"] = _since(begun)
    await client.aclose()


async def _idle(cluster: Supervisor, figures: dict[str, float]) -> None:
    pid = cluster.children["broker-1"].pid or 0
    await asyncio.sleep(IDLE_S)
    before = _cpu_seconds(pid)
    await asyncio.sleep(IDLE_S)
    figures["idle CPU of a broker, % of a core"] = (_cpu_seconds(pid) - before) / IDLE_S * 100
    figures["memory of a broker, MiB"] = _resident_mib(pid)


async def _fail(cluster: Supervisor, partitions: int, figures: dict[str, float]) -> None:
    brokers = cluster.layout.brokers
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        document = (await http.get(f"{brokers[1].url}/v1/metadata")).json()
        controller = document["controller"]["url"]
        before = await _samples(http, controller)
        begun = time.monotonic()
        await cluster.children[brokers[0].name].kill()
        await _until_unnamed(http, brokers[1].url, brokers[0].id, partitions)
        figures["kill until metadata names the dead broker nowhere, ms"] = _since(begun)
        after = await _until_measured(http, controller, before)
    took = _grown(before, after, "controller_failover_seconds_sum")
    figures["news of the death until the last acknowledgement, ms"] = took * 1000
    for what in ("reads", "writes"):
        figures[f"ZooKeeper {what} of the controller"] = _grown(
            before, after, f"controller_zookeeper_session_{what}"
        )
    for command in ("leader_and_isr", "update_metadata"):
        figures[f"{command} requests"] = sum(
            _grown(before, after, name)
            for name in after
            if name.startswith("controller_commands_total") and f'"{command}"' in name
        )


async def _until_unnamed(http: httpx.AsyncClient, url: str, broker: int, partitions: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            document = (await http.get(f"{url}/v1/metadata")).json()
            rows = [row for topic in document["topics"].values() for row in topic["partitions"]]
            named = any(broker == row[1] or broker in row[3] for row in rows)
            if len(rows) == partitions and not named:
                return
            await asyncio.sleep(0.02)


async def _until_measured(
    http: httpx.AsyncClient, url: str, before: dict[str, float]
) -> dict[str, float]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            after = await _samples(http, url)
            if _grown(before, after, "controller_failover_seconds_count"):
                return after
            await asyncio.sleep(0.02)


async def _samples(http: httpx.AsyncClient, url: str) -> dict[str, float]:
    text = (await http.get(f"{url}/metrics")).text
    return {f"{name}{{{labels}}}": float(value) for name, labels, value in _SAMPLE.findall(text)}


def _grown(before: dict[str, float], after: dict[str, float], name: str) -> float:
    key = name if "{" in name else f"{name}{{}}"
    return after.get(key, 0.0) - before.get(key, 0.0)


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _since(begun: float) -> float:
    return (time.monotonic() - begun) * 1000


if __name__ == "__main__":
    main()

"""A large partition moves under a throttle: how exactly it is held, and what others feel of it.

Run `python benchmarks/throttled_move.py [--mib 1024] [--throttle-mib 20] [--free]`. Three real
brokers. A partition of broker 1 is filled and moved to broker 2, while producers with acks=all
write to partitions that broker 1 leads and that broker 2 follows. Printed: the rate of the move as
a ratio to the throttle, over all of it and for the worst ten seconds; the latency of the producers
during the move as a ratio to that shortly before and after it; how many replicas fell out of sync.
`--free` moves it back afterwards without a throttle, for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from leadline_cli.cluster_layout import ClusterOptions
from leadline_cli.supervisor import Supervisor
from leadline_client import batches
from leadline_client.client import AsyncClient
from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic

MIB = 1 << 20
BIG, LIVE = "big", "live"
WINDOW_S = 10.0
BASELINE_S = 10.0
SETTLING_S = 2.0
PERIOD_S = 0.04
DEADLINE_S = 3_600.0
_SAMPLE = re.compile(r"^leadline_(\w+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)


@dataclass
class Producers:
    """Writers with acks=all to the live topic; `took_ms` by the time of each ack."""

    client: AsyncClient
    took_ms: list[tuple[float, float]] = field(default_factory=list)
    stopped: bool = False

    async def write(self, partition: int) -> None:
        """Send a batch of 10 KB every so often, and note how long each took."""
        body = encoded(10, 1_000)
        while not self.stopped:
            begun = time.monotonic()
            await self.client.produce_batches(LIVE, partition, body)
            self.took_ms.append((time.monotonic(), (time.monotonic() - begun) * 1000))
            await asyncio.sleep(max(0.0, begun + PERIOD_S - time.monotonic()))

    def between(self, begun: float, ended: float) -> list[float]:
        """Return the latencies of a span of time, sorted."""
        return sorted(ms for at, ms in self.took_ms if begun <= at <= ended)


def encoded(records: int, size: int) -> bytes:
    """Return a v2 batch of bytes that no codec can shrink."""
    values = [OutgoingRecord(os.urandom(size)) for _ in range(records)]
    return batches.encode(values, now_ms=time.time_ns() // MIB)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--throttle-mib", type=float, default=20.0)
    parser.add_argument("--free", action="store_true")
    arguments = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    asyncio.run(measure(arguments.mib, int(arguments.throttle_mib * MIB), free=arguments.free))


async def measure(mib: int, throttle: int, *, free: bool) -> None:
    """Run one cluster, and move the partition once or twice."""
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as directory:
        options = ClusterOptions(Path(directory), 3, 1, coordinators=0)
        async with Supervisor(options) as cluster, httpx.AsyncClient(timeout=60) as http:
            client = AsyncClient([broker.url for broker in cluster.layout.brokers])
            await client.create_topic(NewTopic(BIG, replica_assignment={0: (1,)}))
            live = {0: (1, 3), 1: (3, 2), 2: (1, 2)}
            await client.create_topic(NewTopic(LIVE, replica_assignment=live))
            await fill(client, mib)
            producers = Producers(client)
            writing = [asyncio.create_task(producers.write(number)) for number in live]
            urls = {broker.id: broker.url for broker in cluster.layout.brokers}
            try:
                await move(http, urls, 1, 2, throttle, producers)
                if free:
                    await move(http, urls, 2, 1, None, producers)
            finally:
                producers.stopped = True
                await asyncio.gather(*writing)
                await client.aclose()


async def fill(client: AsyncClient, mib: int) -> None:
    """Write so many MiB to the big partition."""
    body = encoded(9, 100_000)
    begun = time.monotonic()
    for _ in range(mib * MIB // len(body)):
        await client.produce_batches(BIG, 0, body, acks="1")
    print(f"filled with {mib} MiB in {time.monotonic() - begun:.0f} s")


async def move(
    http: httpx.AsyncClient,
    urls: dict[int, str],
    source: int,
    target: int,
    throttle: int | None,
    producers: Producers,
) -> None:
    """Move the big partition and print how it went."""
    shrinks = await shrunk(http, urls)
    body = {
        "partitions": [{"topic": BIG, "partition": 0, "replicas": [target]}],
        "throttle_bytes_per_s": throttle,
    }
    await asyncio.sleep(BASELINE_S)
    begun = time.monotonic()
    answer = await http.post(f"{urls[source]}/v1/reassignments", json=body)
    answer.raise_for_status()
    samples = await watch(http, urls[source])
    ended = time.monotonic()
    await asyncio.sleep(BASELINE_S)
    during = producers.between(begun, ended)
    others = producers.between(begun - BASELINE_S + SETTLING_S, begun)
    others = sorted(others + producers.between(ended + SETTLING_S, ended + BASELINE_S))
    rate = speed(samples[0], samples[-1])
    kind = "without a throttle" if throttle is None else f"under {throttle / MIB:.1f} MiB/s"
    print(f"moved {source} to {target} {kind}: {rate / MIB:.1f} MiB/s in {ended - begun:.0f} s")
    if throttle is not None:
        worst = max((abs(one / throttle - 1) for one in windows(samples)), default=0.0)
        print(f"  rate / throttle {rate / throttle:.3f}, worst {WINDOW_S:.0f} s off by {worst:.1%}")
    for name, share in (("median", 0.5), ("p99", 0.99)):
        old, new = quantile(others, share), quantile(during, share)
        print(f"  acks=all {name}: {old:.1f} ms without, {new:.1f} ms with, {new / old:.2f} times")
    print(f"  replicas that fell out of sync: {await shrunk(http, urls) - shrinks:.0f}")


Sample = tuple[float, float]
"""A time (s), and the bytes that were sent to moving replicas until then."""


async def watch(http: httpx.AsyncClient, source: str) -> list[Sample]:
    """Sample what the source has sent, from the first byte to the last, until the move is over."""
    samples: list[Sample] = []
    start = await counter(http, source, "moving_bytes_out_total")
    async with asyncio.timeout(DEADLINE_S):
        while True:
            sent = await counter(http, source, "moving_bytes_out_total")
            if sent > start and (not samples or sent > samples[-1][1]):
                samples.append((time.monotonic(), sent))
            listing = (await http.get(f"{source}/v1/reassignments")).raise_for_status().json()
            if samples and not listing["reassignments"]:
                return samples
            await asyncio.sleep(0.1)


def windows(samples: list[Sample]) -> list[float]:
    """Return the speed of every ten seconds within the move."""
    found = []
    for first in samples:
        later = [sample for sample in samples if sample[0] >= first[0] + WINDOW_S]
        if later:
            found.append(speed(first, later[0]))
    return found


def speed(first: Sample, last: Sample) -> float:
    """Return the bytes per second between two samples."""
    return (last[1] - first[1]) / max(last[0] - first[0], 1e-9)


def quantile(values: list[float], share: float) -> float:
    """Return a quantile of sorted values."""
    if share == 0.5:
        return statistics.median(values)
    return values[min(len(values) - 1, int(share * len(values)))]


async def shrunk(http: httpx.AsyncClient, urls: dict[int, str]) -> float:
    """Return how many ISR members were dropped so far, by all brokers."""
    name = 'isr_changes_total{kind="shrink"}'
    return sum([await counter(http, url, name) for url in urls.values()])


async def counter(http: httpx.AsyncClient, url: str, name: str) -> float:
    """Return a metric of a broker; 0 where it was never counted."""
    text = (await http.get(f"{url}/metrics")).text
    samples = {key: float(value) for key, value in _SAMPLE.findall(text)}
    return samples.get(name, 0.0)


if __name__ == "__main__":
    main()

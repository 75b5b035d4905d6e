"""What each kind of hostile request costs the services: CPU time, and no rates.

Run `python benchmarks/refusal_costs.py [--requests 300] [--rounds 3] [--only NAME]`. It starts the
cluster of `attack_mix.py` without load, and sends each attack of `_attackers.py` so many times, a
few at a time. Printed are microseconds of CPU for each attack, by kind of service, without what the
services use when nobody asks. A median of the rounds is given, because a shared machine disturbs
single ones. The last lines are the mix of `attack_mix.py`: each cost by its rate, in cores.

"Refused requests" are measured for each request and each kind of service, too.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

# The cluster is the tests' own, as in attack_mix.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _attackers import RATES, REFUSED, Attacker, Targets, ask, port_of
from attack_mix import KINDS, QUIET_TOPIC, SERVICES, SESSION, TOPIC, targets_of, victims

from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster

AT_A_TIME: Final = 4
WARM_UP: Final = 20
IDLE_S: Final = 2.0
SLOW: Final = ("what-if", "assignments")
"""Attacks that are served, and take a second of CPU each: a tenth of the requests is enough."""


def cpu_us(pid: int) -> float:
    """Return the CPU time of all threads of a process in microseconds."""
    return (
        sum(
            int(file.read_text(encoding="ascii").split()[0])
            for file in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )
        / 1_000
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of CPU for each request, by kind of service, and how the requests ended."""

    by_kind: dict[str, float]
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> float:
        """What all services together use."""
        return sum(self.by_kind.values())


@dataclass(slots=True)
class Meter:
    """Measures the services of one cluster."""

    cluster: Cluster
    idle: dict[str, float] = field(default_factory=dict)
    """Microseconds of CPU in each second without requests."""

    def read(self) -> dict[str, float]:
        """Return the CPU time of each service in microseconds."""
        return {name: cpu_us(self.cluster.child(name).pid or 0) for name in SERVICES}

    async def measure_idle(self) -> None:
        """Find what the services use when nobody asks."""
        before, began = self.read(), time.monotonic()
        await asyncio.sleep(IDLE_S)
        took = time.monotonic() - began
        self.idle = {name: (used - before[name]) / took for name, used in self.read().items()}

    async def cost(self, attack: Callable[[], Awaitable[str]], requests: int) -> Cost:
        """Send `requests` attacks, some at a time, and return what one has cost."""
        outcomes: Counter[str] = Counter()
        left = iter(range(requests))

        async def send() -> None:
            for _ in left:
                outcomes[await attack()] += 1

        before, began = self.read(), time.monotonic()
        await asyncio.gather(*(send() for _ in range(AT_A_TIME)))
        took = time.monotonic() - began
        after = self.read()
        used = {name: after[name] - before[name] - self.idle[name] * took for name in SERVICES}
        by_kind = {
            kind: sum(one for name, one in used.items() if name.startswith(kind)) / requests
            for kind in KINDS
        }
        return Cost(by_kind, outcomes)

    async def median(
        self, attack: Callable[[], Awaitable[str]], requests: int, rounds: int
    ) -> Cost:
        """Return the median cost of some rounds, after a few attacks that do not count."""
        await self.cost(attack, min(WARM_UP, requests))
        found = [await self.cost(attack, requests) for _ in range(rounds)]
        outcomes = sum((one.outcomes for one in found), Counter[str]())
        middle = {kind: statistics.median(one.by_kind[kind] for one in found) for kind in KINDS}
        return Cost(middle, outcomes)


def print_cost(name: str, cost: Cost) -> None:
    """Print one line."""
    kinds = " ".join(f"{max(0.0, cost.by_kind[kind]):10.0f}" for kind in KINDS)
    ends = ", ".join(f"{count} {what}" for what, count in cost.outcomes.most_common(3))
    print(f"{name:58} {max(0.0, cost.total):9.0f} {kinds}  {ends}", flush=True)


def single_requests(targets: Targets, active: str) -> dict[str, Callable[[], Awaitable[str]]]:
    """Return each of the refused requests to each kind of service."""
    standby = next(url for url in targets.controllers if url != active)
    asked = {
        "broker": targets.brokers[0],
        "controller": active,
        "standby": standby,
        "coordinator": targets.coordinators[0],
    }
    return {
        f"{title(data)} to {kind}": partial(ask, port_of(url), data)
        for data in REFUSED
        for kind, url in asked.items()
    }


def title(data: bytes) -> str:
    """Return the method and the path of a request, and how its body begins."""
    head, _, body = data.partition(b"\r\n\r\n")
    extra = " (another cluster)" if b"another" in head else ""
    return f"{head.split(b' HTTP/')[0].decode()}{extra} {body[:20].decode()}".rstrip()


async def measure(directory: Path, options: argparse.Namespace) -> None:
    """Run the cluster, and print all costs."""
    started = Cluster(directory / "cluster", controllers=2, coordinators=1, settings=SESSION)
    async with started as cluster:
        await cluster.client.create_topic(NewTopic(TOPIC, 6, 3))
        await cluster.client.create_topic(NewTopic(QUIET_TOPIC, 1, 3))
        await cluster.client.produce(QUIET_TOPIC, 0, [OutgoingRecord(b"one")])
        async with victims(cluster.bootstrap):
            active = cluster.url(await cluster.active_controller())
            await print_costs(Meter(cluster), await targets_of(cluster, options), active, options)


async def print_costs(
    meter: Meter, targets: Targets, active: str, options: argparse.Namespace
) -> None:
    """Measure and print each kind of attack."""
    await meter.measure_idle()
    columns = " ".join(f"{kind:>10}" for kind in KINDS)
    print(f"{'CPU in microseconds for each attack':58} {'all':>9} {columns}")
    for name, attack in single_requests(targets, active).items():
        if options.only in name:
            print_cost(name, await meter.median(attack, options.requests, options.rounds))
    mix, refusals = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0)
    async with Attacker(targets) as attacker:
        for name, (rate, method) in RATES.items():
            if options.only not in name:
                continue
            count = max(5, options.requests // 60) if name.startswith(SLOW) else options.requests
            cost = await meter.median(partial(method, attacker), count, options.rounds)
            print_cost(f"{name} ({rate:g}/s)", cost)
            for kind in KINDS:
                mix[kind] += rate * cost.by_kind[kind] / 1e6
                refusals[kind] += 0 if name.startswith(SLOW) else rate * cost.by_kind[kind] / 1e6
    for what, cores in (("all attacks", mix), ("without what is computed", refusals)):
        each = ", ".join(f"{kind} {cores[kind]:.4f}" for kind in KINDS)
        print(f"the mix in cores, {what}: {sum(cores.values()):.4f} ({each})")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="attacks whose names contain this")
    options = parser.parse_args()
    options.connections, options.intensity = 0, 1.0
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(Path(directory), options))


if __name__ == "__main__":
    main()

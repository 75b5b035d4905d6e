"""What a hostile machine costs everybody else: producers, memory, health, and nothing besides.

Run `python benchmarks/attack_mix.py [--phase-s 20] [--rounds 3] [--connections 2000]
[--intensity 1]`. It starts a cluster (three brokers, two controllers, a coordinator, ZooKeeper) and
a producer with acks=all, and alternates phases without and with every attack of `_attackers.py` at
once: 2,000 slow connections, and about 260 hostile requests per second, in processes of their own.
`--intensity` multiplies the latter. Printed, with a verdict for each goal:

- the producer's rate under attack: at least half of its rate without (medians of the phases);
- the services' memory: at most 256 MiB more in total;
- /healthz of a broker and a controller, asked every 20 ms by another process: p99 below 200 ms;
- epochs unchanged, no process restarted, all connections closed in the end, and every acknowledged
  record read once, in order.

The attackers' CPU is printed, because they and the services share the cores of one machine: above
0.35 of a core the rate says as much about them as about the services.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from _attackers import READY, Targets, port_of

# The cluster is the tests' own.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from leadline_client import batches
from leadline_client.client import AsyncClient
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import LeadlineError
from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until

MIB = 1 << 20
TOPIC, QUIET_TOPIC, GROUP, INSTANCE = "load", "quiet", "victims", "victim-1"
PARTITIONS = 6
BATCH = 100
VALUE_BYTES = 200
SESSION = {"zookeeper.session.timeout.ms": "6000"}
"""The default; the tests' clusters have another one."""
SERVICES = ("broker-1", "broker-2", "broker-3", "controller-1", "controller-2", "coordinator-1")
INTERNAL = SERVICES[:-1]
GOAL_RATIO, GOAL_MIB, GOAL_P99_MS, GOAL_CORES = 0.5, 256, 200.0, 0.35
FINAL_S = 75.0
WARM_UP_S = 5.0


@dataclass(slots=True)
class Producer:
    """Writers with acks=all, one per partition, and what was acknowledged to them."""

    client: AsyncClient
    acked: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By partition: base offset and first number of each acknowledged batch."""
    at_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    stopped: bool = False

    async def write(self, partition: int) -> None:
        """Send one batch after another; a batch without an acknowledgement is never repeated."""
        acked = self.acked.setdefault(partition, [])
        first = 0
        while not self.stopped:
            body = _batch(partition, first)
            try:
                result = await self.client.produce_batches(TOPIC, partition, body)
            except LeadlineError as error:
                self.errors[type(error).__name__] += 1
            else:
                acked.append((result.base_offset, first))
                self.at_s.append(time.monotonic())
            first += BATCH

    def rate(self, began: float, ended: float) -> float:
        """Return the acknowledged records per second of a span of time."""
        return sum(BATCH for at in self.at_s if began <= at < ended) / (ended - began)


def _value(partition: int, number: int) -> bytes:
    return f"{partition}/{number}/".encode().ljust(VALUE_BYTES, b".")


def _batch(partition: int, first: int) -> bytes:
    numbers = range(first, first + BATCH)
    records = [OutgoingRecord(_value(partition, number)) for number in numbers]
    return batches.encode(records, now_ms=time.time_ns() // 1_000_000)


@dataclass(slots=True)
class Phase:
    """What was measured in a phase."""

    attacked: bool
    rate: float
    resident_mib: dict[str, float]
    took_ms: dict[str, list[float]]
    failed: int = 0
    lags_ms: dict[str, float] = field(default_factory=dict)
    """The longest lag of each service's event loop so far."""
    cores: dict[str, float] = field(default_factory=dict)
    service_cores: dict[str, float] = field(default_factory=dict)
    outcomes: dict[str, Any] = field(default_factory=dict)

    def p99(self, url: str) -> float:
        """Return the p99 of a service's /healthz."""
        took = sorted(self.took_ms[url])
        return took[int(len(took) * 0.99)]


class Role:
    """A process of `_attackers.py`."""

    def __init__(self, role: str, config: Path) -> None:
        self._command = (sys.executable, str(Path(__file__).parent / "_attackers.py"), role, config)
        self.process: asyncio.subprocess.Process

    async def start(self) -> None:
        """Start, and wait until it has begun."""
        limit = 64 * MIB
        self.process = await asyncio.create_subprocess_exec(
            *self._command, stdout=asyncio.subprocess.PIPE, limit=limit
        )
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line.decode().strip() == READY, line

    async def result(self) -> dict[str, Any]:
        """End it; return what it found out."""
        self.process.terminate()
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        await self.process.wait()
        found: dict[str, Any] = json.loads(line)
        return found

    async def kill(self) -> None:
        """End it at once."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Bench:
    """One cluster under alternating phases."""

    cluster: Cluster
    producer: Producer
    config: Path
    phase_s: float
    phases: list[Phase] = field(default_factory=list)

    def pids(self) -> dict[str, int]:
        """Return the process id of each service."""
        return {name: self.cluster.child(name).pid or 0 for name in SERVICES}

    async def run_phase(self, *, attacked: bool, last: bool) -> None:
        """Measure one phase; at the end of the last one wait for the services to close all."""
        roles = {
            name: Role(name, self.config) for name in (("slow", "requests") if attacked else ())
        }
        probe = Role("probe", self.config)
        try:
            await asyncio.gather(*(role.start() for role in roles.values()))
            await probe.start()
            phase = await self._measure({**roles, "probe": probe}, attacked=attacked)
            found = await probe.result()
            phase.took_ms, phase.failed = found["took_ms"], found["failed"]
            if attacked:
                phase.outcomes = await roles["requests"].result()
            print_phase(phase)
            if attacked and last:
                phase.outcomes["slow connections"] = await roles["slow"].result()
        finally:
            await asyncio.gather(*(role.kill() for role in (*roles.values(), probe)))
        self.phases.append(phase)

    async def _measure(self, roles: dict[str, Role], *, attacked: bool) -> Phase:
        began = time.monotonic()
        pids = {name: role.process.pid for name, role in roles.items()}
        all_pids = self.pids() | pids | {"producer": os.getpid()}
        before = {name: cpu_s(pid) for name, pid in all_pids.items()}
        most: dict[str, float] = {}
        while time.monotonic() < began + self.phase_s:
            for name, pid in self.pids().items():
                most[name] = max(most.get(name, 0.0), resident_mib(pid))
            await asyncio.sleep(0.25)
        ended = time.monotonic()
        cores = {
            name: (cpu_s(pid) - before[name]) / (ended - began) for name, pid in all_pids.items()
        }
        rate = self.producer.rate(began, ended)
        lags = {name: await self.metric(name, "event_loop_lag_max_seconds") for name in SERVICES}
        phase = Phase(attacked, rate, most, {}, lags_ms={n: s * 1000 for n, s in lags.items()})
        phase.cores = {name: cores.pop(name) for name in pids}
        phase.service_cores = cores
        return phase

    async def state(self) -> dict[str, Any]:
        """Return what no attack may change: epochs, processes, topics, groups and offsets."""
        controller = (await self.cluster.get("controller-1", "/v1/controller")).json()
        coordinator = (await self.cluster.get("coordinator-1", "/v1/coordinator")).json()
        metadata = (await self.cluster.get("controller-1", "/v1/metadata")).json()
        group = await self.producer.client.describe_group(GROUP)
        offsets = await self.producer.client.group_offsets(GROUP)
        return {
            "controller epoch": controller["controller"]["epoch"],
            "coordinator epoch": coordinator,
            "leader epochs": {
                name: [row[:3] for row in topic["partitions"]]
                for name, topic in metadata["topics"].items()
            },
            "group": group,
            "offsets": [(row["partition"], row["offset"]) for row in offsets["offsets"]],
            "processes": self.pids(),
            "running": [self.cluster.child(name).running for name in SERVICES],
        }

    async def open_connections(self) -> dict[str, int]:
        """Return the open connections of each service, without the one that asks."""
        return {name: int(await self.metric(name, "http_connections")) for name in SERVICES}

    async def metric(self, service: str, name: str) -> float:
        """Return a metric of a service."""
        lines = (await self.cluster.get(service, "/metrics")).text.splitlines()
        return next(float(one.split()[1]) for one in lines if one.startswith(f"leadline_{name}"))


def print_phase(phase: Phase) -> None:
    """Print the figures of one phase."""
    kind = "attack" if phase.attacked else "calm"
    health = ", ".join(
        f"p99 {phase.p99(url):.1f} max {max(took):.1f} of {len(took)}"
        for url, took in phase.took_ms.items()
    )
    print(
        f"{kind:6} {phase.rate:8.0f} records/s {phase.rate * VALUE_BYTES / MIB:5.2f} MiB/s; "
        f"/healthz in ms {health}, {phase.failed} failed; "
        f"memory {sum(phase.resident_mib.values()):.0f} MiB",
        flush=True,
    )
    used = ", ".join(
        f"{name} {share:.2f}" for name, share in (phase.cores | phase.service_cores).items()
    )
    print(f"       cores: {used}")
    lags = ", ".join(f"{name} {lag:.0f}" for name, lag in phase.lags_ms.items())
    print(f"       longest lag of event loops in ms: {lags}", flush=True)


async def every_record_once(client: AsyncClient, producer: Producer) -> list[str]:
    """Return what is wrong with the acknowledged records, read back from their leaders."""
    problems = []
    for partition, acked in producer.acked.items():
        expected = {
            base + place: _value(partition, first + place)
            for base, first in acked
            for place in range(BATCH)
        }
        seen: Counter[bytes] = Counter()
        offset, end, previous = 0, 1, -1
        while offset < end:
            answer = await client.fetch_batches(TOPIC, partition, offset, max_bytes=8 * MIB)
            for record in batches.decode(answer.batches):
                if record.offset < offset:
                    continue
                value = record.value or b""
                seen[value] += 1
                number = int(value.split(b"/")[1])
                if number <= previous:
                    problems.append(f"{partition}: {number} after {previous}")
                previous = number
                if expected.pop(record.offset, value) != value:
                    problems.append(f"{partition}: another record at {record.offset}")
            offset, end = answer.next_offset, answer.high_watermark
        if expected:
            problems.append(f"{partition}: {len(expected)} acknowledged records are missing")
        if any(times > 1 for times in seen.values()):
            problems.append(f"{partition}: a record is there twice")
    return problems[:10]


def verdict(goal: str, figure: str, *, met: bool) -> bool:
    """Print whether a goal is met."""
    print(f"{'MET' if met else 'MISSED':6} {goal}: {figure}")
    return met


def judge(phases: list[Phase]) -> bool:
    """Print the verdicts of the measured goals; return whether all are met."""
    calm = [phase for phase in phases if not phase.attacked]
    attacked = [phase for phase in phases if phase.attacked]
    base, under = (statistics.median(one.rate for one in part) for part in (calm, attacked))
    before = sum(calm[0].resident_mib.values())
    most = max(sum(phase.resident_mib.values()) for phase in attacked)
    attackers = max(phase.cores["slow"] + phase.cores["requests"] for phase in attacked)
    held = [
        verdict(
            f"producer at least {GOAL_RATIO} of its calm rate",
            f"{under:.0f} of {base:.0f} records/s, ratio {under / base:.2f}",
            met=under >= GOAL_RATIO * base,
        ),
        verdict(
            f"memory at most {GOAL_MIB} MiB more",
            f"{before:.0f} MiB before, {most:.0f} at most, {most - before:.0f} more",
            met=most - before <= GOAL_MIB,
        ),
        verdict(
            f"attackers below {GOAL_CORES} of a core",
            f"{attackers:.2f}",
            met=attackers < GOAL_CORES,
        ),
    ]
    for title, url in zip(("broker", "controller"), attacked[0].took_ms, strict=True):
        took = sorted(one for phase in attacked for one in phase.took_ms[url])
        p99 = took[int(len(took) * 0.99)]
        goal = f"/healthz p99 of the {title} below {GOAL_P99_MS:.0f} ms"
        held.append(verdict(goal, f"{p99:.1f} ms, max {took[-1]:.1f} ms", met=p99 < GOAL_P99_MS))
    failed = sum(phase.failed for phase in attacked)
    held.append(verdict("/healthz always answered", f"{failed} failed", met=not failed))
    return all(held)


def print_outcomes(phases: list[Phase]) -> None:
    """Print how the attacks ended."""
    total: dict[str, Counter[str]] = {}
    for phase in phases:
        for name, counts in phase.outcomes.items():
            total.setdefault(name, Counter()).update(counts)
    for name, found in total.items():
        print(f"  {name}: " + ", ".join(f"{count:g} {what}" for what, count in found.items()))


@asynccontextmanager
async def victims(bootstrap: str) -> AsyncIterator[None]:
    """Run a group with a static member that has committed, and is polled."""
    settings = ConsumerSettings(instance_id=INSTANCE)
    async with AsyncConsumer(bootstrap, GROUP, settings=settings) as consumer:
        await consumer.subscribe([QUIET_TOPIC])

        async def poll() -> None:
            while True:
                await consumer.poll(0.5)

        while not await consumer.poll(0.5):
            pass
        await consumer.commit()
        polling = asyncio.create_task(poll())
        try:
            yield
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)


async def targets_of(cluster: Cluster, options: argparse.Namespace) -> Targets:
    """Return what the attackers have to know, all of which anybody can list."""
    async with AsyncClient(cluster.bootstrap) as client:
        group = await client.describe_group(GROUP)
    urls = {kind: [cluster.url(one) for one in SERVICES if one.startswith(kind)] for kind in KINDS}
    return Targets(
        brokers=tuple(urls["broker"]),
        controllers=tuple(urls["controller"]),
        coordinators=tuple(urls["coordinator"]),
        internal_ports=tuple(port_of(cluster.internal_url(name)) for name in INTERNAL),
        zookeeper=cluster.file.zookeeper,
        topic=TOPIC,
        group=GROUP,
        member=group["members"][0]["id"],
        instance=INSTANCE,
        generation=group["generation"],
        coordinator_epoch=group["coordinator_epoch"],
        connections=options.connections,
        intensity=options.intensity,
        only=options.only,
    )


KINDS = ("broker", "controller", "coordinator")


async def measure(directory: Path, options: argparse.Namespace) -> bool:
    """Run the cluster and all phases; return whether every goal is met."""
    started = Cluster(directory / "cluster", controllers=2, coordinators=1, settings=SESSION)
    async with started as cluster:
        client = cluster.client
        await client.create_topic(NewTopic(TOPIC, PARTITIONS, 3))
        await client.create_topic(NewTopic(QUIET_TOPIC, 1, 3))
        await client.produce(QUIET_TOPIC, 0, [OutgoingRecord(b"one")])
        async with victims(cluster.bootstrap):
            return await attack(cluster, client, directory, options)


async def attack(
    cluster: Cluster, client: AsyncClient, directory: Path, options: argparse.Namespace
) -> bool:
    """Alternate the phases and judge them."""
    config = directory / "targets.json"
    config.write_bytes(msgspec.json.encode(await targets_of(cluster, options)))
    bench = Bench(cluster, Producer(client), config, options.phase_s)
    producer = bench.producer
    writing = [asyncio.create_task(producer.write(number)) for number in range(PARTITIONS)]
    try:
        await asyncio.sleep(WARM_UP_S)
        before, connected = await bench.state(), await bench.open_connections()
        for number in range(options.rounds):
            await bench.run_phase(attacked=False, last=False)
            await bench.run_phase(attacked=True, last=number == options.rounds - 1)
        after = await bench.state()
    finally:
        producer.stopped = True
        await asyncio.gather(*writing)
    print_outcomes(bench.phases)
    held = judge(bench.phases)
    changed = [name for name in before if before[name] != after[name]]
    held &= verdict(
        "nothing changed or restarted", f"changed: {changed or 'nothing'}", met=not changed
    )
    left = await _connections_left(bench, connected)
    held &= verdict("all connections closed in the end", f"left: {left or 'none'}", met=not left)
    problems = await every_record_once(client, producer)
    count = sum(len(acked) * BATCH for acked in producer.acked.values())
    goal = "acknowledged records read once, in order"
    held &= verdict(goal, f"{count} records, {problems or 'no problem'}", met=not problems)
    print(f"the producer's errors: {dict(producer.errors) or 'none'}")
    return held


async def _connections_left(bench: Bench, before: dict[str, int]) -> dict[str, int]:
    """Return the connections that are still open after a while; those of clients may be a few."""

    async def few() -> bool:
        now = await bench.open_connections()
        return all(now[name] <= before[name] + 5 for name in now)

    try:
        await wait_until(few, "all connections are closed", FINAL_S)
    except AssertionError:
        return await bench.open_connections()
    return {}


def main() -> int:
    """Read the options, measure, and return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phase-s", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--intensity", type=float, default=1.0)
    parser.add_argument("--only", default="", help="attacks whose names contain this")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as directory:
        held = asyncio.run(measure(Path(directory), options))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

"""Five brokers at growing numbers of partitions: times should grow no faster than these.

Run `python benchmarks/scale.py [--partitions 10000,25000,50000,100000] [--rounds 1]`. Each number
gets a fresh cluster: ZooKeeper, two controllers, five brokers, each a process; topics of a hundred
partitions with three replicas. Then, on that cluster:

- the topics are created one after another, until every broker's metadata has them;
- a broker's memory and CPU while nothing is asked of it;
- a broker is killed: from the end of its node in ZooKeeper until the last partition that it led has
  a leader, and until no survivor's metadata names it. What measures this works as little as it
  can meanwhile: it follows each survivor's metadata by its changes, with one long poll, and watches
  one partition of each topic in ZooKeeper;
- it is started again: until every replica is in sync by every broker's metadata, whose changes
  are read twice a second;
- the active controller is killed: from the end of its node until a topic is created;
- the longest delay of an event loop so far, of each kind of service, after each of these, and how
  long at most a loop has worked during one: the rest of a delay is a wait for a processor.

At the end a table, and for each time the exponent of its growth, fitted over all numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import math
import os
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from leadline_client import LeadlineError, NewTopic
from leadline_client.retry import RetryPolicy
from leadline_client.wire import NO_LEADER
from leadline_common.znodes import CONTROLLER
from peers.processes import cpu_s, proportional_mib, resident_mib
from peers.systems.leadline import MetadataViews
from peers.systems.system import Partition, View
from peers.systems.waiting import until
from peers.systems.zookeeper import FailureWatch
from tests.support.services.cluster import Cluster

BROKERS: Final = (1, 2, 3, 4, 5)
CONTROLLERS: Final = (1, 2)
REPLICAS: Final = 3
A_TOPIC: Final = 100
IDLE_S: Final = 10.0
SETTLED_S: Final = 10.0
DEADLINE_S: Final = 900.0
SESSION_MS: Final = 6_000
LAG: Final = re.compile(r"^leadline_event_loop_lag_max_seconds (\S+)$", re.MULTILINE)
BUSY: Final = re.compile(r"^leadline_event_loop_busy_max_seconds (\S+)$", re.MULTILINE)

CHANGES_S: Final = 0.5
NO_LEADERS: Final = (None, NO_LEADER)

Figures = Mapping[str, float]
Row = tuple[int, int | None, int, list[int], list[int]]
"""A partition of a metadata document: number, leader, leader epoch, ISR, replicas."""
FindDue = Callable[[Iterable[Row]], Iterable[int]]
"""Returns the partitions, of some of a topic, to which something is still to happen."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", default="10000,25000,50000,100000")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    sizes = [int(number) for number in arguments.partitions.split(",")]
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, size in itertools.product(range(arguments.rounds), sizes):
        asyncio.run(_measure(size, found))
    _print_table(sizes, found)


async def _measure(size: int, found: dict[str, dict[int, list[float]]]) -> None:
    with tempfile.TemporaryDirectory(prefix="leadline-scale-") as directory:
        async with Subject(Path(directory)) as subject:
            for phase in (
                created(subject, size),
                idle(subject),
                failed(subject),
                replaced(subject),
            ):
                async for figures in phase:
                    for name, value in figures.items():
                        found[name][size].append(value)
                        print(f"{size} partitions: {name} {value:.4g}", flush=True)


class Subject(Cluster):
    """The cluster, and what its brokers' metadata says."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            brokers=len(BROKERS),
            controllers=len(CONTROLLERS),
            settings={"zookeeper.session.timeout.ms": str(SESSION_MS)},
            policy=RetryPolicy(timeout_s=180, request_timeout_s=60),
        )
        self._views = MetadataViews()

    async def view(self, broker: int) -> View:
        """Return the whole metadata as a broker has it."""
        return await self._views.read(self._http, self.url(f"broker-{broker}"))

    async def follow(self, broker: int, find_due: FindDue) -> FollowedMetadata:
        """Return a broker's metadata, to be followed until it has no due partition."""
        url = f"{self.url(f'broker-{broker}')}/v1/metadata"
        followed = FollowedMetadata(self._http, url, find_due)
        await followed.read()
        return followed

    async def delays(self, what: str) -> Figures:
        """Return the longest delay of an event loop so far in ms, by kind of service.

        Beside it, how long at most the loop itself has worked during a delay: on two processors
        nine processes wait for each other.
        """
        figures: dict[str, float] = {}
        for kind, numbers in (("broker", BROKERS), ("controller", CONTROLLERS)):
            texts = [await self._metrics(f"{kind}-{number}") for number in numbers]
            for of_what, pattern in (("delay", LAG), ("work during a delay", BUSY)):
                found = [float(match[1]) for text in texts if (match := pattern.search(text))]
                name = f"{what}, longest {of_what} of a {kind}'s loop so far, ms"
                figures[name] = max(found, default=0.0) * 1000
        return figures

    async def _metrics(self, name: str) -> str:
        with suppress(httpx.HTTPError):
            return (await self._http.get(f"{self.url(name)}/metrics", timeout=60)).text
        return ""


class FollowedMetadata:
    """A broker's metadata, of which only the changes are transferred, when there are some."""

    def __init__(self, http: httpx.AsyncClient, url: str, find_due: FindDue) -> None:
        self._http = http
        self._url = url
        self._find_due = find_due
        self._etag = ""
        self._version = 0
        self._due: dict[str, set[int]] = {}

    async def read(self) -> None:
        """Read everything, and note the partitions that are due."""
        self._note(await self._http.get(self._url, timeout=DEADLINE_S))

    async def until_none_is_due(self, *, every_s: float = 0.0) -> float:
        """Return when the answer arrived after which none is left (`time.monotonic`).

        It waits for the next changes, or asks for them every `every_s` seconds.
        """
        arrived_at = time.monotonic()
        while self._due:
            since = {"changed_after": self._etag, "after": str(self._version)}
            if not every_s:
                since["wait"] = "60s"
            answer = await self._http.get(self._url, params=since, timeout=DEADLINE_S)
            arrived_at = time.monotonic()
            self._note(answer)
            await asyncio.sleep(every_s)
        return arrived_at

    def _note(self, answer: httpx.Response) -> None:
        document: dict[str, Any] = msgspec.json.decode(answer.raise_for_status().content)
        self._etag, self._version = answer.headers["ETag"], document["version"]
        for topics in (document["topics"], document.get("changed_rows") or {}):
            for topic, described in topics.items():
                rows: list[Row] = described["partitions"]
                due = self._due.setdefault(topic, set())
                due.difference_update([row[0] for row in rows])
                due.update(self._find_due(rows))
                if not due:
                    del self._due[topic]


def _naming(broker: int, rows: Iterable[Row]) -> Iterable[int]:
    """Return the partitions that name a broker as leader or in the ISR, or have no leader."""
    leaders = {broker, *NO_LEADERS}
    return [row[0] for row in rows if row[1] in leaders or broker in row[3]]


def _incomplete(rows: Iterable[Row]) -> Iterable[int]:
    """Return the partitions that lack replicas in the ISR, or a leader."""
    return [row[0] for row in rows if row[1] in NO_LEADERS or len(row[3]) < REPLICAS]


async def created(cluster: Subject, size: int) -> AsyncIterator[Figures]:
    """Create topics until there are so many partitions."""
    begun = time.monotonic()
    for number in range(size // A_TOPIC):
        await cluster.client.create_topic(NewTopic(f"t{number:04d}", A_TOPIC, REPLICAS))
    yield {"topics created, s": time.monotonic() - begun}

    async def everywhere() -> bool:
        views = [await cluster.view(number) for number in BROKERS]
        return all(
            len(view.partitions) == size and all(one.leader >= 0 for one in view.partitions)
            for view in views
        )

    done = await until(everywhere, "every broker has all topics", deadline_s=DEADLINE_S)
    yield {"topics created and known everywhere, s": done - begun}
    yield await cluster.delays("created")


async def idle(cluster: Subject) -> AsyncIterator[Figures]:
    """Look at what brokers need."""
    await _until_whole(cluster)
    await asyncio.sleep(SETTLED_S)
    pids = [cluster.child(f"broker-{number}").pid or 0 for number in BROKERS]
    before = [cpu_s(pid) for pid in pids]
    await asyncio.sleep(IDLE_S)
    used = [cpu_s(pid) - then for pid, then in zip(pids, before, strict=True)]
    yield {
        "memory of an idle broker, MiB": statistics.fmean(resident_mib(pid) for pid in pids),
        "PSS of an idle broker, MiB": statistics.fmean(map(proportional_mib, pids)),
        "CPU of an idle broker, % of a core": statistics.fmean(used) / IDLE_S * 100,
    }


async def failed(cluster: Subject) -> AsyncIterator[Figures]:
    """Kill a broker, and start it again."""
    victim, *survivors = BROKERS
    led = (await cluster.view(victim)).led_by(victim)
    followed = [await cluster.follow(one, partial(_naming, victim)) for one in survivors]
    async with cluster.zookeeper() as session:
        watch = FailureWatch(session, victim, _last_of_each_topic(led))
        await watch.arm()
        # The collector would walk through the documents while the brokers need the processor.
        gc.disable()
        await cluster.kill(f"broker-{victim}")
        async with asyncio.TaskGroup() as tasks:
            healing = [tasks.create_task(one.until_none_is_due()) for one in followed]
        await until(watch.is_complete, "every partition has a leader", deadline_s=DEADLINE_S)
        healed = [one.result() - watch.gone_at for one in healing]
        gc.enable()
    yield {
        "killed broker gone until its last partition has a leader, s": watch.last_elected_at
        - watch.gone_at,
        "until the first survivor's metadata is healed, s": min(healed),
        "until all survivors' metadata is healed, s": max(healed),
    }
    yield await cluster.delays("healed")
    followed = [await cluster.follow(one, _incomplete) for one in survivors]
    begun = time.monotonic()
    cluster.restart(f"broker-{victim}")
    async with asyncio.TaskGroup() as tasks:
        for one in followed:
            tasks.create_task(one.until_none_is_due(every_s=CHANGES_S))
    yield {"broker started again until all is in sync, s": await _until_whole(cluster) - begun}
    yield await cluster.delays("in sync again")


async def replaced(cluster: Subject) -> AsyncIterator[Figures]:
    """Kill the active controller, and create a topic."""
    gone_at: list[float] = []

    async def one_more() -> bool:
        with suppress(LeadlineError):
            await cluster.client.create_topic(NewTopic("after", 3, REPLICAS))
            return True
        return False

    async with cluster.zookeeper() as session:
        await session.exists(CONTROLLER, watch=lambda: gone_at.append(time.monotonic()))
        await cluster.kill(await cluster.active_controller())
        done = await until(one_more, "a topic is created", deadline_s=DEADLINE_S)
    yield {"killed controller gone until a topic is created, s": done - gone_at[0]}
    yield await cluster.delays("controller replaced")


async def _until_whole(cluster: Subject) -> float:
    async def whole() -> bool:
        views = [await cluster.view(number) for number in BROKERS]
        return all(
            view.brokers == frozenset(BROKERS)
            and all(one.leader >= 0 and len(one.isr) == REPLICAS for one in view.partitions)
            for view in views
        )

    return await until(whole, "all is in sync", deadline_s=DEADLINE_S, poll_s=0.2)


def _last_of_each_topic(led: Iterable[Partition]) -> list[tuple[str, int]]:
    """Return one partition of each topic: the controller elects in the order of their numbers."""
    last: dict[str, int] = {}
    for one in led:
        last[one.topic] = max(one.number, last.get(one.topic, 0))
    return list(last.items())


def _print_table(sizes: Sequence[int], found: Mapping[str, Mapping[int, list[float]]]) -> None:
    print(f"\n{'':62}" + "".join(f"{size:>12,}" for size in sizes) + "    exponent")
    for name, by_size in found.items():
        medians = [statistics.median(by_size[size]) for size in sizes]
        shown = "".join(f"{value:12.2f}" for value in medians)
        print(f"{name:62}{shown}    {_exponent(sizes, medians)}")


def _exponent(sizes: Sequence[int], values: Sequence[float]) -> str:
    """Return the exponent of a power of the size that fits the values, by least squares."""
    if len(sizes) < 2 or min(values) <= 0:
        return ""
    xs, ys = [math.log(size) for size in sizes], [math.log(value) for value in values]
    return f"{statistics.linear_regression(xs, ys).slope:8.2f}"


if __name__ == "__main__":
    main()

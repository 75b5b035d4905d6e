"""How long a consumer group of real processes takes to settle after a member or coordinator goes.

Run `python benchmarks/group_settling.py [--members 4] [--partitions 24] [--rounds 5]`.
Everything is real: ZooKeeper, a controller, three brokers, two coordinators and the
consumers, each a process; the topic is written to all the time. Counted is from the
fault to the last partition's being assigned to its new owner, by the members' own
logs; for a killed coordinator to the last partition's being consumed again under its
successor. Goals: clean leave 1 s, lost socket (kill -9) 2 s, silent member (SIGSTOP)
5 s, coordinator killed: ZooKeeper's session timeout (2 s here) and 5 s.
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

# The members and the reading of their logs are the tests' own.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.groups.group import LoadedGroup, loaded_group
from tests.support.services.cluster import Cluster, wait_until

SESSION_S = 2.0
GOALS_S = {
    "a member leaves": 1.0,
    "a member is killed": 2.0,
    "a member is frozen": 5.0,
    "the coordinator is killed": SESSION_S + 5.0,
}


class Bench:
    """A settled group, and one fault after another."""

    def __init__(self, group: LoadedGroup, members: int, partitions: int) -> None:
        self._group = group
        self._partitions = partitions
        self._names = [f"m{number}" for number in range(members)]
        self._made = members

    async def settle(self) -> None:
        """Wait until everybody has a part."""
        missing = [name for name in self._names if name not in self._group.members]
        self._group.start(*missing)
        await self._group.settled(*self._names, partitions=self._partitions, deadline_s=60)

    async def leave(self) -> float:
        """End a member cleanly."""
        name = self._replaced()
        lost = len(self._group.parts()[name])
        began_s = time.monotonic()
        await self._group.leave(name)
        return await self._handed_on(lost, began_s)

    async def kill(self) -> float:
        """Kill a member: its socket is closed by the kernel."""
        name = self._replaced()
        lost = len(self._group.parts()[name])
        began_s = time.monotonic()
        await self._group.kill(name)
        return await self._handed_on(lost, began_s)

    async def freeze(self) -> float:
        """Stop a member without a word; it is killed when the others have its part."""
        name = self._replaced()
        lost = len(self._group.parts()[name])
        began_s = time.monotonic()
        async with self._group.frozen(name):
            took_s = await self._handed_on(lost, began_s)
        await self._group.kill(name)
        return took_s

    async def kill_coordinator(self) -> float:
        """Kill the active coordinator; nothing moves, and everybody pauses."""
        cluster = self._group.cluster
        active = await cluster.active_coordinator()
        began_s = time.monotonic()
        await cluster.kill(active)
        await cluster.active_coordinator(not_in=[active])
        elected_s = time.monotonic()
        again: dict[tuple[str, int], float] = {}

        async def all_consumed() -> bool:
            for event in self._group.events():
                if event.kind == "consumed" and event.at_s > elected_s:
                    for partition in event.partitions:
                        again.setdefault(partition, event.at_s)
            return len(again) == self._partitions

        await wait_until(all_consumed, "all is consumed again", 60)
        cluster.restart(active)
        await cluster.until_ready(active)
        return max(again.values()) - began_s

    def _replaced(self) -> str:
        """Return the next victim, which another member is to replace."""
        name = self._names.pop(0)
        self._names.append(f"m{self._made}")
        self._made += 1
        return name

    async def _handed_on(self, count: int, began_s: float) -> float:
        """Return the seconds until `count` partitions have been assigned again."""
        at_s: list[float] = []

        async def all_assigned() -> bool:
            at_s[:] = [
                event.at_s
                for event in self._group.events()
                if event.kind == "assigned" and event.at_s > began_s
                for _ in event.partitions
            ]
            return len(at_s) >= count

        await wait_until(all_assigned, f"{count} partitions have new owners", 60)
        return max(at_s) - began_s


async def measure(members: int, partitions: int, rounds: int) -> dict[str, list[float]]:
    """Run the cluster; return seconds by fault."""
    figures: dict[str, list[float]] = {name: [] for name in GOALS_S}
    settings = {"zookeeper.session.timeout.ms": str(int(SESSION_S * 1000))}
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as name:
        directory = Path(name)
        async with (
            Cluster(directory / "cluster", coordinators=2, settings=settings) as cluster,
            loaded_group(cluster, directory, "bench", partitions=partitions) as group,
        ):
            bench = Bench(group, members, partitions)
            faults: list[Callable[[], Awaitable[float]]] = [
                bench.leave,
                bench.kill,
                bench.freeze,
                bench.kill_coordinator,
            ]
            for _ in range(rounds):
                for fault, times in zip(faults, figures.values(), strict=True):
                    await bench.settle()
                    times.append(await fault())
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    figures = asyncio.run(measure(arguments.members, arguments.partitions, arguments.rounds))
    for name, times in figures.items():
        median_s, longest_s, goal_s = statistics.median(times), max(times), GOALS_S[name]
        verdict = "met" if longest_s <= goal_s else "MISSED"
        print(
            f"{name:28} median {median_s:6.2f} s, longest {longest_s:6.2f} s, "
            f"goal {goal_s:.0f} s: {verdict}"
        )


if __name__ == "__main__":
    main()

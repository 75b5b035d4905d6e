"""A consumer group of a thousand members: joining at once, a rebalance, commits every second.

Run `python benchmarks/group_rebalance.py [--members 1000] [--partitions 3000] [--rounds 5]`.
Real ZooKeeper and a real coordinator, each a process; the members are WebSockets of this process,
which answer frames and do nothing else. Interleaved in one run:

- the baseline: two POSTs for each member that are answered without any effect, by the same
  coordinator, 32 at a time;
- a rebalance of the settled members: one leaves, everybody else is stopped and started again
  (round robin under the eager protocol), counted until the last has been sent its Start. Goal: at
  most twice the baseline.

Then all members commit all of their partitions every second, for some seconds: how many offsets are
durable in a second, and how long a commit waits. Before it all: how long it takes from the first
connection until all members are started (goal: 30 s for 1,000).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
from websockets.asyncio.client import ClientConnection, connect

from leadline_common import znodes
from leadline_common.tcp_ports import free_port
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import TopicAssignment

# The embedded ZooKeeper server is the tests' own.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.embedded_zookeeper import EmbeddedZooKeeper

GROUP = "bench"
TOPIC = "bench"
DEADLINE_S = 120.0
AT_ONCE = 32


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10, help="how long all members commit")
    arguments = parser.parse_args()
    _allow_files(arguments.members * 2 + 200)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    with (
        tempfile.TemporaryDirectory(prefix="leadline-bench-") as directory,
        EmbeddedZooKeeper(Path(directory)) as zookeeper,
    ):
        asyncio.run(_make_topic(zookeeper.hosts, arguments.partitions))
        with coordinator(zookeeper.hosts, Path(directory) / "coordinator.log") as url:
            asyncio.run(measure(url, arguments))


@contextlib.contextmanager
def coordinator(hosts: str, log: Path) -> Iterator[str]:
    """Run a coordinator; yield its URL once it is active."""
    port = free_port()
    environment = {
        **os.environ,
        "LEADLINE_COORDINATOR_ID": "1",
        "LEADLINE_ZOOKEEPER_CONNECT": hosts,
        "LEADLINE_LISTEN_PORT": str(port),
    }
    command = [sys.executable, "-m", "leadline_coordinator"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            url = f"http://127.0.0.1:{port}"
            _await_active(url)
            yield url
        finally:
            process.terminate()
            process.wait(20)


class Member:
    """One channel that answers."""

    def __init__(self, group: Group, number: int) -> None:
        self.name = self.secret = ""
        self.epoch = self.generation = 0
        self.owned: list[Any] = []
        self.socket: ClientConnection | None = None
        self._group = group
        self._number = number

    async def run(self) -> None:
        """Join, and answer until the channel ends."""
        url = f"{self._group.url.replace('http', 'ws')}/v1/groups/{GROUP}/channel"
        async with connect(url, ping_interval=None, compression=None) as socket:
            self.socket = socket
            hello = {"topics": [TOPIC], "client_id": f"m{self._number}", "assignor": "roundrobin"}
            await socket.send(json.dumps({"type": "hello", **hello}))
            async for text in socket:
                frame = json.loads(text)
                answer = self._take(frame)
                if answer:
                    echo = ("id", "coordinator_epoch", "generation", "attempt", "partitions")
                    members = {name: frame[name] for name in echo if name in frame}
                    await socket.send(json.dumps({"type": answer, **members}))

    def _take(self, frame: dict[str, Any]) -> str | None:
        match frame["type"]:
            case "welcome":
                self.name, self.epoch = frame["member"], frame["coordinator_epoch"]
                self.secret = frame["secret"]
            case "ping":
                return "pong"
            case "stop":
                return "stopped"
            case "start":
                self.owned, self.generation = frame["assignment"], frame["generation"]
                self._group.started(self)
                return "started"
        return None


class Group:
    """All members, and who has been started in which generation."""

    def __init__(self, url: str, count: int, partitions: int) -> None:
        self.url = url
        self.members = [Member(self, number) for number in range(count)]
        self._partitions = partitions
        self._tasks: dict[Member, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def started(self, _: Member) -> None:
        """Take note of a Start."""
        self._changed.set()

    def join(self, member: Member) -> None:
        """Have a member join."""
        self._tasks[member] = asyncio.create_task(member.run())

    async def leave(self, member: Member, http: aiohttp.ClientSession) -> None:
        """Have a member leave."""
        url = f"{self.url}/v1/groups/{GROUP}/members/{member.name}/leave"
        async with http.post(url, json={"secret": member.secret}) as answer:
            assert answer.status == 200, await answer.text()
        await self._tasks.pop(member)
        member.owned = []

    async def settled(self, after: int = -1) -> None:
        """Wait until all who are here are started in one generation, later than `after`."""
        async with asyncio.timeout(DEADLINE_S):
            while not self._is_settled(after):
                self._changed.clear()
                await self._changed.wait()

    def _is_settled(self, after: int) -> bool:
        generations = {member.generation for member in self._tasks}
        if len(generations) != 1 or min(generations) <= after:
            return False
        owned = sum(len(numbers) for member in self._tasks for _, numbers in member.owned)
        return owned == self._partitions

    async def close(self) -> None:
        """End all channels."""
        for member, task in self._tasks.items():
            if member.socket is not None:
                await member.socket.close()
            await task


async def measure(url: str, arguments: argparse.Namespace) -> None:
    """Join, rebalance, commit; print."""
    group = Group(url, arguments.members, arguments.partitions)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        begun = time.monotonic()
        for member in group.members:
            group.join(member)
        await group.settled()
        print(f"{arguments.members} members join at once: settled in {_ms(begun) / 1000:.2f} s")
        await _rounds(group, http, arguments)
        await _commits(group, http, arguments.seconds)
        await group.close()


async def _rounds(group: Group, http: aiohttp.ClientSession, arguments: argparse.Namespace) -> None:
    baselines, rebalances = [], []
    for number in range(arguments.rounds):
        baselines.append(await _no_ops(group, http, 2 * arguments.members))
        leaving = group.members[number % len(group.members)]
        generation = leaving.generation
        begun = time.monotonic()
        await group.leave(leaving, http)
        await group.settled(generation)
        rebalances.append(_ms(begun))
        generation = group.members[-1].generation
        group.join(leaving)
        await group.settled(generation)
    ratios = [one / base for one, base in zip(rebalances, baselines, strict=True)]
    print(f"{2 * arguments.members} POSTs without effect, ms: {_row(baselines)}")
    print(f"rebalance of {arguments.members - 1} members, ms: {_row(rebalances)}")
    print(f"ratio: {'  '.join(f'{r:.2f}' for r in ratios)}  median {statistics.median(ratios):.2f}")


async def _no_ops(group: Group, http: aiohttp.ClientSession, count: int) -> float:
    """POST what is refused by name, and has no effect."""
    left = iter(range(count))

    async def some() -> None:
        for _ in left:
            async with http.post(f"{group.url}/v1/groups/nobody/rebalance") as answer:
                await answer.read()

    begun = time.monotonic()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return _ms(begun)


async def _commits(group: Group, http: aiohttp.ClientSession, seconds: int) -> None:
    """Have every member commit everything it owns once in each second."""
    waits: list[float] = []
    refused = 0

    async def commit(member: Member, offset: int) -> None:
        nonlocal refused
        rows = [
            {"topic": topic, "partition": number, "offset": offset}
            for topic, numbers in member.owned
            for number in numbers
        ]
        body = {
            "member": member.name,
            "secret": member.secret,
            "generation": member.generation,
            "coordinator_epoch": member.epoch,
            "offsets": rows,
        }
        begun = time.monotonic()
        async with http.post(f"{group.url}/v1/groups/{GROUP}/offsets", json=body) as answer:
            done = await answer.json()
        waits.append(_ms(begun))
        refused += answer.status != 200 or any(row["error_code"] for row in done["offsets"])

    async def regularly(member: Member, number: int) -> None:
        await asyncio.sleep(number / len(group.members))
        for second in range(seconds):
            due = begun + second + number / len(group.members)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await commit(member, 0)  # no broker tells where a log ends, but 0 is in every log

    begun = time.monotonic()
    await asyncio.gather(*(regularly(one, number) for number, one in enumerate(group.members)))
    took_s = _ms(begun) / 1000
    offsets = sum(len(numbers) for member in group.members for _, numbers in member.owned)
    writes = await _writes(group, http)
    waits.sort()
    print(
        f"{len(group.members)} members commit {offsets} offsets every second for {seconds} s: "
        f"took {took_s:.1f} s, {offsets * seconds / took_s:.0f} offsets/s in "
        f"{writes / took_s:.0f} writes/s; a commit waited {waits[len(waits) // 2]:.0f} ms at the "
        f"median, {waits[len(waits) * 99 // 100]:.0f} ms at 99 %; {refused} refused"
    )


async def _writes(group: Group, http: aiohttp.ClientSession) -> float:
    """Return how often offsets were written to ZooKeeper."""
    async with http.get(f"{group.url}/metrics") as answer:
        text = await answer.text()
    found = re.search(r"^leadline_coordinator_commit_write_seconds_count (\S+)", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def _make_topic(hosts: str, partitions: int) -> None:
    session = ZkSession()
    await session.start(hosts, 6_000)
    await session.ensure_path(znodes.TOPICS)
    assignment = TopicAssignment("bench", dict.fromkeys(range(partitions), (1,)))
    await session.create(znodes.topic_path(TOPIC), znodes.encode_topic(assignment))
    await session.close()


def _await_active(url: str) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/v1/coordinator", timeout=2).json()["active"]:
                return
        time.sleep(0.1)
    raise TimeoutError(f"no active coordinator at {url}")


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def _ms(begun: float) -> float:
    return (time.monotonic() - begun) * 1000


def _row(values: list[float]) -> str:
    shown = "  ".join(f"{value:.0f}" for value in values)
    return f"{shown}  median {statistics.median(values):.0f}"


if __name__ == "__main__":
    main()

"""The hostile processes of `attack_mix.py`, and the one that measures health meanwhile.

`python benchmarks/_attackers.py ROLE CONFIG` runs a role until SIGTERM: `slow` holds connections,
`requests` sends everything else, `probe` asks for /healthz. CONFIG is a JSON file (`Targets`). A
role writes the line READY when it has begun, and at its end one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from leadline_client import channel
from leadline_client.channel import Hello
from leadline_common import znodes
from leadline_common.zk.errors import NotPermitted
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession

# The hostile batches are the tests' own.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.bad_input.batches import BOMBS, HOSTILE

READY = "READY"
PROBE_PERIOD_S = 0.02
TIMEOUT_S = 20.0
MOST_OPEN = 50
"""Requests of one attack that may be unanswered; further ones are left out and counted."""
JSON = "application/json"
OCTETS = "application/octet-stream"
GUESS = "wrong" * 4
UNANSWERED = "closed without an answer"


class Targets(msgspec.Struct, frozen=True):
    """What is attacked: URLs of public listeners, ports of internal ones, and a group's member."""

    brokers: tuple[str, ...]
    controllers: tuple[str, ...]
    coordinators: tuple[str, ...]
    internal_ports: tuple[int, ...]
    zookeeper: str
    topic: str
    group: str
    member: str
    instance: str
    generation: int
    coordinator_epoch: int
    connections: int = 2_000
    intensity: float = 1.0
    """Multiplies every rate of `RATES`."""
    only: str = ""
    """A part of the names of the attacks that are made; all by default."""

    @property
    def everyone(self) -> tuple[str, ...]:
        """All public URLs."""
        return (*self.brokers, *self.controllers, *self.coordinators)


def port_of(url: str) -> int:
    """Return the port of a URL."""
    port = urlsplit(url).port
    assert port is not None
    return port


def request(
    method: str, path: str, body: bytes = b"", content_type: str = JSON, **headers: str
) -> bytes:
    """Return the bytes of a request on a connection of its own."""
    stated = {"Host": "127.0.0.1", "Connection": "close", **headers}
    if body:
        stated |= {"Content-Type": content_type, "Content-Length": str(len(body))}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in stated.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def ask(port: int, data: bytes, *, tls: ssl.SSLContext | None = None) -> str:
    """Send bytes on a new connection; return the status, or how it ended."""
    writer = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writer.write(data)
            answer = await reader.read(4096)
    except TimeoutError:
        return "no answer in time"
    except (OSError, ssl.SSLError):
        return UNANSWERED
    finally:
        if writer is not None:
            writer.transport.abort()
    return answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else UNANSWERED


# -- what is asked too much, wrongly, or by nobody ----------------------------

SPOILED = (
    rb'"\ud800x"',
    b'"\xff"',
    b"1" * 5_000,
    b"[" * 50_000 + b"]" * 50_000,
    b"NaN",
)
SPOILED_ROUTES = (
    ("POST", "/v1/topics", b"name"),
    ("POST", "/v1/elections", b"partitions"),
    ("POST", "/v1/reassignments", b"partitions"),
    ("PATCH", "/v1/configs", b"set"),
)
REFUSED = (
    request("GET", "/v1/none"),
    request("DELETE", "/healthz"),
    request("GET", "/v1/topics/none"),
    request("DELETE", "/v1/topics/none"),
    request("POST", "/v1/topics", b"{"),
    request("POST", "/v1/topics", b"<a/>", "text/xml"),
    request("POST", "/v1/topics", b'{"name": "", "partitions": -1}'),
    request("GET", "/v1/metadata", x_leadline_cluster_id="another"),
    request("GET", "/v1/metadata?topics=%ff"),
)
FOREIGN = (
    request("DELETE", "/v1/topics/load", Host="evil.example"),
    request("GET", "/v1/metadata", Host="evil.example:80"),
    request("POST", "/v1/topics", b'{"name": "x"}', Origin="http://evil.example"),
    request("GET", "/v1/metadata", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors"),
)


def _placement(brokers: int, partitions: int, factor: int, *, racks: bool = False) -> bytes:
    rows = [
        {"id": number} | ({"rack": f"r{number % 3}"} if racks else {}) for number in range(brokers)
    ]
    body = {"brokers": rows, "partitions": partitions, "replication_factor": factor}
    return request("POST", "/v1/what-if/placement", json.dumps(body).encode())


def _reassignment(partitions: int, replicas: int) -> bytes:
    batch = [
        {
            "topic": "t",
            "partition": number,
            "start": list(range(replicas)),
            "target": list(range(replicas, 2 * replicas)),
        }
        for number in range(partitions)
    ]
    return request("POST", "/v1/what-if/reassignment", json.dumps({"batch": batch}).encode())


def _assignment(members: int, topics: int, partitions: int) -> bytes:
    names = [f"t{number}" for number in range(topics)]
    body = {
        "assignor": "sticky",
        "topics": dict.fromkeys(names, partitions),
        "subscriptions": {f"m{number}": names for number in range(members)},
    }
    return request("POST", "/v1/what-if/assignment", json.dumps(body).encode())


AT_LIMITS = (
    _placement(3, 50_000, 2),
    _placement(2_000, 2_000, 3, racks=True),
    _placement(200, 20_000, 3, racks=True),
    _reassignment(500, 6),
    _reassignment(8, 50),
)
ABOVE_LIMITS = (
    _placement(3, 200_000, 3),
    _placement(2_001, 10, 2),
    _reassignment(500, 7),
    _reassignment(501, 1),
)
ASSIGNMENTS = (_assignment(1_000, 100, 200), _assignment(5_000, 20, 1_000))
OVERSIZED = (
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * (256 << 10),
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    request("POST", "/v1/topics", b" ").replace(
        b"Content-Length: 1", b"Content-Length: 99999999999"
    ),
)
GARBAGE_BATCHES = tuple(one.data for one in (*BOMBS, *BOMBS, *HOSTILE))


@dataclass(slots=True)
class Attacker:
    """Sends each attack at its rate, and counts what came of it."""

    targets: Targets
    random: random.Random = field(default_factory=lambda: random.Random(7))
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    _tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    _zookeeper: ZkSession = field(default_factory=ZkSession)

    async def __aenter__(self) -> Self:
        """Prepare what the attacks need."""
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        await self._zookeeper.start(self.targets.zookeeper, 10_000)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._zookeeper.close()

    async def run(self, stop: asyncio.Event) -> dict[str, Any]:
        """Attack until `stop`; return the outcomes."""
        async with self:
            print(READY, flush=True)
            attacks = [
                asyncio.create_task(self._repeat(name, rate, attack, stop))
                for name, (rate, attack) in RATES.items()
                if self.targets.only in name
            ]
            await asyncio.gather(stop.wait(), *attacks)
        return {name: dict(counts) for name, counts in self.outcomes.items()}

    async def _repeat(self, name: str, rate: float, attack: Attack, stop: asyncio.Event) -> None:
        counts = self.outcomes.setdefault(name, Counter())
        period_s = 1 / (rate * self.targets.intensity)
        open_requests: set[asyncio.Task[None]] = set()

        async def once() -> None:
            counts[await attack(self)] += 1

        due_s = time.monotonic() + period_s * self.random.random()
        while not stop.is_set():
            due_s += period_s
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due_s - time.monotonic())):
                    await stop.wait()
            if len(open_requests) >= MOST_OPEN:
                counts["left out"] += 1
                continue
            task = asyncio.create_task(once())
            open_requests.add(task)
            task.add_done_callback(open_requests.discard)
        for task in open_requests:
            task.cancel()
        await asyncio.gather(*open_requests, return_exceptions=True)

    async def one_of(self, urls: Sequence[str], requests: Sequence[bytes]) -> str:
        """Send one of some requests to one of some services."""
        return await ask(port_of(self.random.choice(urls)), self.random.choice(requests))

    async def spoiled_json(self) -> str:
        """Send JSON that some parsers accept and others fail on."""
        method, path, member = self.random.choice(SPOILED_ROUTES)
        value = self.random.choice(SPOILED)
        body = b'{"' + member + b'": ' + value + b', "x": ' + value + b"}"
        urls = (*self.targets.brokers, *self.targets.controllers)
        return await self.one_of(urls, [request(method, path, body)])

    async def garbage_to_produce(self) -> str:
        """Produce batches that lie about their content, bombs and noise."""
        noise = self.random.randbytes(2_000)
        data = self.random.choice((noise, *GARBAGE_BATCHES))
        path = f"/v1/topics/{self.targets.topic}/partitions/{self.random.randrange(6)}/records"
        return await self.one_of(self.targets.brokers, [request("POST", path, data, OCTETS)])

    async def forged_commit(self) -> str:
        """Commit for somebody else's member."""
        row = {"topic": self.targets.topic, "partition": 0, "offset": 1 << 40}
        body = {
            "member": self.targets.member,
            "generation": self.targets.generation,
            "coordinator_epoch": self.targets.coordinator_epoch,
            "secret": f"{self.random.getrandbits(64):x}",
            "offsets": [row],
        }
        path = f"/v1/groups/{self.targets.group}/offsets"
        data = request("POST", path, json.dumps(body).encode())
        return await self.one_of((*self.targets.brokers, *self.targets.coordinators), [data])

    async def forged_hello(self) -> str:
        """Say hello as somebody else's member, or as its instance."""
        as_member = self.random.random() < 0.5
        hello = Hello(
            member=self.targets.member if as_member else None,
            instance_id=None if as_member else self.targets.instance,
            topics=(self.targets.topic,),
            secret=GUESS,
            instance_secret=GUESS,
        )
        url = self.targets.coordinators[0].replace("http", "ws", 1)
        path = channel.CHANNEL_PATH.format(group=self.targets.group)
        try:
            async with asyncio.timeout(TIMEOUT_S), connect(url + path) as socket:
                await socket.send(channel.encode(hello))
                frame = channel.decode(await socket.recv())
        except (OSError, TimeoutError, WebSocketException):
            return UNANSWERED
        return str(frame.error_code) if isinstance(frame, channel.Error) else type(frame).__name__

    async def anonymous_tls(self) -> str:
        """Call an internal listener without a certificate."""
        data = request("POST", "/v1/replica/fetch", b"{}")
        return await ask(self.random.choice(self.targets.internal_ports), data, tls=self._tls)

    async def plain_to_internal(self) -> str:
        """Call an internal listener without TLS."""
        return await ask(self.random.choice(self.targets.internal_ports), request("GET", "/"))

    async def zookeeper_write(self) -> str:
        """Write nodes of the cluster as nobody."""
        nobody = self._zookeeper
        writes: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: nobody.create(f"{znodes.TOPICS}/stranger"),
            lambda: nobody.set(znodes.CONTROLLER_EPOCH, b"2147483648", ANY_VERSION),
            lambda: nobody.delete(znodes.CONTROLLER, ANY_VERSION),
            lambda: nobody.delete(znodes.broker_id_path(1), ANY_VERSION),
        )
        try:
            await self.random.choice(writes)()
        except NotPermitted:
            return "not permitted"
        return "WRITTEN"


Attack = Callable[[Attacker], Awaitable[str]]

RATES: dict[str, tuple[float, Attack]] = {
    "spoiled JSON": (20, Attacker.spoiled_json),
    "garbage to produce": (10, Attacker.garbage_to_produce),
    "what-if at the limits": (2, lambda a: a.one_of(a.targets.controllers, AT_LIMITS)),
    "what-if through brokers": (2, lambda a: a.one_of(a.targets.brokers, AT_LIMITS)),
    "what-if above the limits": (4, lambda a: a.one_of(a.targets.controllers, ABOVE_LIMITS)),
    "assignments at the limits": (1, lambda a: a.one_of(a.targets.coordinators, ASSIGNMENTS)),
    "foreign Host or Origin": (40, lambda a: a.one_of(a.targets.everyone, FOREIGN)),
    "refused requests": (100, lambda a: a.one_of(a.targets.everyone, REFUSED)),
    "forged commits": (20, Attacker.forged_commit),
    "forged hellos": (5, Attacker.forged_hello),
    "oversized heads and URLs": (20, lambda a: a.one_of(a.targets.everyone, OVERSIZED)),
    "anonymous TLS": (10, Attacker.anonymous_tls),
    "plain to internal": (10, Attacker.plain_to_internal),
    "anonymous ZooKeeper writes": (20, Attacker.zookeeper_write),
}
"""Attacks per second, of each kind: about 260 together, besides the slow connections."""


# -- slow connections -----------------------------------------------------------

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
SLOW_BODY = (
    b"POST /v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000000\r\n\r\n" + b" " * 10_000
)
READS = (HEAD.replace(b"/healthz", b"/openapi.json") + b"\r\n") * 15
RECEIVE_BUFFER = 4096
KINDS = (b"", HEAD, HEAD + b"X: " + b"a" * 8_000, SLOW_BODY)
READERS = 20
"""One in so many connections asks for large documents and does not read them."""
TRICKLERS = 5
"""One in so many sends a byte a second."""
OPENED_PER_S = 500
FINAL_S = 90.0
"""Longer than a connection may be idle."""
READERS_FINAL_S = 30.0


class SlowConnection(asyncio.Protocol):
    """A connection that sends a beginning, and perhaps one byte at a time after it."""

    def __init__(self, number: int, open_connections: set[SlowConnection]) -> None:
        self.reads = number % READERS != 0
        self.trickles = number % TRICKLERS == 1
        self._first = KINDS[number % len(KINDS)] if self.reads else READS
        self._open = open_connections
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the beginning."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._open.add(self)
        transport.write(self._first)
        if not self.reads:
            transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the service has closed the connection."""
        del exc
        self._open.discard(self)


@dataclass(slots=True)
class Holder:
    """Keeps as many slow connections open as asked for, spread over all services."""

    targets: Targets
    opened: int = 0
    refused: int = 0
    most: int = 0
    open_connections: set[SlowConnection] = field(default_factory=set)

    async def run(self, stop: asyncio.Event) -> dict[str, Any]:
        """Hold them until `stop`; then wait for the services to close them."""
        print(READY, flush=True)
        ticks = 0
        while not stop.is_set():
            missing = self.targets.connections - len(self.open_connections)
            for _ in range(min(missing, OPENED_PER_S // 20)):
                await self._open()
            self.most = max(self.most, len(self.open_connections))
            if ticks % 20 == 0:
                self._trickle()
            ticks += 1
            await asyncio.sleep(0.05)
        closed_in_s = await self._until_closed()
        return {
            "opened": self.opened,
            "not admitted": self.refused,
            "most at a time": self.most,
            "left open": len(self.open_connections),
            "closed in s": round(closed_in_s, 1),
        }

    async def _open(self) -> None:
        urls = self.targets.everyone
        number, self.opened = self.opened, self.opened + 1
        loop = asyncio.get_running_loop()
        mine = SlowConnection(number // len(urls), self.open_connections)
        sock = socket.socket()
        sock.setblocking(False)
        if not mine.reads:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        try:
            await loop.sock_connect(sock, ("127.0.0.1", port_of(urls[number % len(urls)])))
            await loop.create_connection(lambda: mine, sock=sock)
        except OSError:
            self.refused += 1
            sock.close()

    def _trickle(self) -> None:
        for one in self.open_connections:
            if one.trickles and one.transport is not None:
                one.transport.write(b"x")

    async def _until_closed(self) -> float:
        """Wait for the services to close everything; readers notice only when they read."""
        began = time.monotonic()
        while self.open_connections and time.monotonic() < began + FINAL_S:
            if time.monotonic() > began + READERS_FINAL_S:
                for one in self.open_connections:
                    if not one.reads and one.transport is not None:
                        one.transport.resume_reading()
            await asyncio.sleep(0.1)
        return time.monotonic() - began


# -- the probe ------------------------------------------------------------------


@dataclass(slots=True)
class Probe:
    """Asks services for their health at a fixed rate, however long an answer takes."""

    targets: Targets
    took_ms: dict[str, list[float]] = field(default_factory=dict)
    failed: int = 0

    async def run(self, stop: asyncio.Event) -> dict[str, Any]:
        """Ask until `stop`; return the latencies in ms by URL."""
        urls = (self.targets.brokers[0], self.targets.controllers[0])
        self.took_ms = {url: [] for url in urls}
        asked: set[asyncio.Task[None]] = set()
        async with aiohttp.ClientSession() as session:
            for url in urls:
                await self._ask(session, url)
            print(READY, flush=True)
            due_s = time.monotonic()
            while not stop.is_set():
                for url in urls:
                    task = asyncio.create_task(self._ask(session, url))
                    asked.add(task)
                    task.add_done_callback(asked.discard)
                due_s += PROBE_PERIOD_S
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            await asyncio.gather(*asked)
        return {"took_ms": self.took_ms, "failed": self.failed}

    async def _ask(self, session: aiohttp.ClientSession, url: str) -> None:
        began = time.perf_counter()
        try:
            async with session.get(f"{url}/healthz") as answer:
                answer.raise_for_status()
                await answer.read()
        except aiohttp.ClientError:
            self.failed += 1
        self.took_ms[url].append((time.perf_counter() - began) * 1000)


async def play(role: str, targets: Targets) -> dict[str, Any]:
    """Play a role until SIGTERM; return its result."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    players: dict[str, type[Attacker | Holder | Probe]] = {
        "slow": Holder,
        "requests": Attacker,
        "probe": Probe,
    }
    return await players[role](targets).run(stop)


def main() -> None:
    """Read the arguments, play the role, and print its result."""
    role, file = sys.argv[1:]
    targets = msgspec.json.decode(Path(file).read_bytes(), type=Targets)
    print(json.dumps(asyncio.run(play(role, targets))), flush=True)


if __name__ == "__main__":
    main()

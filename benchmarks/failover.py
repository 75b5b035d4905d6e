"""Broker failure, cold load and topic creation at size, as ratios to bare ZooKeeper requests.

Run `python benchmarks/failover.py [--topics 100] [--partitions 100] [--rounds 5]`. A
controller runs in this process; each of three brokers is a process of its own that
registers, decodes every command and acknowledges it. Printed are, for each round and
as medians: the time of a prebuilt request on a bare socket (B) and of the real thing,
their ratio, and the exact counts of ZooKeeper requests and of commands.

Goals (performance anchors, section 6): a. failure: 0 reads, at most N/500 + 3 writes,
at most 2 + N/1000 requests per broker, at most 40 bytes per partition, 4 B. b. cold
load: at most N/500 + T/500 + 10 reads, 3.5 B. c. creating one topic of N partitions:
at most 2N/1000 + 5 writes, 2 B.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from leadline_cli.credentials import Credentials
from leadline_client.wire import NewTopic
from leadline_common import rpc, znodes
from leadline_common.clock import SystemClock
from leadline_common.http.internal_listener import InternalListener
from leadline_common.http.listeners import bind
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.server import serve
from leadline_common.http.service_calls import ServiceCalls
from leadline_common.identity import InternalAddress, ServiceIdentity
from leadline_common.settings import ControllerSettings
from leadline_common.zk import codec
from leadline_common.zk.ops import ANY_VERSION, CreateOp, MultiResults, Op, SetOp
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import BrokerRegistration, PartitionState
from leadline_controller.adapters.brokers import BrokerRpcClient
from leadline_controller.adapters.zk_store import ControllerZkStore
from leadline_controller.domain.cluster import ClusterPolicy
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.image_loader import load_image
from leadline_controller.runtime.leadership import ControllerDependencies, ControllerLeadership
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.service import ControllerService
from leadline_controller.runtime.topics.elections import ElectLeaders

# The embedded ZooKeeper server is the tests' own.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.services.identities import load_tls, new_credentials, tls_of

SESSION_TIMEOUT_MS = 10_000
BATCH = 1000
BROKERS = (1, 2, 3)
READY = "registered"


# -- a broker, in a process of its own ---------------------------------------------------


class AckingBroker:
    """An ASGI application that decodes commands and acknowledges every partition."""

    def __init__(self) -> None:
        self._decoders: dict[str, Callable[[bytes], Any]] = {
            rpc.LEADER_AND_ISR_PATH: msgspec.json.Decoder(rpc.LeaderAndIsrRequest).decode,
            rpc.STOP_REPLICA_PATH: msgspec.json.Decoder(rpc.StopReplicaRequest).decode,
            rpc.UPDATE_METADATA_PATH: msgspec.json.Decoder(rpc.UpdateMetadataRequest).decode,
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        chunks = []
        more = True
        while more:
            message = await receive()
            chunks.append(message.get("body", b""))
            more = message.get("more_body", False)
        command = self._decoders[scope["path"]](b"".join(chunks))
        answer: msgspec.Struct
        if isinstance(command, rpc.UpdateMetadataRequest):
            answer = rpc.UpdateMetadataResponse(command.controller.epoch, command.version)
        else:
            codes = [[rpc.NO_ERROR] * len(topic.partitions) for topic in command.topics]
            answer = rpc.CommandResponse(command.controller_epoch, command.incarnation, codes)
        body = msgspec.json.encode(answer)
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _live(self, receive: Any, send: Any) -> None:
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})


async def be_broker(broker_id: int, hosts: str, credentials: Credentials) -> None:
    """Register and serve until SIGTERM; then the session ends, as if the broker had died."""
    listener = bind("127.0.0.1", 0)
    tls = load_tls(credentials, ServiceIdentity("broker", broker_id))
    internal = InternalListener(bind("127.0.0.1", 0), tls)
    session = ZkSession()
    await session.start(hosts, SESSION_TIMEOUT_MS)
    for path in znodes.PERSISTENT_PATHS:
        await session.ensure_path(path)
    path = znodes.broker_epoch_path(broker_id)
    await session.ensure_path(path)
    _, stat = await session.get(path)
    registration = BrokerRegistration(
        broker_id,
        "127.0.0.1",
        listener.port,
        listener.url,
        None,
        stat.version + 1,
        internal_url=internal.url,
    )
    data = znodes.encode_value(registration)
    await session.multi(
        [
            SetOp(path, b"", stat.version),
            CreateOp(znodes.broker_id_path(broker_id), data, ephemeral=True),
        ]
    )
    print(READY, flush=True)
    serving = asyncio.create_task(serve(AckingBroker(), listener, internal=internal))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await session.close()
    serving.cancel()
    os._exit(0)


@contextlib.asynccontextmanager
async def broker_process(broker_id: int, hosts: str) -> AsyncIterator[Callable[[], None]]:
    """Run a broker; yield what ends its session. The controller's loop is never held up."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--broker", str(broker_id), "--hosts", hosts),
        *("--credentials", str(new_credentials().directory)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert (await process.stdout.readline()).decode().strip() == READY
    stdin = process.stdin

    def end() -> None:
        if not stdin.is_closing():
            stdin.write(b"end\n")
            stdin.close()

    try:
        yield end
    finally:
        end()
        await asyncio.wait_for(process.wait(), 10)


# -- the bare socket ---------------------------------------------------------------------


class BareSocket:
    """ZooKeeper's protocol without a client: prebuilt frames out, frames counted in."""

    def __init__(self, hosts: str) -> None:
        address, _, chroot = hosts.partition("/")
        host, _, port = address.partition(":")
        self.root = f"/{chroot}"
        self._address = (host, int(port))

    def exchange(self, requests: Sequence[bytes]) -> float:
        """Send requests (opcode and body), read the answers, and return the milliseconds."""
        with socket.create_connection(self._address) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = struct.pack("!iqiqi16s?", 0, 0, SESSION_TIMEOUT_MS, 0, 16, b"\0" * 16, False)
            connection.sendall(_frame(hello))
            _read_frame(connection)
            frames = b"".join(
                _frame(struct.pack("!i", xid) + request)
                for xid, request in enumerate(requests, start=1)
            )
            began = time.perf_counter()
            connection.sendall(frames)
            for _ in requests:
                assert struct.unpack_from("!i", _read_frame(connection), 12)[0] == 0
            return (time.perf_counter() - began) * 1000


def _frame(body: bytes) -> bytes:
    return struct.pack("!i", len(body)) + body


def _read_frame(connection: socket.socket) -> bytes:
    return _read(connection, struct.unpack("!i", _read(connection, 4))[0])


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        assert part
        parts += part
    return bytes(parts)


def batched(ops: Sequence[Op]) -> list[list[Op]]:
    """Split operations into multis."""
    return [list(ops[start : start + BATCH]) for start in range(0, len(ops), BATCH)]


# -- what is measured --------------------------------------------------------------------


class WatchedStore(ControllerZkStore):
    """A store that notes when a broker's watch fired, and what was read before the last write."""

    fired_at = 0.0
    reads_before_last_write = 0

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        """Send a multi."""
        self.reads_before_last_write = self.reads
        return super().submit(ops)

    async def watch_broker(self, broker_id: int, wake: Callable[[], None]) -> bool:
        """Arm the watch, with a stopwatch."""

        def noted() -> None:
            self.fired_at = time.perf_counter()
            wake()

        return await super().watch_broker(broker_id, noted)


class CountingBrokers(BrokerRpcClient):
    """A gateway that counts role commands and notes when the last was acknowledged."""

    def __init__(self) -> None:
        super().__init__(ServiceCalls(PeerConnections(tls_of("controller", 1))))
        self.reset()

    def reset(self) -> None:
        """Start counting again."""
        self.requests: dict[str, int] = {}
        self.bytes = 0
        self.last_ack = 0.0

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        """Send, and count LeaderAndISR."""
        answer = await super().post(to, path, body, timeout_ms)
        if path == rpc.LEADER_AND_ISR_PATH:
            self.requests[to.url] = self.requests.get(to.url, 0) + 1
            self.bytes += len(body)
            self.last_ack = time.perf_counter()
        return answer


class Bench:
    """An active controller, its brokers, and a bare socket beside them."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.gateway = CountingBrokers()
        self.bare = BareSocket(hosts)
        self.store = WatchedStore()
        settings = ControllerSettings(
            controller_id=1,
            reconcile_interval_ms=3_600_000,
            broker_contact_timeout_ms=3_600_000,
        )
        dependencies = ControllerDependencies(
            self._open, self.gateway, SystemClock(), lambda: uuid.uuid4().hex, _zero
        )
        self.leadership = ControllerLeadership(
            settings, "http://127.0.0.1:1", dependencies, ControllerMetrics()
        )
        self.service = ControllerService(self.leadership)

    async def _open(self) -> ControllerStore:
        self.store = WatchedStore()
        await self.store.start(self.hosts, SESSION_TIMEOUT_MS)
        return self.store

    @contextlib.asynccontextmanager
    async def as_active_controller(self) -> AsyncIterator[None]:
        """Be the active controller within the `async with` statement."""
        task = asyncio.create_task(self.leadership.run())
        try:
            await self.until(lambda: self.service.is_active)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.gateway.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        give_up = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < give_up
            await asyncio.sleep(0.002)

    @property
    def dispatcher(self) -> BrokerDispatcher:
        """The dispatcher of requests to brokers."""
        elected = self.leadership.active_controller
        assert elected is not None
        return elected.dispatcher

    async def settled(self, brokers: int) -> None:
        """Wait until that many brokers are live and have acknowledged everything."""
        image = self.service.image()
        await self.until(lambda: len(image.brokers) == brokers and self.dispatcher.idle())


def _zero(_: int) -> int:
    return 0


async def heal(bench: Bench) -> None:
    """Put all replicas back into every ISR, as caught-up followers would, evenly led."""
    elected = bench.leadership.active_controller
    assert elected is not None
    names = [name for name, _ in bench.service.image().partitions()]
    ops: list[Op] = []
    for name, partition in bench.service.image().partitions():
        assert partition.state is not None
        state = msgspec.structs.replace(partition.state, isr=partition.replicas, eligible=())
        ops.append(SetOp(znodes.state_path(*name), znodes.encode_state(state), ANY_VERSION))
    await asyncio.gather(*(bench.store.submit(batch) for batch in batched(ops)))
    elected.queue.invalidate(names)
    await bench.until(
        lambda: all(
            p.state is not None and len(p.state.isr) == len(p.replicas)
            for _, p in bench.service.image().partitions()
        )
    )
    await bench.service.ask(ElectLeaders(unclean=False, topic_partitions=None, dry_run=False))
    await bench.settled(len(BROKERS))


def sets_on_bare_socket(bench: Bench) -> float:
    """B of goal a: the same number of conditional sets of the same size, prebuilt."""
    names = [name for name, _ in bench.service.image().partitions()]
    value = znodes.encode_state(PartitionState(2, 1, (2, 3), 1))
    paths = [f"/bare/{number}" for number in range(len(names))]
    ensure_bare_nodes(bench, paths, value)
    ops: list[Op] = [SetOp(path, value, ANY_VERSION) for path in paths]
    requests = [codec.encode_multi(batch, bench.bare.root) for batch in batched(ops)]
    return statistics.median(bench.bare.exchange(requests) for _ in range(3))


_made: set[str] = set()


def ensure_bare_nodes(bench: Bench, paths: list[str], value: bytes) -> None:
    """Create the nodes of the baseline once."""
    missing = [path for path in paths if path not in _made]
    if not missing:
        return
    ops: list[Op] = [CreateOp(path, value) for path in missing]
    if not _made:
        ops.insert(0, CreateOp("/bare"))
    for batch in batched(ops):
        request = codec.encode_multi(batch, bench.bare.root)
        bench.bare.exchange([request])
    _made.update(missing)


async def measure_load(bench: Bench, rounds: int) -> None:
    """Goal b: load the image again, beside a bare multiRead of the same states."""
    elected = bench.leadership.active_controller
    assert elected is not None
    image = bench.service.image()
    paths = [znodes.state_path(*name) for name, _ in image.partitions()]
    batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
    requests = [
        codec.encode_multi_read(codec.GET_DATA, batch, bench.bare.root) for batch in batches
    ]
    rows = []
    reads = 0
    for _ in range(rounds):
        baseline = bench.bare.exchange(requests)
        gc.collect()
        before = bench.store.reads
        began = time.perf_counter()
        loaded = await load_image(bench.store, ClusterPolicy(), elected.context.term)
        rows.append((baseline, (time.perf_counter() - began) * 1000))
        reads = bench.store.reads - before
        assert len(list(loaded.partitions())) == len(paths)
    print(f"b. cold load: reads {reads} for {len(paths)} partitions of {len(image.topics)} topics")
    summary("b. cold load", rows, goal=3.5)


async def measure_creation(bench: Bench, partitions: int, rounds: int) -> None:
    """Goal c: one topic with all the partitions, beside bare creates of as many nodes."""
    rows = []
    for round_ in range(rounds):
        value = znodes.encode_state(PartitionState(1, 0, (1, 2, 3), 1))
        base = f"/create-{round_}"
        ops: list[Op] = [CreateOp(base)]
        for number in range(partitions):
            ops += (CreateOp(f"{base}/{number}"), CreateOp(f"{base}/{number}/state", value))
        requests = [codec.encode_multi(batch, bench.bare.root) for batch in batched(ops)]
        baseline = bench.bare.exchange(requests)
        writes = bench.store.writes
        gc.collect()
        began = time.perf_counter()
        name = f"wide-{round_}"
        await bench.service.create_topic(NewTopic(name, partitions, 3), dry_run=False)
        took = (time.perf_counter() - began) * 1000
        print(
            f"c. creation: B {baseline:6.1f} ms, took {took:6.1f} ms; "
            f"writes {bench.store.writes - writes}"
        )
        rows.append((baseline, took))
        await bench.service.delete_topic(name, 60_000)
    summary("c. topic creation", rows, goal=2)


def summary(name: str, rows: list[tuple[float, float]], goal: float) -> None:
    """Print medians and their ratio."""
    ratio = statistics.median(took / baseline for baseline, took in rows)
    baseline = statistics.median(row[0] for row in rows)
    took = statistics.median(row[1] for row in rows)
    verdict = "met" if ratio <= goal else "MISSED"
    print(f"{name}: B {baseline:.1f} ms, {took:.1f} ms, {ratio:.2f} B (goal {goal} B: {verdict})\n")


async def bench_all(hosts: str, topics: int, partitions: int, rounds: int) -> None:
    """Run everything."""
    bench = Bench(hosts)
    async with bench.as_active_controller():
        async with contextlib.AsyncExitStack() as stack:
            for broker_id in BROKERS:
                await stack.enter_async_context(broker_process(broker_id, hosts))
            await bench.settled(len(BROKERS))
            for number in range(topics):
                await bench.service.create_topic(
                    NewTopic(f"t{number}", partitions, 3), dry_run=False
                )
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 50, 100)
            await measure_load(bench, rounds)
            await measure_creation(bench, topics * partitions, min(rounds, 3))
        await bench.settled(0)
        await measure_failures(bench, rounds)


async def measure_failures(bench: Bench, rounds: int) -> None:
    """Goal a: keep two brokers up, and kill the third again and again."""
    async with contextlib.AsyncExitStack() as others:
        for broker_id in BROKERS[1:]:
            await others.enter_async_context(broker_process(broker_id, bench.hosts))
        rows = [await one_failure(bench, BROKERS[0]) for _ in range(rounds)]
    summary("a. broker failure", rows, goal=4)


async def one_failure(bench: Bench, victim: int) -> tuple[float, float]:
    """Kill one broker that leads a third and follows the rest."""
    async with broker_process(victim, bench.hosts) as end:
        await bench.settled(len(BROKERS))
        await heal(bench)
        affected = len(list(bench.service.image().partitions()))
        baseline = sets_on_bare_socket(bench)
        bench.gateway.reset()
        reads, writes = bench.store.reads, bench.store.writes
        bench.store.fired_at = 0.0
        gc.collect()
        cpu = time.process_time()
        end()
        await bench.until(lambda: victim not in bench.service.image().brokers)
        await bench.dispatcher.until(lambda: not bench.dispatcher.holds_metadata)
        in_path = bench.store.reads_before_last_write - reads
        await bench.dispatcher.until(bench.dispatcher.settled)
        took = (bench.gateway.last_ack - bench.store.fired_at) * 1000
        cpu = (time.process_time() - cpu) * 1000
        per_partition = bench.gateway.bytes / affected / len(bench.gateway.requests)
        print(
            f"a. failure: B {baseline:6.1f} ms, took {took:6.1f} ms = {took / baseline:.2f} B; "
            f"controller's CPU {cpu:.0f} ms; "
            f"reads {in_path}, writes {bench.store.writes - writes}, requests per broker "
            f"{max(bench.gateway.requests.values())}, bytes per partition {per_partition:.1f}, "
            f"N {affected}, load {os.getloadavg()[0]:.2f}"
        )
        return baseline, took


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100, help="per topic")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--broker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    parser.add_argument("--credentials", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.broker is not None:
        uvloop.run(be_broker(options.broker, options.hosts, Credentials(options.credentials)))
        return
    with tempfile.TemporaryDirectory() as folder, EmbeddedZooKeeper(Path(folder)) as server:
        hosts = f"{server.hosts}/bench"
        uvloop.run(bench_all(hosts, options.topics, options.partitions, options.rounds))


if __name__ == "__main__":
    main()

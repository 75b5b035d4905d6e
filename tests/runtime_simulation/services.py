"""Simulated processes: brokers with their own runtime and adapters, wired as `main` does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from leadline_broker.adapters.disk import DiskLogs
from leadline_broker.adapters.peers import HttpPeers
from leadline_broker.adapters.zookeeper import ZkBrokerStore
from leadline_broker.api.app import build_app
from leadline_broker.domain.state import Addresses
from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.cluster.broker_state import NO_INCARNATION
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import BrokerFenced, LeadlineError
from leadline_common.metrics import Metrics
from leadline_common.settings import BrokerSettings
from tests.runtime_simulation.broker_routes import broker_routes
from tests.runtime_simulation.clock import SimulatedClock
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.kernel_fsyncs import SimulatedFsyncs
from tests.runtime_simulation.network import Network
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.service_calls import SimulatedCalls
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.runtime_simulation.web import Web, WebRequest
from tests.runtime_simulation.web_sockets import WebSockets
from tests.runtime_simulation.world import World
from tests.runtime_simulation.zookeeper import ZooKeeper

SESSION_MS = 2_000

LEFT_DISK: Final = "a broker ended while its disk hung"
WAITED_FOR_DISK: Final = "the loop of a broker waited for a disk that hung"


@dataclass(eq=False)
class Machine:
    """What all processes run on; `stray_grace_ms` is a setting of the brokers.

    `healing_ms` and `contact_timeout_ms` are settings of the controllers. With `removes_records`
    brokers look for old records often, and with `scrubs` for damage, otherwise never within a run.
    With `fetches_little` followers get a batch of an application in several answers. With
    `keeps_nothing` topics that do not say otherwise keep only their last segment, and high
    watermarks are written often. With `serves_http` they serve their applications on `web`.
    """

    world: World
    system: SimulatedSystem
    zookeeper: ZooKeeper
    network: Network
    stray_grace_ms: int
    serves_http: bool = False
    removes_records: bool = False
    scrubs: bool = False
    fetches_little: bool = False
    keeps_nothing: bool = False
    healing_ms: int = -1
    contact_timeout_ms: int = 30_000
    web: Web = field(init=False)
    sockets: WebSockets = field(init=False)

    def __post_init__(self) -> None:
        self.web = Web(self.world, self.network)
        self.sockets = WebSockets(self.world, self.network, self.web)

    def end(self, process: Process) -> None:
        """End a process at once, as by kill -9."""
        process.alive = False
        process.missed.clear()
        self.system.release(process)
        self.zookeeper.lose_processes()
        # What it has sent still arrives.
        self.world.loop.after(0.02, self.zookeeper.disconnect, process)
        self.world.loop.after(0.02, self.sockets.disconnect, process)

    def random(self) -> Random:
        """Return a source of chance for one process."""
        return Random(self.world.random.getrandbits(64))


@dataclass(eq=False)
class Service:
    """A service that is started, killed, frozen and started again, unless it is `gone`."""

    machine: Machine
    number: int
    process: Process | None = field(default=None, init=False)
    task: asyncio.Task[None] | None = field(default=None, init=False)
    gone: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """The name on the network."""
        raise NotImplementedError

    async def run(self) -> None:
        """Run the process, in its own context."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Whether it lives, frozen or not."""
        return self.process is not None and self.process.alive

    @property
    def acting(self) -> bool:
        """Whether it lives and is not frozen."""
        return self.process is not None and self.process.alive and not self.process.frozen

    def start(self) -> None:
        """Start a new process, unless one lives or there shall be none."""
        if self.running or self.gone:
            return
        self.machine.world.note("%s starts", self.name)
        self.process = Process(self.name)
        self.task = self.machine.world.loop.in_process(self.process, self.run())
        self.task.add_done_callback(self._ended)

    def kill(self) -> None:
        """End the process at once, as by kill -9."""
        if self.process is None or not self.process.alive:
            return
        self.machine.world.note("%s is killed", self.name)
        self.machine.end(self.process)

    def freeze(self) -> None:
        """Freeze the process, as by SIGSTOP."""
        if self.running and self.process is not None and not self.process.frozen:
            self.machine.world.note("%s is frozen", self.name)
            self.process.frozen = True
            self.machine.zookeeper.lose_processes()

    def resume(self) -> None:
        """Let a frozen process go on."""
        if self.running and self.process is not None and self.process.frozen:
            self.machine.world.note("%s goes on", self.name)
            self.machine.world.loop.resume(self.process)
            self.machine.zookeeper.resumed(self.name)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Note that the process ended by itself, as after a failure of its disk."""
        failure = None if task.cancelled() else task.exception()
        self.machine.world.note("%s ended: %r", self.name, failure)
        self.machine.world.reached(f"a process ended: {type(failure).__name__}")
        self.kill()


@dataclass(eq=False)
class BrokerService(Service):
    """A broker with its disk; `metrics` are those of all its processes."""

    disk: Disk
    broker: Broker | None = field(default=None, init=False)
    metrics: list[Metrics] = field(default_factory=list, init=False)
    stopping: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """The name on the network."""
        return f"broker-{self.number}"

    async def run(self) -> None:
        """Run the broker as `leadline_broker.main` does."""
        self.stopping = False
        machine, clock, metrics = self.machine, SimulatedClock(), Metrics(process=False)
        self.metrics.append(metrics)
        settings = broker_settings(self.number, str(self.disk.root), machine)
        broker = self.broker = Broker(
            settings,
            store=ZkBrokerStore(
                self.number,
                "zookeeper",
                SESSION_MS,
                clock,
                open_transport=machine.zookeeper.transport,
            ),
            peers=HttpPeers(SimulatedCalls(machine.network, machine.web)),
            open_logs=partial(DiskLogs, settings, fsyncs=SimulatedFsyncs(machine.system)),
            clock=clock,
            metrics=metrics,
            random=machine.random(),
        )
        assert self.process is not None
        as_leader = partial(self._answer_as_leader, self.process)
        machine.network.listen(self.process, broker_routes(broker, as_leader))
        if machine.serves_http:
            app = build_app(
                broker, request_max_bytes=settings.request_max_bytes, metrics=metrics, clock=clock
            )
            machine.web.serve(self.process, app, partial(_observe_records, as_leader))
        try:
            await broker.start(Addresses(f"http://{self.name}", f"https://{self.name}"))
            await broker.failed()
        except LeadlineError:
            if not await broker.close():
                machine.world.reached(LEFT_DISK)
            raise

    @property
    def has_registered(self) -> bool:
        """Whether it has opened its logs, and registered."""
        return self.broker is not None and self.broker.state.incarnation != NO_INCARNATION

    def start_if_ended(self) -> None:
        """Start it again if it has ended by itself."""
        if self.task is not None and self.task.done():
            self.start()

    def start(self) -> None:
        """See `Service`; the lock of a disk that hangs is held by the process before."""
        if not self.disk.hangs:
            super().start()

    def hang(self) -> None:
        """Let its disk answer nothing."""
        if self.process is not None and not self.disk.hangs:
            self.disk.hangs, self.disk.on_wait = True, self._wait_for_disk
            self.process.stuck = []

    def _wait_for_disk(self) -> None:
        self.machine.world.reached(WAITED_FOR_DISK)
        self.freeze()

    def go_on(self) -> None:
        """Let its disk answer again; a process that has ended starts again."""
        if self.process is None or not self.disk.hangs:
            return
        self.disk.hangs = False
        stuck, self.process.stuck = self.process.stuck or [], None
        for work in stuck:
            self.machine.world.loop.in_process_after(self.process, 0.0, work)
        self.resume()
        self.start()

    def stop(self) -> None:
        """End the process in good order, as by SIGTERM: its leaders move first."""
        if self.process is None or not self.running or self.process.frozen or self.broker is None:
            return
        self.machine.world.note("%s stops", self.name)
        self.stopping = True
        stopping = self.machine.world.loop.in_process(self.process, self._stop(self.broker))
        process = self.process

        def stopped(_: asyncio.Task[None]) -> None:
            if self.process is process:
                self.machine.world.reached("a broker stopped in good order")
                self.kill()

        stopping.add_done_callback(stopped)

    @staticmethod
    async def _stop(broker: Broker) -> None:
        await broker.controlled_shutdown()
        await broker.close()

    def _answer_as_leader(self, process: Process, what: str) -> None:
        """Note if a leader answers a client although its session has run out (rule R10)."""
        if process.alive and not self.machine.zookeeper.is_alive(process):
            self.machine.world.problems.append(f"R10: {what} by {self.name} without a session")

    def log_end_offset(self, topic: str, partition: int) -> int:
        """Return the end of a replica's log; -1 if it has none."""
        found = self._replica(topic, partition)
        return -1 if found is None else found.log.log_end_offset

    def durable_end_offset(self, topic: str, partition: int) -> int:
        """Return the end of what a replica has synced; -1 if it has no log."""
        found = self._replica(topic, partition)
        return -1 if found is None else found.log.durable_end_offset

    def replicas(self) -> list[Partition]:
        """Return all replicas; none before it has started."""
        try:
            return [] if self.broker is None else self.broker.engine.replicas.all()
        except BrokerFenced:
            return []

    def _replica(self, topic: str, partition: int) -> Partition | None:
        try:
            assert self.broker is not None
            return self.broker.engine.replicas.named(topic, partition)
        except BrokerFenced:
            return None


def broker_settings(number: int, log_dir: str, machine: Machine) -> BrokerSettings:
    """Return the settings of a broker: short waits, so that a run reaches much."""
    return BrokerSettings(
        broker_id=number,
        log_dir=log_dir,
        zookeeper_session_timeout_ms=SESSION_MS,
        replica_lag_time_max_ms=1_500,
        replica_fetch_wait_max_ms=400,
        replica_fetch_max_bytes=1_024 if machine.fetches_little else 10 << 20,
        heartbeat_interval_ms=400,
        log_segment_bytes=1_024,
        log_flush_timeout_ms=1_500,
        stray_grace_ms=machine.stray_grace_ms,
        log_retention_bytes=0 if machine.keeps_nothing else -1,
        replica_high_watermark_checkpoint_interval_ms=500 if machine.keeps_nothing else 5_000,
        log_retention_check_interval_ms=300 if machine.removes_records else 300_000,
        log_scrub_interval_ms=1_000 if machine.scrubs else 3_600_000,
    )


def _observe_records(as_leader: Callable[[str], None], request: WebRequest, status: int) -> None:
    path = request.target.partition("?")[0]
    if path.endswith("/records") and status == 200:
        as_leader(f"{request.method} {path}")

"""A simulated cluster: its processes, its producers, and what is checked of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leadline_client.errors import LeadlineError, NoController
from leadline_client.wire import NewTopic, TopicPartition
from leadline_common import znodes
from leadline_common.znodes import PartitionState
from leadline_controller.runtime.topics.elections import ElectLeaders
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.network import Network
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.services import BrokerService, ControllerHost, Machine, Service
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.runtime_simulation.workload import Producer, Reader
from tests.runtime_simulation.world import World
from tests.runtime_simulation.zookeeper import ZooKeeper
from tests.support.checks.history import History

TOPIC = "t"
MOST_PARTITIONS = 3
FAST_DISK_S = 0.004
"""The longest fsync of a good disk."""


class Cluster:
    """Brokers, controllers, ZooKeeper and producers in one world."""

    def __init__(self, world: World, root: Path, brokers: int = 3, controllers: int = 2) -> None:
        self.world = world
        self.history = History()
        self.system = SimulatedSystem(world.loop, world.random)
        self.zookeeper = ZooKeeper(world)
        self.network = Network(world)
        machine = Machine(world, self.system, self.zookeeper, self.network)
        self.brokers: dict[int, BrokerService] = {}
        for number in range(1, brokers + 1):
            disk = Disk(root / f"broker-{number}", world.random)
            self.system.disks.append(disk)
            self.brokers[number] = BrokerService(machine, number, disk)
        self.controllers = [ControllerHost(machine, n) for n in range(1, controllers + 1)]
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.wiped: int | None = None
        self._ambushes: list[Callable[[], object]] = []
        self.slow_disk_s = FAST_DISK_S
        world.loop.thread_delay_s = lambda: world.between(0.0005, self.slow_disk_s)

    @property
    def services(self) -> list[Service]:
        """All services."""
        return [*self.controllers, *self.brokers.values()]

    def start(self) -> None:
        """Start all services."""
        for service in self.services:
            service.start()

    def growth(self, path: str) -> tuple[int, int] | None:
        """Return leader and joiner if the last write of this state node let one join the ISR."""
        if path not in {znodes.state_path(TOPIC, number) for number in range(MOST_PARTITIONS)}:
            return None
        nodes = [node for _, node in self.zookeeper.tree.history(path) if node is not None][-2:]
        if len(nodes) < 2:
            return None
        before, after = (znodes.decode_state(node.data) for node in nodes)
        joined = set(after.isr) - set(before.isr)
        if after.leader_epoch != before.leader_epoch or not joined:
            return None
        return after.leader, min(joined)

    def run(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, until `stop()` at most; return whether it was."""
        return self.world.loop.run_until(self.world.loop.now_s + seconds, stop)

    def run_in_steps(self, seconds: float, reached: Callable[[], bool]) -> bool:
        """Let time pass until a condition holds that is too costly to check at each step."""
        until_s = self.world.loop.now_s + seconds
        while not reached():
            if self.world.loop.now_s >= until_s:
                return False
            self.run(0.05)
        return True

    def end(self) -> None:
        """Throw everything away."""
        self.world.loop.close()
        for service in self.services:
            if service.process is not None:
                self.system.release(service.process)

    def complete(self, partitions: Iterable[int]) -> bool:
        """Tell whether every partition has a leader, and all replicas in its ISR."""
        states = [self.state(number) for number in partitions]
        return all(
            state is not None and state.leader >= 0 and len(state.isr) == len(self.brokers)
            for state in states
        )

    def is_settled(self, partitions: Iterable[int]) -> bool:
        """Tell whether all replicas are in sync and end alike, and readers have read all of it."""
        numbers = list(partitions)
        return self.complete(numbers) and all(
            len(self._ends(number)) == 1
            and all(not p.busy for p in self.producers if p.partition == number)
            for number in numbers
        )

    def _ends(self, number: int) -> set[int]:
        """Return where the replicas of a partition end, and where its readers are."""
        ends = {broker.log_end_offset(TOPIC, number) for broker in self.brokers.values()}
        return ends | {reader.position for reader in self.readers if reader.partition == number}

    def describe(self, partitions: Iterable[int]) -> str:
        """Describe the cluster for a person."""
        states = [str(self.state(number)) for number in partitions]
        acked = [producer.acked for producer in self.producers]
        running = [service.name for service in self.services if service.running]
        return f"{states}, acknowledged {acked}, running {running}"

    def create_topic(self, partitions: int, replication_factor: int) -> None:
        """Have the active controller create the topic, as soon as there is one."""

        async def create() -> None:
            while True:
                for host in self.controllers:
                    try:
                        assert host.service is not None
                        new = NewTopic(TOPIC, partitions, replication_factor)
                        await host.service.create_topic(new, dry_run=False)
                    except LeadlineError as problem:
                        self.world.note("no topic yet: %r", problem)
                    else:
                        return
                await asyncio.sleep(0.1)

        self.world.loop.in_process(Process("administrator"), create())

    def elect_after_wiped_disk(self, partitions: Iterable[int]) -> None:
        """Do what an operator does for partitions whose last ISR member has lost its disk.

        The replicas that are eligible hold every committed record, so that nothing is lost.
        """
        lost = [
            TopicPartition(TOPIC, number)
            for number in partitions
            if (state := self.state(number)) is not None
            and state.leader < 0
            and state.isr == (self.wiped,)
            and state.eligible
        ]

        async def elect() -> None:
            for host in self.controllers:
                assert host.service is not None
                with suppress(NoController):
                    await host.service.ask(
                        ElectLeaders(dry_run=False, unclean=True, topic_partitions=tuple(lost))
                    )

        if lost:
            self.world.reached("eligible replica elected after a wiped disk")
            task = self.world.loop.in_process(Process("administrator"), elect())
            self.run(1.0, task.done)
            task.result()

    def is_lost(self, partition: int) -> bool:
        """Tell whether a partition rightly has no leader: a wiped disk had its last records."""
        state = self.state(partition)
        return (
            state is not None
            and state.leader < 0
            and state.isr == (self.wiped,)
            and not state.eligible
        )

    def produce(self, partitions: int, each: int, pause_s: float) -> None:
        """Start producers."""
        names = [broker.name for broker in self.brokers.values()]
        for number in range(partitions * each):
            producer = Producer(
                self.world,
                self.network,
                self.history,
                number,
                TOPIC,
                number % partitions,
                names,
                pause_s=pause_s,
                idempotent=number % 2 == 0,
                on_acknowledged=self._acknowledged,
            )
            self.producers.append(producer)
            producer.start()

    def read(self, partitions: int) -> None:
        """Start one reader for each partition."""
        names = [broker.name for broker in self.brokers.values()]
        for number in range(partitions):
            reader = Reader(self.world, self.network, self.history, number, TOPIC, number, names)
            self.readers.append(reader)
            reader.start()

    def elect_preferred(self) -> None:
        """Have the active controller move leadership to the preferred leaders."""

        async def elect() -> None:
            request = ElectLeaders(dry_run=False, unclean=False, topic_partitions=None)
            for host in self.controllers:
                if host.running and host.service is not None:
                    with suppress(LeadlineError):
                        await host.service.ask(request)

        self.world.loop.in_process(Process("administrator"), elect())

    def at_next_acknowledgement(self, action: Callable[[], object]) -> None:
        """Do something as soon as a producer has got its next acknowledgement."""
        self._ambushes.append(action)

    def _acknowledged(self, _: Producer) -> None:
        ambushes, self._ambushes = self._ambushes, []
        for action in ambushes:
            self.world.loop.after(0.0, action)

    def state(self, partition: int) -> PartitionState | None:
        """Return a partition's state in ZooKeeper."""
        node = self.zookeeper.tree.now(znodes.state_path(TOPIC, partition))
        return None if node is None else znodes.decode_state(node.data)


@contextmanager
def files() -> Iterator[Path]:
    """Yield a directory for the disks of one run, in memory where the machine allows it."""
    memory = Path("/dev/shm")  # noqa: S108  # a directory of its own is made in it
    root = Path(tempfile.mkdtemp(prefix="leadline-", dir=memory if memory.is_dir() else None))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)

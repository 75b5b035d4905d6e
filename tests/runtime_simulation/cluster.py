"""A simulated cluster: its processes, its producers, and what is checked of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from leadline_client.errors import LeadlineError, NoController
from leadline_client.wire import NewTopic, TopicPartition
from leadline_common import znodes
from leadline_controller.runtime.topics.elections import ElectLeaders
from tests.runtime_simulation.client_producers import ClientProducer
from tests.runtime_simulation.configuring import changes_retention
from tests.runtime_simulation.controllers import ControllerHost
from tests.runtime_simulation.coordinators import CoordinatorHost
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.log_starts import LogStarts
from tests.runtime_simulation.members import Members
from tests.runtime_simulation.network import Network
from tests.runtime_simulation.plan import REMOVE, REPLACE, UNCLEAN, Group, Plan
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.publishers import Publisher
from tests.runtime_simulation.readers import Reader
from tests.runtime_simulation.services import BrokerService, Machine, Service
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.runtime_simulation.topics import Topics
from tests.runtime_simulation.unclean_elections import UncleanElections
from tests.runtime_simulation.workload import Client, Producer, Writer
from tests.runtime_simulation.world import World
from tests.runtime_simulation.zookeeper import ZooKeeper
from tests.support.checks.history import History

TOPICS = ("t", "u")
GROUP_TOPIC = "g"
"""What the consumer group reads, and the client library writes."""
_LATEST_S = 2.0
"""By then a request that was delayed has arrived."""
FIRST_CLIENT_PRODUCER = 1_000
"""Apart from the numbers of the other producers."""
FIRST = TopicPartition(TOPICS[0], 0)
REBUILT = "the replicas of a dead broker were rebuilt"
RETURNED = "a dead broker returned"
FAST_DISK_S = 0.004
"""The longest fsync of a good disk."""


class Cluster:
    """Brokers, controllers, ZooKeeper and producers in one world."""

    def __init__(self, world: World, root: Path, plan: Plan) -> None:
        self.world = world
        self.history = History()
        self.system = SimulatedSystem(world.loop, world.random)
        self.zookeeper = ZooKeeper(world)
        self.topics = Topics(world, self.zookeeper)
        self.network = Network(world)
        self.machine = machine = Machine(
            world,
            self.system,
            self.zookeeper,
            self.network,
            plan.stray_grace_ms,
            serves_http=plan.group is not None,
            removes_records=plan.retention is not None,
            scrubs=plan.scrubs,
            fetches_little=plan.publishes,
            keeps_nothing=changes_retention(plan),
            healing_ms=plan.healing_ms,
            contact_timeout_ms=plan.contact_timeout_ms,
        )
        self.removes_partitions = any(one.kind in (REMOVE, REPLACE) for one in plan.actions)
        self.configs = {} if plan.retention is None else plan.retention.configs()
        self.brokers: dict[int, BrokerService] = {}
        for number in range(1, plan.brokers + 1):
            disk = Disk(root / f"broker-{number}", world.random)
            self.system.disks.append(disk)
            self.brokers[number] = BrokerService(machine, number, disk)
        self.controllers = [ControllerHost(machine, n) for n in range(1, plan.controllers + 1)]
        numbers = range(1, 1 + (0 if plan.group is None else plan.group.coordinators))
        self.coordinators = [CoordinatorHost(machine, number) for number in numbers]
        self.client_producers: list[ClientProducer] = []
        self.members: Members | None = None
        self.producers: list[Writer] = []
        self.readers: list[Reader] = []
        self.wiped: int | None = None
        self.log_starts = LogStarts(self.topics, self.system, self.brokers, plan.retention)
        self.unclean: UncleanElections | None = None
        if any(fault.kind == UNCLEAN for fault in plan.faults):
            self.unclean = UncleanElections(self.topics, self.brokers)
            self.log_starts.unclean = self.unclean
        self._ambushes: list[Callable[[], object]] = []
        self.slow_disk_s = FAST_DISK_S
        world.loop.thread_delay_s = lambda: world.between(0.0005, self.slow_disk_s)

    @property
    def services(self) -> list[Service]:
        """All services."""
        return [*self.controllers, *self.brokers.values(), *self.coordinators]

    def start(self) -> None:
        """Start all services."""
        for service in self.services:
            service.start()

    def growth(self, path: str) -> tuple[int, int] | None:
        """Return leader and joiner if the last write of this state node let one join the ISR."""
        if not (path.startswith(f"{znodes.TOPICS}/") and path.endswith("/state")):
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

    def complete(self, partitions: Iterable[TopicPartition]) -> bool:
        """Tell whether every partition has a leader, and all replicas in its ISR."""
        return all(map(self.topics.is_complete, partitions))

    def is_settled(self, partitions: Iterable[TopicPartition]) -> bool:
        """Tell whether all replicas are in sync and end alike, and readers have read all of it."""
        wanted = list(partitions)
        return self.complete(wanted) and all(
            len(self._ends(partition)) == 1
            and all(not p.busy for p in self.producers if p.of(partition))
            and all(not p.busy for p in self.client_producers if p.topic == partition.topic)
            for partition in wanted
        )

    def _ends(self, partition: TopicPartition) -> set[int]:
        """Return where the replicas of a partition end, and where its readers are."""
        ends = {self.brokers[n].log_end_offset(*partition) for n in self.topics.replicas(partition)}
        name = self.topics.name_now(partition)
        for reader in self.readers:
            if reader.of(partition):
                ends.add(reader.position if reader.name == name else -1)
        return ends

    def describe(self, partitions: Iterable[TopicPartition]) -> str:
        """Describe the cluster for a person."""
        states = [f"{'-'.join(map(str, p))}: {self.topics.state(p)}" for p in partitions]
        acked = [*(p.acked for p in self.producers), *(p.count for p in self.client_producers)]
        running = [service.name for service in self.services if service.running]
        return f"{states}, acknowledged {acked}, running {running}"

    def create_topics(
        self,
        topics: Iterable[str],
        partitions: int,
        replication_factor: int,
        controllers: Sequence[ControllerHost] = (),
    ) -> None:
        """Have the active controller create the topics, as soon as there is one.

        Only `controllers` are asked, or all of them.
        """

        async def create(topic: str) -> None:
            while True:
                for host in controllers or self.controllers:
                    try:
                        assert host.service is not None
                        new = NewTopic(topic, partitions, replication_factor, configs=self.configs)
                        await host.service.create_topic(new, dry_run=False)
                    except LeadlineError as problem:
                        self.world.note("no topic yet: %r", problem)
                    else:
                        return
                await asyncio.sleep(0.1)

        for topic in topics:
            self.world.loop.in_process(Process("administrator"), create(topic))

    def elect_after_wiped_disk(self) -> None:
        """Do what an operator does for partitions whose last ISR member has lost its disk.

        The replicas that are eligible hold every committed record, so that nothing is lost.
        """
        lost = [
            partition
            for partition in self.topics.partitions()
            if (state := self.topics.state(partition)) is not None
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

    def give_back(self, broker: BrokerService) -> None:
        """Start a broker that was given up, with its disk."""
        self.world.reached(RETURNED)
        self.wiped, broker.gone = None, False
        broker.start()

    def gone(self) -> BrokerService | None:
        """Return the broker that has died for good."""
        return next((broker for broker in self.brokers.values() if broker.gone), None)

    def is_healed(self) -> bool:
        """Tell whether the broker that has died has no replicas any more, but what is lost."""
        gone = self.gone()
        return gone is None or all(
            gone.number not in self.topics.replicas(partition) or self.is_lost(partition)
            for partition in self.topics.partitions()
        )

    def is_lost(self, partition: TopicPartition) -> bool:
        """Tell whether a partition rightly has no leader: a wiped disk had its last records."""
        state = self.topics.state(partition)
        return (
            state is not None
            and state.leader < 0
            and state.isr == (self.wiped,)
            and not state.eligible
        )

    def produce(self, partitions: Iterable[TopicPartition], each: int, pause_s: float) -> None:
        """Start producers."""
        names = [broker.name for broker in self.brokers.values()]
        for partition in [*partitions] * each:
            number = len(self.producers)
            producer = Producer(
                self.world,
                self.network,
                self.history,
                self.topics,
                number,
                *partition,
                names,
                pause_s=pause_s,
                idempotent=number % 2 == 0,
                states_epoch=self.removes_partitions,
                lost_records=self.unclean.count if self.unclean else lambda *_: False,
                on_acknowledged=self._acknowledged,
            )
            self.producers.append(producer)
            producer.start()

    def publish(self, partitions: Iterable[TopicPartition], pause_s: float) -> None:
        """Start one application for each partition."""
        names = [broker.name for broker in self.brokers.values()]
        for partition in partitions:
            publisher = Publisher(
                self.world,
                self.network,
                self.history,
                self.topics,
                len(self.producers),
                *partition,
                names,
                pause_s=pause_s,
                keeps_all=not self.machine.removes_records,
                on_acknowledged=self._acknowledged,
            )
            self.producers.append(publisher)
            publisher.start()

    def read(self, partitions: Iterable[TopicPartition]) -> None:
        """Start one reader for each partition."""
        names = [broker.name for broker in self.brokers.values()]
        for partition in partitions:
            reader = Reader(
                self.world,
                self.network,
                self.history,
                self.topics,
                len(self.readers),
                *partition,
                names,
                self.log_starts,
                idle=0.02 if self.machine.removes_records else 0.0,
                unclean=self.unclean,
            )
            self.readers.append(reader)
            reader.start()

    def start_group(self, group: Group) -> None:
        """Start the group's members, and the producers of what they read."""
        names = [broker.name for broker in self.brokers.values()]
        self.members = Members(self.machine, GROUP_TOPIC, names, group, self.history)
        self.members.join_all()
        self._start_client_producers(group)

    def _start_client_producers(self, group: Group) -> None:
        names = [broker.name for broker in self.brokers.values()]
        first = len(self.client_producers)
        for number in range(first, first + group.producers):
            producer = ClientProducer(
                self.world,
                self.machine.web,
                self.history,
                self.topics,
                number + FIRST_CLIENT_PRODUCER,
                GROUP_TOPIC,
                names,
                idempotent=number % 2 == 0,
                pause_s=0.1,
                without=group.partitions - 1 if group.replaced else -1,
            )
            self.client_producers.append(producer)
            producer.start()

    async def quiet_clients(self) -> None:
        """Stop the producers of the group's topic, and wait for what they have sent."""
        for producer in self.client_producers:
            producer.stop()
        await asyncio.gather(*(producer.ended() for producer in self.client_producers))
        await asyncio.sleep(_LATEST_S)

    def start_clients(self, group: Group) -> None:
        """Start producers of a topic that was created again."""
        self._start_client_producers(group)

    def stop_producers(self) -> None:
        """Let all producers send nothing new any more, and readers come to the last records."""
        for reader in self.readers:
            reader.look_again()
        for producer in self.producers:
            producer.stop()
        for client_producer in self.client_producers:
            client_producer.stop()

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

    def _acknowledged(self, _: Client) -> None:
        ambushes, self._ambushes = self._ambushes, []
        for action in ambushes:
            self.world.loop.after(0.0, action)


@contextmanager
def files() -> Iterator[Path]:
    """Yield a directory for the disks of one run, in memory where the machine allows it."""
    memory = Path("/dev/shm")  # noqa: S108  # a directory of its own is made in it
    root = Path(tempfile.mkdtemp(prefix="leadline-", dir=memory if memory.is_dir() else None))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)

"""A whole simulated cluster: three brokers, one or two controllers, ZooKeeper, the network."""

from __future__ import annotations

from collections.abc import Callable

from leadline_broker.domain.effects import IsrProposal
from leadline_client.wire import NO_LEADER
from leadline_common.znodes import CONTROLLER, PartitionState, TopicAssignment, topic_path
from tests.simulation.broker_shell import BrokerProcess
from tests.simulation.checks import Checks
from tests.simulation.controller_shell import ControllerProcess
from tests.simulation.disk import Disk
from tests.simulation.messages import PARTITION, TOPIC, TOPIC_ID
from tests.simulation.network import Network, Node, Weather
from tests.simulation.reassigning import INTENT, asked, cancelled
from tests.simulation.replica_shell import STATE
from tests.simulation.world import World
from tests.simulation.zookeeper import Trouble, Znode, ZooKeeper

MIN_INSYNC = 2
"""min.insync.replicas at the start."""


class Cluster:
    """The machines, and what can be done to them."""

    def __init__(
        self, world: World, checks: Checks, *, replicas: int, spares: int, controllers: int
    ) -> None:
        self.world = world
        self.checks = checks
        self.network = Network(world, Weather())
        self.zookeeper = ZooKeeper(world, Trouble())
        self.slow_fsync = 0.0
        self.min_insync = MIN_INSYNC
        self._replicas = replicas
        self.everyone = tuple(range(1, replicas + spares + 1))
        self.brokers: dict[int, Node[BrokerProcess]] = {
            broker: Node(f"broker {broker}") for broker in self.everyone
        }
        self.disks = {broker: Disk("first") for broker in self.everyone}
        self.unclean_ordered = False
        self._spare_disks: dict[int, Disk] = {}
        self.controllers: dict[int, Node[ControllerProcess]] = {
            number: Node(f"controller {number}") for number in range(1, controllers + 1)
        }
        self.on_proposal: Callable[[BrokerProcess, IsrProposal, bool], None] = (
            lambda _process, _proposal, _grows: None
        )
        checks.watch(self)
        topic = TopicAssignment(TOPIC_ID, {PARTITION: self.everyone[:replicas]})
        self.zookeeper.commit({topic_path(TOPIC): Znode(topic, 0, 1, 1)})

    def start(self) -> None:
        """Start every process that is not running; brokers first, to register in time."""
        for broker in self.brokers:
            self.start_broker(broker)
        for number in self.controllers:
            self.world.schedule(15, None, self.start_controller, number)

    @property
    def assignment(self) -> tuple[int, ...]:
        """The assigned replicas as ZooKeeper has them now."""
        topic: TopicAssignment = self.zookeeper.tree[topic_path(TOPIC)].value
        return topic.partitions[PARTITION]

    @property
    def reassigns(self) -> bool:
        """Whether there are brokers without the partition, to move it to."""
        return len(self.everyone) > self._replicas

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return INTENT in self.zookeeper.tree

    @property
    def published(self) -> PartitionState | None:
        """The partition's state as ZooKeeper has it now."""
        node = self.zookeeper.tree.get(STATE)
        return node.value if node is not None else None

    @property
    def leader(self) -> int:
        """The published leader, or -1."""
        state = self.published
        return state.leader if state is not None else NO_LEADER

    def start_broker(self, broker: int) -> None:
        """Start a broker on the disk that it left, unless it runs."""
        node = self.brokers[broker]
        if node.process is None:
            self.world.note("broker %d starts", broker)
            old = self.zookeeper.tree.get(f"/brokers/ids/{broker}")
            if old is not None:
                self.world.reached("broker started before its session expired")
            node.process = BrokerProcess(self, broker, self.disks[broker])

    def kill_broker(self, broker: int, *, power: bool = False) -> None:
        """Kill a broker with SIGKILL, or cut its power."""
        node = self.brokers[broker]
        if node.process is None:
            return
        self.world.note("broker %d %s", broker, "loses power" if power else "is killed")
        node.process.kill()
        node.process = None
        if power and self.disks[broker].power_cut(self.world.random):
            self.world.reached("power cut lost records")
            self.checks.on_truncated(None, self.disks[broker].log.log_end_offset)

    def swap_disk(self, broker: int) -> None:
        """Kill a broker and give it a new disk, or the one that it had before the last swap."""
        self.kill_broker(broker)
        returns = broker in self._spare_disks
        self.world.reached("old disk returned" if returns else "disk replaced")
        spare = self._spare_disks.get(broker) or Disk("second")
        self._spare_disks[broker], self.disks[broker] = self.disks[broker], spare

    def order_unclean_election(self) -> None:
        """Let an operator ask the active controllers for an unclean election."""
        self.unclean_ordered = True
        for node in self.controllers.values():
            if node.process is not None and node.process.active:
                node.process.wants_unclean = True
                node.process.wake()

    def start_controller(self, number: int) -> None:
        """Start a controller, unless it runs."""
        node = self.controllers[number]
        if node.process is None:
            node.process = ControllerProcess(self, number)

    def kill_controller(self, number: int) -> None:
        """Kill a controller; its commands under way may or may not arrive."""
        node = self.controllers[number]
        if node.process is not None:
            self.world.note("%s is killed", node.name)
            node.process.kill()
            node.process = None

    def depose_controller(self) -> None:
        """Let an operator delete `/controller`: its owner lives on and believes to be active."""
        if CONTROLLER in self.zookeeper.tree:
            self.zookeeper.commit({CONTROLLER: None})

    def tell_controllers(self, source: BrokerProcess) -> None:
        """Hint that the ISR changed, as heartbeats do."""
        for node in self.controllers.values():
            self.network.call(source, node, _hint, None, lambda _answer: None)

    def reassign(self, target: tuple[int, ...]) -> None:
        """Let an operator ask for other replicas, or for others than those asked for before."""
        store = self.zookeeper
        known = store.tree.get(INTENT)
        self.world.reached("reassignment asked for" if known is None else "retargeted")
        store.commit({INTENT: asked(known, target, self.assignment, store.zxid + 1)})

    def cancel_reassignment(self) -> None:
        """Let an operator cancel the reassignment, if there is one."""
        known = self.zookeeper.tree.get(INTENT)
        if known is not None:
            self.world.reached("reassignment cancelled")
            self.zookeeper.commit({INTENT: cancelled(known, self.zookeeper.zxid + 1)})

    def set_min_insync(self, value: int) -> None:
        """Let an operator change min.insync.replicas; each process learns of it at its own time."""
        self.min_insync = value
        for broker in self.brokers.values():
            if broker.process is not None:
                broker.process.after(self.world.between(1, 120), broker.process.shell.configure)
        for controller in self.controllers.values():
            if controller.process is not None:
                controller.process.after(self.world.between(1, 120), controller.process.configure)

    def move_leader(self, target: int) -> None:
        """Let an operator ask the active controller to move leadership."""
        for node in self.controllers.values():
            if node.process is not None and node.process.active:
                self.world.note("an operator wants broker %d to lead", target)
                node.process.wanted_leader = target
                node.process.wake()


def _hint(process: ControllerProcess, _request: None, _answer: Callable[[None], None]) -> None:
    process.wake()

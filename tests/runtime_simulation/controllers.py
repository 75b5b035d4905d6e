"""Simulated controllers: their own runtime and adapters, wired as `main` does it."""

from __future__ import annotations

from dataclasses import dataclass, field

from leadline_client.wire import NewTopic, TopicPartition
from leadline_common import rpc
from leadline_common.settings import ControllerSettings
from leadline_common.tasks import TargetRow
from leadline_controller.adapters.brokers import BrokerRpcClient
from leadline_controller.adapters.zk_store import ControllerZkStore
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.engine.dynamic_configs import (
    CLUSTER,
    AlterConfigs,
    ConfigResource,
)
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.leadership import ControllerDependencies, ControllerLeadership
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.reassignment.events import CancelReassignment, SubmitReassignment
from leadline_controller.runtime.service import ControllerService
from leadline_controller.runtime.topics.elections import ElectLeaders
from leadline_controller.runtime.topics.partition_intents import AddPartitions, RemovePartitions
from tests.runtime_simulation.clock import SimulatedClock
from tests.runtime_simulation.messages import (
    ADD_PARTITIONS_PATH,
    CANCEL_PATH,
    CONFIGURE_PATH,
    CREATE_TOPIC_PATH,
    DELETE_TOPIC_PATH,
    ELECT_PATH,
    REASSIGN_PATH,
    REMOVE_PARTITIONS_PATH,
    Cancel,
    Configure,
    Create,
    Delete,
    Done,
    Elect,
    FewerPartitions,
    MorePartitions,
    Reassign,
)
from tests.runtime_simulation.network import Routes
from tests.runtime_simulation.service_calls import SimulatedCalls
from tests.runtime_simulation.services import SESSION_MS, Machine, Service


@dataclass(eq=False)
class ControllerHost(Service):
    """A controller; its audit history is left out."""

    service: ControllerService | None = field(default=None, init=False)
    leadership: ControllerLeadership | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The name on the network."""
        return f"controller-{self.number}"

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller, as far as it knows."""
        return self.service is not None and self.service.is_active

    async def run(self) -> None:
        """Run the controller as `leadline_controller.main` does."""
        machine, random = self.machine, self.machine.random()
        settings = controller_settings(self.number, machine)

        async def open_store() -> ControllerStore:
            store = ControllerZkStore(open_transport=machine.zookeeper.transport)
            await store.start("zookeeper", SESSION_MS)
            return store

        dependencies = ControllerDependencies(
            open_store=open_store,
            gateway=BrokerRpcClient(SimulatedCalls(machine.network, machine.web)),
            clock=SimulatedClock(),
            new_id=lambda: f"{random.getrandbits(128):032x}",
            random_index=random.randrange,
        )
        leadership = ControllerLeadership(
            settings, f"http://{self.name}", dependencies, ControllerMetrics()
        )
        leadership.set_internal_url(f"https://{self.name}")
        self.leadership = leadership
        self.service = ControllerService(leadership)
        assert self.process is not None
        machine.network.listen(self.process, _controller_routes(self.service))
        await leadership.run()


def controller_settings(number: int, machine: Machine) -> ControllerSettings:
    """Return the settings of a controller."""
    return ControllerSettings(
        controller_id=number,
        zookeeper_session_timeout_ms=SESSION_MS,
        command_ack_timeout_ms=1_000,
        broker_contact_timeout_ms=machine.contact_timeout_ms,
        reconcile_interval_ms=1_000,
        failed_broker_interval_ms=machine.healing_ms,
        failed_broker_chunk_partitions=2,
    )


def _controller_routes(service: ControllerService) -> Routes:
    routes = Routes()

    async def heartbeat(beat: rpc.HeartbeatRequest) -> rpc.HeartbeatResponse:
        return service.heartbeat(beat)

    routes.add(rpc.HEARTBEAT_PATH, rpc.HeartbeatRequest, heartbeat)
    routes.add(
        rpc.CONTROLLED_SHUTDOWN_PATH, rpc.ControlledShutdownRequest, service.controlled_shutdown
    )
    _add_administration(routes, service)
    return routes


def _add_administration(routes: Routes, service: ControllerService) -> None:
    """Serve what operators ask for, by the handlers that `api/administration.py` calls."""

    async def create(request: Create) -> Done:
        new = NewTopic(
            request.topic,
            request.partitions,
            request.replication_factor,
            configs=request.configs,
        )
        await service.create_topic(new, dry_run=False)
        return Done()

    async def delete(request: Delete) -> Done:
        _, complete = await service.delete_topic(request.topic, request.wait_ms)
        return Done(complete)

    async def add_partitions(request: MorePartitions) -> Done:
        more = AddPartitions(
            topic=request.topic, total=request.total, replica_assignment=None, dry_run=False
        )
        await service.ask_until_acknowledged(request.topic, more)
        return Done()

    async def remove_partitions(request: FewerPartitions) -> Done:
        fewer = RemovePartitions(topic=request.topic, partitions=request.partitions, dry_run=False)
        await service.ask(fewer)
        return Done()

    async def reassign(request: Reassign) -> Done:
        row = TargetRow(request.topic, request.partition, request.replicas)
        wanted = Submission((row,), retarget=request.retarget)
        await service.ask(SubmitReassignment(wanted, dry_run=False))
        return Done()

    async def cancel(request: Cancel) -> Done:
        partition = TopicPartition(request.topic, request.partition)
        await service.ask(CancelReassignment(partition))
        return Done()

    async def configure(request: Configure) -> Done:
        owner = ConfigResource("topic", request.topic) if request.topic else CLUSTER
        await service.ask(AlterConfigs(owner, request.configs, request.remove, dry_run=False))
        return Done()

    async def elect(request: Elect) -> Done:
        one = TopicPartition(request.topic, request.partition)
        await service.ask(ElectLeaders(dry_run=False, unclean=True, topic_partitions=(one,)))
        return Done()

    routes.add(ELECT_PATH, Elect, elect)
    routes.add(CONFIGURE_PATH, Configure, configure)
    routes.add(CREATE_TOPIC_PATH, Create, create)
    routes.add(DELETE_TOPIC_PATH, Delete, delete)
    routes.add(ADD_PARTITIONS_PATH, MorePartitions, add_partitions)
    routes.add(REMOVE_PARTITIONS_PATH, FewerPartitions, remove_partitions)
    routes.add(REASSIGN_PATH, Reassign, reassign)
    routes.add(CANCEL_PATH, Cancel, cancel)

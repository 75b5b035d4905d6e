"""Brokers in one process: real runtime, real logs; the network and ZooKeeper are objects.

The test is the controller: it decides who leads, and grants roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from leadline_broker.adapters.disk import DiskLogs
from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrOutcome, IsrWriteResult
from leadline_broker.domain.state import Addresses, Directories, PublishedState, TopicIdPartition
from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.serving.routing import RoutedRequests
from leadline_broker.runtime.staging.staged_copy_store import StagedCopyStore
from leadline_client import batches
from leadline_client.errors import (
    ConnectionLost,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    Refused,
)
from leadline_client.wire import Acks, ProduceResult
from leadline_common import rpc, znodes
from leadline_common.bulk_offsets import BulkAnswer, BulkQuestion, PartitionEnds
from leadline_common.clock import SystemClock
from leadline_common.group_polls import SyncAnswer, SyncRequest
from leadline_common.identity import InternalAddress, ServiceAddress
from leadline_common.metrics import Metrics
from leadline_common.routed_records import (
    RoutedAppend,
    RoutedAppended,
    RoutedData,
    RoutedOffsets,
    RoutedRead,
)
from leadline_common.settings import BrokerSettings
from leadline_common.staged_copies import (
    DropStagedRequest,
    KeepStagedRequest,
    ReadStagedRequest,
    StagedDone,
    StagedRecords,
)
from leadline_common.zk.errors import ConnectionLoss
from leadline_common.znodes import BrokerRegistration
from tests.support.services.zookeeper import until

TOPIC = "t"
TOPIC_ID = "1" * 32
CLUSTER = -1
"""The level of settings for all brokers."""


@dataclass(frozen=True)
class NewRecord:
    """A record to produce."""

    value: bytes
    key: bytes | None = None
    timestamp: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def batch(*values: str, producer: tuple[int, int, int] | None = None) -> bytearray:
    """Return a v2 batch; `producer` is (id, epoch, base sequence)."""
    identity, epoch, sequence = producer or (-1, -1, -1)
    return bytearray(
        batches.encode(
            [NewRecord(value.encode()) for value in values],
            now_ms=1,
            producer_id=identity,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def values(records: bytes) -> list[str]:
    """Return the values of stored batches."""
    return [(record.value or b"").decode() for record in batches.decode(records)]


@dataclass
class StateNodes:
    """The state nodes and live incarnations that all brokers see."""

    states: dict[tuple[str, int], PublishedState] = field(default_factory=dict)
    incarnations: dict[int, int] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    directory_versions: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    producer_id_key: bytes | None = bytes(32)
    elected: tuple[int | None, int] = (0, 1)
    configs: dict[int, bytes] = field(default_factory=dict)
    config_hints: dict[int, Callable[[], None]] = field(default_factory=dict)

    def configure(self, level: int, **settings: object) -> None:
        """Set dynamic settings of a broker or, with `CLUSTER`, of the cluster."""
        stored = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.configs[level] = znodes.encode_configs(stored)
        for hint in self.config_hints.values():
            hint()


class NodeStore:
    """A `ClusterStore` over `StateNodes`.

    Writes of ISRs wait while `writing` is clear; `lost_answers` of them are applied and
    then lose their answer, `refused_joiners` are refused.
    """

    session_timeout_ms = 2_000

    def __init__(self, broker_id: int, nodes: StateNodes) -> None:
        self.broker_id = broker_id
        self.nodes = nodes
        self.lease = True
        self.writing = asyncio.Event()
        self.writing.set()
        self.lost_answers = 0
        self.refused_joiners = 0
        self.written: list[IsrProposal] = []
        self.lose_session: Callable[[], None] = lambda: None
        self.hint: Callable[[], None] = lambda: None
        self.registered_as = "ours"
        self.registered_settings: Mapping[str, str] = {}

    def is_connected(self) -> bool:
        return self.lease

    def lease_valid(self) -> bool:
        return self.lease

    def lease_left_ms(self) -> float:
        return 1_000.0 if self.lease else -1.0

    async def connect(self, on_lost: Callable[[], None], on_hint: Callable[[], None]) -> None:
        self.lose_session, self.hint = on_lost, on_hint

    async def cluster_id(self) -> str:
        return "cluster"

    async def register(
        self,
        addresses: Addresses,
        rack: str | None,
        settings: Mapping[str, str],
        directories: Directories,
    ) -> BrokerRegistration:
        self.registered_directories = directories
        self.registered_settings = settings
        self.registered_as = "ours"
        incarnation = self.nodes.incarnations.get(self.broker_id, 0) + 1
        self.nodes.incarnations[self.broker_id] = incarnation
        self.nodes.live.add(self.broker_id)
        return BrokerRegistration(
            self.broker_id, "b", 1, addresses.url, rack, incarnation, settings
        )

    async def directory_version(self, directory_id: str) -> int:
        return self.nodes.directory_versions.get(directory_id, 0)

    async def raise_directory_version(self, directory_id: str, version: int) -> None:
        if not self.lease:
            raise ConnectionLoss
        self.nodes.directory_versions[directory_id] = version

    async def registration(self) -> str:
        return self.registered_as

    async def configs(self, on_hint: Callable[[], None]) -> tuple[bytes | None, bytes | None]:
        self.nodes.config_hints[self.broker_id] = on_hint
        return self.nodes.configs.get(self.broker_id), self.nodes.configs.get(CLUSTER)

    async def coordinator(self, on_hint: Callable[[], None]) -> rpc.ControllerRow | None:
        del on_hint
        return None

    async def elected_controller(self) -> tuple[int | None, int]:
        return self.nodes.elected

    async def controller(self) -> rpc.ControllerRow | None:
        return rpc.ControllerRow(9, "http://c/9", 0, "https://c/9")

    async def write_isrs(
        self, changes: Sequence[tuple[TopicIdPartition, IsrProposal]]
    ) -> list[IsrOutcome]:
        await self.writing.wait()
        return [self._write(name, proposal) for name, proposal in changes]

    def _write(self, name: TopicIdPartition, proposal: IsrProposal) -> IsrOutcome:
        topic, _, partition = name
        state = self.nodes.states[topic, partition]
        self.written.append(proposal)
        if proposal.joiners and self.refused_joiners:
            self.refused_joiners -= 1
            return IsrWriteResult.JOINER_REFUSED, -1
        fits = (state.leader, state.leader_epoch) == (self.broker_id, proposal.leader_epoch)
        if not fits or state.state_version != proposal.state_version:
            return IsrWriteResult.CONFLICT, -1
        version = state.state_version + 1
        self.nodes.states[topic, partition] = PublishedState(
            state.leader, state.leader_epoch, proposal.isr, proposal.eligible, version
        )
        if self.lost_answers:
            self.lost_answers -= 1
            return IsrWriteResult.UNKNOWN, -1
        return IsrWriteResult.COMMITTED, version

    async def read_states(
        self, partitions: Sequence[TopicIdPartition]
    ) -> dict[TopicIdPartition, PublishedState | None]:
        if not self.lease:
            raise ConnectionLoss
        return {name: self.nodes.states.get((name[0], name[2])) for name in partitions}

    async def claim_producer_ids(self, count: int) -> int:
        first = self.nodes.next_producer_id
        self.nodes.next_producer_id += count
        return first

    async def producer_id_key(self) -> bytes | None:
        return self.nodes.producer_id_key

    async def close(self) -> None:
        self.nodes.live.discard(self.broker_id)


async def no_controlled_shutdown(
    request: rpc.ControlledShutdownRequest,
) -> rpc.ControlledShutdownResponse:
    """Answer as a controller that does not know the request."""
    raise Refused(f"broker {request.broker_id} asks for what is not served here")


async def no_coordinator(member: str, request: SyncRequest) -> SyncAnswer:
    """Answer as if no coordinator was there."""
    raise CoordinatorNotAvailable(f"nobody knows {member} and {request.cursor}")


class Wire:
    """`Peers` that call other brokers directly, by way of the real encoding.

    `damage` returns what arrives of fetched records.
    """

    def __init__(self, cluster: SmallCluster, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self.heartbeats: list[rpc.HeartbeatRequest] = []
        self.damage: Callable[[bytes], bytes] = bytes
        self.on_sync: Callable[[str, SyncRequest], Awaitable[SyncAnswer]] = no_coordinator

    async def fetch(
        self, to: InternalAddress, request: rpc.ReplicaFetchRequest, timeout_ms: int
    ) -> rpc.ReplicaFetchResponse:
        del timeout_ms
        leader = self._cluster.reachable(to.url, request.broker_id)
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=rpc.ReplicaFetchRequest)
        answer = await leader.engine.sessions.fetch(sent)
        self._cluster.reachable(to.url, request.broker_id)
        topics = [
            msgspec.structs.replace(
                topic,
                partitions=[
                    msgspec.structs.replace(row, records=self.damage(row.records))
                    for row in topic.partitions
                ],
            )
            for topic in answer.topics
        ]
        answer = msgspec.structs.replace(answer, topics=topics)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=rpc.ReplicaFetchResponse)

    async def heartbeat(
        self, to: InternalAddress, request: rpc.HeartbeatRequest, timeout_ms: int
    ) -> rpc.HeartbeatResponse:
        del to, timeout_ms
        self.heartbeats.append(request)
        return rpc.HeartbeatResponse(0, self._cluster.controller_epoch, self._cluster.moving)

    async def controlled_shutdown(
        self, to: InternalAddress, request: rpc.ControlledShutdownRequest, timeout_ms: int
    ) -> rpc.ControlledShutdownResponse:
        del to, timeout_ms
        return await self._cluster.on_controlled_shutdown(request)

    async def offsets(
        self, leader: ServiceAddress, question: BulkQuestion, timeout_ms: int
    ) -> BulkAnswer:
        del timeout_ms
        asked = self._cluster.reachable(leader.url, self._broker_id)
        sent = msgspec.json.decode(msgspec.json.encode(question), type=BulkQuestion)
        answer = await asked.engine.offset_finder.answer(sent)
        self._cluster.reachable(leader.url, self._broker_id)
        return msgspec.json.decode(msgspec.json.encode(answer), type=BulkAnswer)

    async def keep_staged(
        self, to: InternalAddress, request: KeepStagedRequest, timeout_ms: int
    ) -> StagedDone:
        del timeout_ms
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=KeepStagedRequest)
        return await self._copies(to.url).keep(sent)

    async def drop_staged(
        self, to: InternalAddress, request: DropStagedRequest, timeout_ms: int
    ) -> StagedDone:
        del timeout_ms
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=DropStagedRequest)
        return await self._copies(to.url).drop(sent)

    async def read_staged(
        self, to: InternalAddress, request: ReadStagedRequest, timeout_ms: int
    ) -> StagedRecords:
        del timeout_ms
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=ReadStagedRequest)
        return await self._copies(to.url).read(sent)

    async def append_routed(
        self, to: InternalAddress, request: RoutedAppend, timeout_ms: int
    ) -> RoutedAppended:
        self._require_reachable(to.url)
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RoutedAppend)
        async with self._answered(timeout_ms):
            answer = await self._routed(to.url).append(sent)
        self._cluster.reachable(to.url, self._broker_id)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=RoutedAppended)

    async def read_routed(
        self, to: InternalAddress, request: RoutedRead, timeout_ms: int
    ) -> RoutedData:
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RoutedRead)
        async with self._answered(timeout_ms):
            answer = await self._routed(to.url).read(sent)
        self._cluster.reachable(to.url, self._broker_id)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=RoutedData)

    async def offsets_routed(
        self, to: InternalAddress, request: RoutedOffsets, timeout_ms: int
    ) -> PartitionEnds:
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RoutedOffsets)
        async with self._answered(timeout_ms):
            return await self._routed(to.url).offsets(sent)

    async def sync_consumer(
        self, to: ServiceAddress, group: str, member: str, request: SyncRequest, timeout_ms: int
    ) -> SyncAnswer:
        del to, group, timeout_ms
        return await self.on_sync(member, request)

    def _require_reachable(self, url: str) -> None:
        try:
            self._cluster.reachable(url, self._broker_id)
        except ConnectionLost as error:
            raise LeaderNotAvailable(error.message) from error

    @asynccontextmanager
    async def _answered(self, timeout_ms: int) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                yield
        except TimeoutError:
            raise ConnectionLost(f"no response in {timeout_ms} ms") from None

    def _routed(self, url: str) -> RoutedRequests:
        return self._cluster.reachable(url, self._broker_id).engine.routed_requests

    def _copies(self, url: str) -> StagedCopyStore:
        return self._cluster.reachable(url, self._broker_id).engine.copy_store

    async def close(self) -> None:
        return


class SmallCluster:
    """Some brokers; the test grants them their roles."""

    def __init__(self, root: Path, **settings: int) -> None:
        self.root = root
        self.settings: dict[str, int] = {
            "replica_fetch_wait_max_ms": 20,
            "replica_lag_time_max_ms": 400,
            "heartbeat_interval_ms": 20,
            **settings,
        }
        self.nodes = StateNodes()
        self.brokers: dict[int, Broker] = {}
        self.stores: dict[int, NodeStore] = {}
        self.wires: dict[int, Wire] = {}
        self.metrics: dict[int, Metrics] = {}
        self.cut: set[int] = set()
        self.controller_epoch = 1
        self.sequence = 0
        self.moving: list[rpc.MovingRate] | None = None
        self.on_controlled_shutdown = no_controlled_shutdown

    async def __aenter__(self) -> SmallCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            await broker.close()

    def reachable(self, url: str, sender: int) -> Broker:
        """Return the broker at `url`, unless it or the sender is cut off."""
        number = int(url.rpartition("/")[2])
        if number not in self.brokers or {number, sender} & self.cut:
            raise ConnectionLost(f"{url} is cut off")
        return self.brokers[number]

    async def start(self, *numbers: int) -> None:
        """Start brokers without any role."""
        for number in numbers:
            settings = BrokerSettings.model_validate(
                {"broker_id": number, "log_dir": str(self.root / str(number)), **self.settings}
            )
            store = self.stores[number] = NodeStore(number, self.nodes)
            wire = self.wires[number] = Wire(self, number)
            metrics = self.metrics[number] = Metrics(process=False)
            broker = Broker(
                settings,
                store=store,
                peers=wire,
                open_logs=partial(DiskLogs, settings),
                clock=SystemClock(),
                metrics=metrics,
                random=Random(number),
            )
            await broker.start(Addresses(f"http://b/{number}", f"https://b/{number}"))
            self.brokers[number] = broker

    async def stop(self, number: int) -> None:
        """Stop a broker in good order."""
        await self.brokers.pop(number).close()

    def publish(
        self, leader: int, epoch: int, isr: Sequence[int], topic: str = TOPIC, partition: int = 0
    ) -> PublishedState:
        """Write a state node as the controller would."""
        known = self.nodes.states.get((topic, partition))
        version = known.state_version + 1 if known else 0
        state = PublishedState(leader, epoch, tuple(isr), (), version)
        self.nodes.states[topic, partition] = state
        return state

    def request(
        self,
        to: int,
        replicas: Sequence[int] = (1, 2, 3),
        *,
        init: bool = False,
        topic: str = TOPIC,
        topic_id: str = TOPIC_ID,
        partitions: Sequence[int] = (0,),
        adding: Sequence[int] = (),
        first_epoch: int = 0,
        **configs: str,
    ) -> rpc.LeaderAndIsrRequest:
        """Return LeaderAndISR with what is published of some partitions."""
        rows = []
        for number in partitions:
            state = self.nodes.states[topic, number]
            rows.append(
                rpc.PartitionRow(
                    number,
                    state.leader,
                    state.leader_epoch,
                    state.isr,
                    tuple(replicas),
                    state.state_version,
                    state.eligible,
                    tuple(adding),
                    first_epoch,
                )
            )
        self.sequence += 1
        topics = [rpc.TopicRows(topic, topic_id, configs, rows)] if rows else []
        addresses = [
            rpc.BrokerRow(
                number,
                f"http://b/{number}",
                None,
                self.brokers[number].state.incarnation,
                f"https://b/{number}",
            )
            for number in self.brokers
        ]
        return rpc.LeaderAndIsrRequest(
            controller_id=0,
            controller_epoch=self.controller_epoch,
            broker_id=to,
            incarnation=self.brokers[to].state.incarnation,
            is_init=init,
            ack_timeout_ms=1_000,
            cause="test",
            brokers=addresses,
            topics=topics,
            sequence=self.sequence,
        )

    async def grant(self, *to: int, init: bool = False, **options: object) -> list[list[list[int]]]:
        """Send LeaderAndISR to brokers; return the codes of each."""
        codes = []
        for number in to:
            asked = self.request(number, init=init, **options)  # type: ignore[arg-type]  # options of request
            answer = await self.brokers[number].engine.commands.leader_and_isr(asked)
            codes.append(answer.codes)
        return codes

    def tell_metadata(
        self, *to: int, partitions: Sequence[int] = (0,), topic_id: str = TOPIC_ID
    ) -> None:
        """Send UpdateMetadata with what is published to brokers."""
        for number in to:
            shown = self.request(number, partitions=partitions, topic_id=topic_id)
            self.brokers[number].engine.commands.update_metadata(
                rpc.UpdateMetadataRequest(
                    "cluster",
                    rpc.ControllerRow(9, "http://c/9", self.controller_epoch),
                    number,
                    self.brokers[number].state.incarnation,
                    self.sequence,
                    0,
                    True,
                    "test",
                    shown.brokers,
                    shown.topics,
                )
            )

    def stop_request(
        self, to: int, epoch: int, *, delete: bool = True, topic_id: str = TOPIC_ID
    ) -> rpc.StopReplicaRequest:
        """Return StopReplica for partition 0."""
        self.sequence += 1
        return rpc.StopReplicaRequest(
            controller_id=0,
            controller_epoch=self.controller_epoch,
            broker_id=to,
            incarnation=self.brokers[to].state.incarnation,
            ack_timeout_ms=1_000,
            cause="test",
            delete=delete,
            topics=[rpc.StopTopic(TOPIC, topic_id, [rpc.StopRow(0, epoch)])],
            sequence=self.sequence,
        )

    async def stop_replica(
        self, to: int, epoch: int, *, delete: bool = True, topic_id: str = TOPIC_ID
    ) -> int:
        """Send StopReplica for partition 0; return its code."""
        request = self.stop_request(to, epoch, delete=delete, topic_id=topic_id)
        answer = await self.brokers[to].engine.commands.stop_replica(request)
        return answer.codes[0][0]

    async def produce(
        self, to: int, *records: str, acks: Acks = "all", timeout_ms: int = 5_000
    ) -> ProduceResult:
        """Produce one batch to a broker."""
        return await self.send(to, batch(*records), acks, timeout_ms)

    async def send(
        self, to: int, data: bytes | bytearray, acks: Acks = "all", timeout_ms: int = 5_000
    ) -> ProduceResult:
        """Produce these bytes to a broker."""
        return await self.brokers[to].engine.serving.produce(
            TOPIC, 0, bytearray(data), acks=acks, timeout_ms=timeout_ms
        )

    async def read(self, at: int, offset: int = 0, wait_ms: int = 0) -> list[str]:
        """Return the committed values from an offset, from the batch that holds it."""
        fetched = await self.brokers[at].engine.serving.fetch(
            TOPIC, 0, offset, max_bytes=1 << 20, min_bytes=1, wait_ms=wait_ms
        )
        return values(fetched.records)

    def end(self, at: int) -> int:
        """Return the log end of a replica."""
        return self.brokers[at].engine.replicas.describe()[0].log_end_offset

    def high_watermark(self, at: int) -> int:
        """Return the high watermark of a replica."""
        return self.brokers[at].engine.replicas.describe()[0].high_watermark

    def stored(self, at: int, directory: str = f"{TOPIC}-0") -> bytes:
        """Return the bytes of a replica's segments."""
        path = self.root / str(at) / directory
        return b"".join(file.read_bytes() for file in sorted(path.glob("*.log")))

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition."""
        await until(condition, what, 10.0)


async def three(root: Path, **settings: int) -> SmallCluster:
    """Return brokers 1, 2, 3 with partition t-0 led by 1, all in sync."""
    cluster = SmallCluster(root, **settings)
    await cluster.start(1, 2, 3)
    cluster.publish(1, 0, (1, 2, 3))
    await cluster.grant(1, 2, 3, init=True)
    return cluster

"""ZooKeeper as a broker uses it: registration, ISR writes, and watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import msgspec
import structlog

from leadline_broker.adapters import leader_nodes
from leadline_broker.adapters.directory_nodes import raise_version, read_version
from leadline_broker.adapters.isr_transaction import IsrChange, IsrTransaction, in_parts
from leadline_broker.adapters.leader_nodes import watched
from leadline_broker.adapters.producer_id_nodes import claim_numbers, read_key
from leadline_broker.adapters.required_nodes import decode_required
from leadline_broker.adapters.state_nodes import published_state, read_partition_nodes
from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrOutcome, IsrWriteResult
from leadline_broker.domain.state import Addresses, Directories, PublishedState, TopicIdPartition
from leadline_common import znodes
from leadline_common.clock import Clock
from leadline_common.cluster_id import decode_cluster_id
from leadline_common.directories import next_directories
from leadline_common.registered_versions import require_compatible_with_registered
from leadline_common.rpc import ControllerRow
from leadline_common.slices import in_turns, slices
from leadline_common.versions import (
    NEWEST_PROTOCOL,
    OLDEST_PROTOCOL,
    current_release,
    own_versions,
)
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import (
    ConnectionLoss,
    MultiFailed,
    NoNode,
    SessionExpired,
    ZkError,
)
from leadline_common.zk.ops import CreateOp, DeleteOp, Op, SetOp, Stat
from leadline_common.zk.ports import OpenTransport, SessionState
from leadline_common.zk.session import ZkSession
from leadline_common.zk.transport import KazooTransport
from leadline_common.znodes import BrokerEpoch, BrokerRegistration

logger = structlog.get_logger(__name__)

_CLUSTER_ID_POLL_S: Final = 0.2


@dataclass(eq=False)
class ZkBrokerStore:
    """Implements `runtime.ports.ClusterStore`; `connect` replaces the session with a new one."""

    broker_id: int
    hosts: str
    session_timeout_ms: int
    clock: Clock
    credentials: ZkCredentials | None = None
    open_transport: OpenTransport = KazooTransport
    _session: ZkSession | None = field(default=None, init=False)
    _incarnation: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        # Not a field's default, which as an attribute of the class would become a method.
        self._hint: Callable[[], None] = lambda: None

    # -- session ---------------------------------------------------------------

    def is_connected(self) -> bool:
        """Return whether the session is connected to a server."""
        return self._session is not None and self._session.is_connected

    def lease_valid(self) -> bool:
        """Return whether this broker may still act as a leader (rule R10)."""
        return self._session is not None and self._session.lease_valid()

    def lease_left_ms(self) -> float:
        """Return the remaining time of the lease; negative once it has expired."""
        if self._session is None:
            return -1.0
        return max(-1.0, self._session.lease.valid_until_ms - self.clock.monotonic_ms())

    async def connect(self, on_lost: Callable[[], None], on_hint: Callable[[], None]) -> None:
        """Start a new session.

        Raises:
            NotConnected: no server answers.

        """
        await self.close()

        def state_changed(state: SessionState) -> None:
            if state is SessionState.LOST and self._session is session:
                on_lost()

        session = ZkSession(
            on_state=state_changed,
            on_reconnected=on_hint,
            clock_ms=self.clock.monotonic_ms,
            credentials=self.credentials,
            open_transport=self.open_transport,
        )
        await session.start(self.hosts, self.session_timeout_ms)
        self._session, self._hint = session, on_hint

    async def close(self) -> None:
        """Close the session, which removes the registration."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> ZkSession:
        if self._session is None:
            raise SessionExpired("there is no session")
        return self._session

    async def cluster_id(self) -> str:
        """Return the cluster's id; wait until the first controller has written it."""
        while True:
            try:
                data, _ = await self._open().get(znodes.CLUSTER_ID)
            except NoNode:
                data = b""
            if data:
                return decode_cluster_id(data)
            await asyncio.sleep(_CLUSTER_ID_POLL_S)

    # -- registration ----------------------------------------------------------

    async def register(
        self,
        addresses: Addresses,
        rack: str | None,
        settings: Mapping[str, str],
        directories: Directories,
    ) -> BrokerRegistration:
        """Register this broker in a new incarnation (rule R9); return what is registered.

        The incarnation is the data version of a persistent node, which the transaction that
        creates the ephemeral node increments: the ephemeral node's own version always starts
        at 0. The same transaction deletes an ephemeral node left by an earlier process of
        this broker, and gives new log directories their epochs (rule R17).

        Raises:
            ZkError: the session has ended, or the outcome could not be determined.
            IncompatibleRelease: a registered service speaks no protocol version in common.

        """
        session = self._open()
        epoch_path = znodes.broker_epoch_path(self.broker_id)
        await session.ensure_path(znodes.BROKER_IDS)
        await session.ensure_path(epoch_path)
        await self._check_versions(session)
        while True:
            await session.sync()
            epoch_data, epoch_stat = await session.get(epoch_path)
            epoch = self._next_epoch(epoch_data, directories)
            owner = await session.exists(znodes.broker_id_path(self.broker_id))
            # If an attempt of unknown outcome has succeeded, it is registered with this version.
            succeeded = owner is not None and owner.ephemeral_owner == session.session_id
            incarnation = epoch_stat.version if succeeded else epoch_stat.version + 1
            registration = self._registering(
                addresses, rack, settings, incarnation, directories, epoch
            )
            if not succeeded:
                try:
                    await session.multi(self._replacing(owner, registration, epoch))
                except (ConnectionLoss, MultiFailed) as error:
                    if isinstance(error, MultiFailed) and not error.is_race:
                        raise  # such as an ACL, which the next attempt would meet as well
                    logger.info("registration retried", error=str(error))
                    continue
            # A service that registered since the last look may not have seen this registration.
            # Whichever of two writes is the later, a read after it shows the earlier.
            await self._check_versions(session)
            self._incarnation = incarnation
            return registration

    def _next_epoch(self, data: bytes, directories: Directories) -> BrokerEpoch:
        """Return the value of the persistent node, with the epochs of all directories.

        Of an unreadable node nobody knows which directories are new (rule R17).
        """
        path = znodes.broker_epoch_path(self.broker_id)
        known = decode_required(path, data, znodes.decode_broker_epoch)
        present = [directories.directory_id, *directories.of_replicas.values()]
        epochs = next_directories(known.directories, present)
        return msgspec.structs.replace(known, directories=epochs)

    def _registering(
        self,
        addresses: Addresses,
        rack: str | None,
        settings: Mapping[str, str],
        incarnation: int,
        directories: Directories,
        epoch: BrokerEpoch,
    ) -> BrokerRegistration:
        address = urlsplit(addresses.url)
        replica_epochs: dict[str, dict[int, int]] = {}
        for (topic_id, partition), directory in directories.of_replicas.items():
            replica_epochs.setdefault(topic_id, {})[partition] = epoch.directories[directory]
        return BrokerRegistration(
            id=self.broker_id,
            host=address.hostname or "",
            port=address.port or 0,
            url=addresses.url,
            rack=rack,
            incarnation=incarnation,
            settings=settings,
            directory_id=directories.directory_id,
            directory_epoch=epoch.directories[directories.directory_id],
            replica_epochs=replica_epochs,
            internal_url=addresses.internal_url,
            release=current_release(),
            oldest_protocol=OLDEST_PROTOCOL,
            newest_protocol=NEWEST_PROTOCOL,
        )

    async def _check_versions(self, session: ZkSession) -> None:
        """Raise IncompatibleRelease if a registered service speaks no version in common."""
        own = own_versions(f"broker {self.broker_id}")
        await require_compatible_with_registered(session, own)

    def _replacing(
        self, old: Stat | None, registration: BrokerRegistration, epoch: BrokerEpoch
    ) -> list[Op]:
        """Return the operations that replace the registration `old`; see `register`."""
        path = znodes.broker_id_path(self.broker_id)
        epoch_path = znodes.broker_epoch_path(self.broker_id)
        version = registration.incarnation - 1
        ops: list[Op] = [SetOp(epoch_path, znodes.encode_value(epoch), version)]
        if old is not None:
            ops.append(DeleteOp(path, old.version))
        ops.append(CreateOp(path, znodes.encode_value(registration), ephemeral=True))
        return ops

    async def registration(self) -> str:
        """Return the value of a `runtime.ports.Registration` and watch the registration."""
        session = self._open()
        path = znodes.broker_id_path(self.broker_id)
        stat = await session.exists(path, watch=self._hint)
        if stat is None:
            return "gone"
        return "ours" if stat.ephemeral_owner == session.session_id else "another's"

    async def configs(self, on_hint: Callable[[], None]) -> tuple[bytes | None, bytes | None]:
        """Return the dynamic settings of this broker and of the cluster, and watch both."""
        session = self._open()
        broker = await watched(session, znodes.broker_config_path(self.broker_id), on_hint)
        return broker, await watched(session, znodes.CONFIG_CLUSTER, on_hint)

    async def elected_controller(self) -> tuple[int | None, int]:
        """Return the id of the active controller and its epoch; see `ClusterStore`."""
        return await leader_nodes.elected_controller(self._open())

    async def controller(self) -> ControllerRow | None:
        """Return the holder of `/controller` and watch it; the epoch, which it lacks, is 0."""
        return await leader_nodes.controller(self._open(), self._hint)

    async def coordinator(self, on_hint: Callable[[], None]) -> ControllerRow | None:
        """Return the holder of `/consumers/coordinator` with its epoch, and watch it."""
        return await leader_nodes.coordinator(self._open(), on_hint)

    # -- state nodes -----------------------------------------------------------

    async def write_isrs(
        self, changes: Sequence[tuple[TopicIdPartition, IsrProposal]]
    ) -> list[IsrOutcome]:
        """Write the changes in as few transactions as possible, which are pipelined."""
        incarnation = self._incarnation  # It may change while the nodes are read.
        try:
            partitions = [partition for partition, _ in changes]
            nodes = await read_partition_nodes(self._open(), partitions)
        except ZkError as error:
            logger.warning("ISR changes not written", changes=len(changes), error=str(error))
            return [(IsrWriteResult.UNKNOWN, -1)] * len(changes)
        outcomes: list[IsrOutcome] = [(IsrWriteResult.CONFLICT, -1)] * len(changes)
        fitting: list[tuple[int, IsrChange]] = []
        async for some in slices(enumerate(changes)):
            for number, (partition, proposal) in some:
                found = nodes.get(partition)
                change = found and IsrChange(partition, proposal, found)
                if change and change.fits(self.broker_id):
                    fitting.append((number, change))
        async with asyncio.TaskGroup() as writes:
            async for part in in_turns(in_parts(fitting)):
                writes.create_task(self._write_part(incarnation, part, outcomes))
        return outcomes

    async def _write_part(
        self, incarnation: int, changes: dict[int, IsrChange], outcomes: list[IsrOutcome]
    ) -> None:
        """Write changes in one transaction, and set their outcomes.

        A refusal is about some of them. The others are written again without these.
        """
        while changes:
            transaction = IsrTransaction(self.broker_id, incarnation, list(changes.values()))
            numbers = list(changes)
            try:
                results = await self._open().multi(transaction.operations(self.clock.wall_ms()))
            except MultiFailed as failure:
                for index, result in transaction.refusal(failure.index).items():
                    outcomes[numbers[index]] = result, -1
                    del changes[numbers[index]]
                continue
            except ZkError:
                for number in numbers:
                    outcomes[number] = IsrWriteResult.UNKNOWN, -1
                return
            for number, version in zip(numbers, transaction.new_versions(results), strict=True):
                outcomes[number] = IsrWriteResult.COMMITTED, version
            return

    async def read_states(
        self, partitions: Sequence[TopicIdPartition]
    ) -> dict[TopicIdPartition, PublishedState | None]:
        """Return the current states, None for one that is gone; unreadable states are omitted."""
        await self._open().sync()
        nodes = await read_partition_nodes(self._open(), partitions)
        return {partition: published_state(partition, found) for partition, found in nodes.items()}

    # -- log directories -------------------------------------------------------

    async def directory_version(self, directory_id: str) -> int:
        """Return the version of a log directory; see `directory_nodes.read_version`."""
        return await read_version(self._open(), self.broker_id, directory_id)

    async def raise_directory_version(self, directory_id: str, version: int) -> None:
        """Write the version of a log directory; see `directory_nodes.raise_version`."""
        await raise_version(self._open(), self.broker_id, directory_id, version)

    # -- producer ids ----------------------------------------------------------

    async def claim_producer_ids(self, count: int) -> int:
        """Reserve `count` numbers of producer ids; see `producer_id_nodes.claim_numbers`."""
        return await claim_numbers(self._open(), count)

    async def producer_id_key(self) -> bytes | None:
        """Return the key of producer ids; see `producer_id_nodes.read_key`."""
        return await read_key(self._open())

"""ZooKeeper as a broker uses it: registration, ISR writes, hints about the controller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec
import structlog

from leadline_broker.adapters.isr_transaction import (
    IsrTransaction,
    PartitionName,
    PartitionNodes,
    TopicNode,
)
from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.state import PublishedState
from leadline_client.wire import ControllerInfo
from leadline_common import consumer_znodes, znodes
from leadline_common.clock import Clock
from leadline_common.zk.errors import (
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    ZkError,
)
from leadline_common.zk.ops import CreateOp, DeleteOp, Op, SetOp, Stat
from leadline_common.zk.session import ZkSession
from leadline_common.zk.transport import SessionState

logger = structlog.get_logger(__name__)

IsrOutcome = tuple[IsrWriteResult, int]

_CLUSTER_ID_POLL_S: Final = 0.2


class ZkBrokerStore:
    """See `runtime.ports.ClusterStore`. One session at a time; `connect` begins a new one."""

    def __init__(self, broker_id: int, hosts: str, session_timeout_ms: int, clock: Clock) -> None:
        self._broker_id = broker_id
        self._hosts = hosts
        self._timeout_ms = session_timeout_ms
        self._clock = clock
        self._session: ZkSession | None = None
        self._incarnation = -1
        self._hint: Callable[[], None] = _nothing

    # -- session ---------------------------------------------------------------

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout that the server granted."""
        return self._session.session_timeout_ms if self._session else 0

    def is_connected(self) -> bool:
        """Tell whether a server is in touch."""
        return self._session is not None and self._session.is_connected

    def lease_valid(self) -> bool:
        """Tell whether this broker may still act as a leader (rule R10)."""
        return self._session is not None and self._session.lease_valid()

    def lease_left_ms(self) -> float:
        """Return how long the lease still holds; negative when it does not."""
        if self._session is None:
            return -1.0
        return max(-1.0, self._session.lease.valid_until_ms - time.monotonic() * 1000)

    async def connect(self, on_lost: Callable[[], None], on_hint: Callable[[], None]) -> None:
        """Begin a new session.

        Raises:
            NotConnected: no server answers.

        """
        await self.close()

        def state_changed(state: SessionState) -> None:
            if state is SessionState.LOST and self._session is session:
                on_lost()

        session = ZkSession(on_state=state_changed, on_reconnected=on_hint)
        await session.start(self._hosts, self._timeout_ms)
        self._session, self._hint = session, on_hint

    async def close(self) -> None:
        """End the session, and with it the registration."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> ZkSession:
        if self._session is None:
            raise SessionExpired("there is no session")
        return self._session

    async def cluster_id(self) -> str:
        """Return the cluster's id, waiting for the first controller to name it."""
        while True:
            try:
                data, _ = await self._open().get(znodes.CLUSTER_ID)
            except NoNode:
                data = b""
            if data:
                return data.decode()
            await asyncio.sleep(_CLUSTER_ID_POLL_S)

    # -- registration ----------------------------------------------------------

    async def register(self, url: str, rack: str | None, settings: Mapping[str, str]) -> int:
        """Register this broker in a new incarnation and return it (rule R9).

        The incarnation is the data version of a persistent node, set in the
        transaction that creates the ephemeral: the ephemeral's own version
        starts anew each time. An ephemeral that an earlier process of this broker
        left behind is deleted in the same transaction (flaw F18).

        Raises:
            ZkError: the session is over, or its outcome could not be learned.

        """
        session = self._open()
        epoch_path = znodes.broker_epoch_path(self._broker_id)
        await session.ensure_path(znodes.BROKER_IDS)
        await session.ensure_path(epoch_path)
        while True:
            await session.sync()
            _, epoch_stat = await session.get(epoch_path)
            owner = await self._registered()
            if owner is not None and owner.ephemeral_owner == session.session_id:
                self._incarnation = epoch_stat.version  # An attempt of unknown outcome succeeded.
                return self._incarnation
            incarnation = epoch_stat.version + 1
            try:
                registration = self._registration(url, rack, settings, epoch_stat.version + 1)
                await session.multi(self._registering(registration, epoch_stat.version, owner))
            except (ConnectionLoss, MultiFailed) as error:
                logger.info("registration repeated", error=str(error))
                continue
            self._incarnation = incarnation
            return incarnation

    async def _registered(self) -> Stat | None:
        return await self._open().exists(znodes.broker_id_path(self._broker_id))

    def _registration(
        self, url: str, rack: str | None, settings: Mapping[str, str], incarnation: int
    ) -> znodes.BrokerRegistration:
        address = urlsplit(url)
        return znodes.BrokerRegistration(
            id=self._broker_id,
            host=address.hostname or "",
            port=address.port or 0,
            url=url,
            rack=rack,
            incarnation=incarnation,
            settings=settings,
        )

    def _registering(
        self, registration: znodes.BrokerRegistration, version: int, old: Stat | None
    ) -> list[Op]:
        path = znodes.broker_id_path(self._broker_id)
        ops: list[Op] = [SetOp(znodes.broker_epoch_path(self._broker_id), b"", version)]
        if old is not None:
            ops.append(DeleteOp(path, old.version))
        ops.append(CreateOp(path, znodes.encode_broker(registration), ephemeral=True))
        return ops

    async def registration(self) -> str:
        """Tell whose the registration is: "ours", "gone" or "another's"; watches it."""
        session = self._open()
        path = znodes.broker_id_path(self._broker_id)
        stat = await session.exists(path, watch=self._hint)
        if stat is None:
            return "gone"
        return "ours" if stat.ephemeral_owner == session.session_id else "another's"

    async def configs(self, on_hint: Callable[[], None]) -> tuple[bytes | None, bytes | None]:
        """Return what is set for this broker and for the cluster; watches both."""
        session = self._open()
        broker = await _watched(session, znodes.broker_config_path(self._broker_id), on_hint)
        return broker, await _watched(session, znodes.CONFIG_CLUSTER, on_hint)

    async def controller(self) -> ControllerInfo | None:
        """Return who holds `/controller`; its epoch is not told there. Watches it."""
        session = self._open()
        if await session.exists(znodes.CONTROLLER, watch=self._hint) is None:
            return None
        try:
            data, _ = await session.get(znodes.CONTROLLER)
            holder = znodes.decode_controller(data)
        except (NoNode, msgspec.MsgspecError, KeyError):
            return None
        return ControllerInfo(holder.id, holder.url, 0)

    async def coordinator(self, on_hint: Callable[[], None]) -> ControllerInfo | None:
        """Return who holds `/consumers/coordinator`, with its epoch. Watches it."""
        session = self._open()
        node = await _watched(session, consumer_znodes.COORDINATOR, on_hint)
        if node is None:
            return None
        try:
            epoch, _ = await session.get(consumer_znodes.COORDINATOR_EPOCH)
            holder = consumer_znodes.decode(node, consumer_znodes.CoordinatorRegistration)
            return ControllerInfo(holder.id, holder.url, int(epoch))
        except (NoNode, msgspec.MsgspecError, ValueError):
            return None

    # -- state nodes -----------------------------------------------------------

    async def write_isrs(
        self, changes: Sequence[tuple[PartitionName, IsrProposal]]
    ) -> list[IsrOutcome]:
        """Publish each change in a transaction of its own, all of them pipelined."""
        incarnation = self._incarnation  # The one that asks, whatever becomes of it meanwhile.
        try:
            nodes = await self._read_nodes([name for name, _ in changes])
        except ZkError as error:
            logger.warning("ISR changes not written", changes=len(changes), error=str(error))
            return [(IsrWriteResult.UNKNOWN, -1)] * len(changes)
        writes = [
            self._write_isr(incarnation, name, proposal, nodes.get(name))
            for name, proposal in changes
        ]
        return await asyncio.gather(*writes)

    async def _write_isr(
        self,
        incarnation: int,
        name: PartitionName,
        proposal: IsrProposal,
        nodes: PartitionNodes | None,
    ) -> IsrOutcome:
        transaction = IsrTransaction(self._broker_id, incarnation, name, proposal)
        if nodes is None or not transaction.fits(nodes):
            return IsrWriteResult.CONFLICT, -1
        ops = transaction.operations(nodes, self._clock.wall_ms())
        try:
            results = await self._open().multi(ops)
        except MultiFailed as failure:
            return transaction.refusal(failure.index), -1
        except ZkError:
            return IsrWriteResult.UNKNOWN, -1
        return IsrWriteResult.COMMITTED, transaction.new_version(results)

    async def read_states(
        self, partitions: Sequence[PartitionName]
    ) -> dict[PartitionName, PublishedState | None]:
        """Return the states as of now, None where one is gone; without those that are no states."""
        await self._open().sync()
        nodes = await self._read_nodes(partitions)
        return {name: _published(name, found) for name, found in nodes.items()}

    async def _read_nodes(
        self, partitions: Sequence[PartitionName]
    ) -> dict[PartitionName, PartitionNodes | None]:
        """Return what there is of each partition; a topic's node is read once for all of its own.

        Left out are those with a node that cannot be read: a person may have written it.
        The topics come after the states: one of a later topic is never taken for that of an
        earlier one.
        """
        topics = list(dict.fromkeys(topic for topic, _, _ in partitions))
        paths = [znodes.state_path(topic, partition) for topic, _, partition in partitions]
        read = await self._open().get_many(paths + [znodes.topic_path(topic) for topic in topics])
        known: dict[str, TopicNode | None] = {}
        for topic, node in zip(topics, read[len(paths) :], strict=True):
            with _unreadable_passed_over(znodes.topic_path(topic)):
                known[topic] = node and TopicNode(znodes.decode_topic(node[0]), node[1].version)
        found: dict[PartitionName, PartitionNodes | None] = {}
        for name, path, node in zip(partitions, paths, read[: len(paths)], strict=True):
            if name[0] not in known:
                continue
            of_topic = known[name[0]]
            with _unreadable_passed_over(path):
                found[name] = (
                    None
                    if of_topic is None or node is None
                    else PartitionNodes(of_topic, znodes.decode_state(node[0]), node[1].version)
                )
        return found

    # -- producer ids ----------------------------------------------------------

    async def claim_producer_ids(self, count: int) -> int:
        """Reserve `count` producer ids and return the first.

        After an unknown outcome the next block is asked for: ids may be lost,
        but are never given twice.
        """
        while True:
            session = self._open()
            try:
                data, stat = await session.get(znodes.PRODUCER_ID_BLOCK)
                first = int(msgspec.json.decode(data)["next"]) if data else 0
                block = msgspec.json.encode({"version": 1, "next": first + count})
                await session.set(znodes.PRODUCER_ID_BLOCK, block, stat.version)
            except NoNode:
                await _create_if_missing(session, znodes.PRODUCER_ID_BLOCK)
            except BadVersion:
                continue
            else:
                return first


def _published(name: PartitionName, nodes: PartitionNodes | None) -> PublishedState | None:
    if nodes is None or nodes.topic.assignment.topic_id != name[1]:
        return None
    value = nodes.state
    return PublishedState(
        value.leader, value.leader_epoch, value.isr, value.eligible, nodes.version
    )


@contextmanager
def _unreadable_passed_over(path: str) -> Iterator[None]:
    try:
        yield
    except msgspec.MsgspecError as problem:
        logger.warning("node cannot be read", path=path, error=str(problem))


async def _watched(session: ZkSession, path: str, watch: Callable[[], None]) -> bytes | None:
    """Return a node's value, None if there is none; also its creation is watched for."""
    if await session.exists(path, watch=watch) is None:
        return None
    try:
        return (await session.get(path))[0]
    except NoNode:
        return None


async def _create_if_missing(session: ZkSession, path: str) -> None:
    try:
        await session.create(path)
    except NodeExists:
        return


def _nothing() -> None:
    """Stand in for a callback that is not known yet."""

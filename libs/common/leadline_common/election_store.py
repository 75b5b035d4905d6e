"""The nodes of a leader election in ZooKeeper, read and written over one session (rule R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import structlog

from leadline_common.election_epochs import decode_epoch
from leadline_common.leader_election import Claim, ElectionState, Leader, LeadershipTerm
from leadline_common.registered_versions import require_compatible_with_registered
from leadline_common.unreadable import UNREADABLE
from leadline_common.versions import SpokenVersions
from leadline_common.zk.client import Callback
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import BadVersion, MultiFailed, NodeExists, NoNode
from leadline_common.zk.ops import CreateOp, MultiResults, Op, SetOp, Stat
from leadline_common.zk.ports import OpenTransport, SessionState
from leadline_common.zk.session import ZkSession
from leadline_common.zk.transport import KazooTransport

logger = structlog.get_logger(__name__)

_FIRST_EPOCH: Final = b"0"


@dataclass(frozen=True, slots=True)
class ElectionNodes:
    """The paths of the two nodes; `decode` returns id, URL and internal URL from the leader node.

    It raises ValueError or MsgspecError for a value that is unreadable.
    """

    leader: str
    epoch: str
    decode: Callable[[bytes], tuple[int, str, str]]


class ElectionStore:
    """An `ElectionSession` over a `ZkSession`, the base of a service's store. `start` it first."""

    def __init__(
        self,
        nodes: ElectionNodes,
        credentials: ZkCredentials | None = None,
        open_transport: OpenTransport = KazooTransport,
    ) -> None:
        self.lost = asyncio.Event()
        self._nodes = nodes
        self._on_reconnected: list[Callback] = []
        self._session = ZkSession(
            on_state=self._on_state,
            on_reconnected=self._reconnected,
            credentials=credentials,
            open_transport=open_transport,
        )

    async def start(self, hosts: str, session_timeout_ms: int) -> None:
        """Open the session.

        Raises:
            NotConnected: no server answered.

        """
        await self._session.start(hosts, session_timeout_ms)

    async def close(self) -> None:
        """End the session, which deletes the leader node if this session created it."""
        await self._session.close()
        self.lost.set()

    @property
    def session_id(self) -> int:
        """The id of the session."""
        return self._session.session_id

    def is_connected(self) -> bool:
        """Tell whether the session is connected to a server."""
        return self._session.is_connected

    def lease_valid(self) -> bool:
        """Tell whether this process may still act as the leader (rule R10)."""
        return self._session.lease_valid()

    def on_reconnected(self, callback: Callback) -> None:
        """Add a callback for after each reconnection, which may have lost watches."""
        self._on_reconnected.append(callback)

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        """Send a multi. Multis of one store are applied in the order of submission."""
        return self._session.submit_multi(ops)

    async def create_epoch_node(self) -> None:
        """Create the epoch node if it is missing. Its parents must exist."""
        with suppress(NodeExists):
            await self._session.create(self._nodes.epoch, _FIRST_EPOCH)

    async def require_compatible(self, own: SpokenVersions) -> None:
        """Check that a service speaks a protocol version in common with all registered ones.

        Raises:
            IncompatibleRelease: it does not.

        """
        await require_compatible_with_registered(self._session, own)

    async def read_election(self, watch: Callback | None = None) -> ElectionState:
        """Read leader and term in one snapshot; call `watch` once when the leader node changes.

        Raises:
            NoNode: there is no epoch node.

        """
        nodes = self._nodes
        if watch is not None:
            await self._session.exists(nodes.leader, watch=watch)
        leader, epoch = await self._session.get_many([nodes.leader, nodes.epoch])
        if epoch is None:
            raise NoNode(nodes.epoch)
        data, stat = epoch
        term = LeadershipTerm(decode_epoch(nodes.epoch, data, stat), stat.version, stat.mtime)
        if leader is None:
            return ElectionState(None, term)
        process, url, internal_url = self._identity(leader[0])
        owner = leader[1].ephemeral_owner
        return ElectionState(Leader(process, url, term.epoch, owner, internal_url), term)

    async def claim(self, term: LeadershipTerm, claim: Claim) -> LeadershipTerm | None:
        """Become the leader after `term` in one multi; None if another one was faster."""
        won = LeadershipTerm(term.epoch + 1, term.epoch_version + 1)
        ops = [
            CreateOp(self._nodes.leader, claim.value, ephemeral=True),
            SetOp(self._nodes.epoch, str(won.epoch).encode(), term.epoch_version),
            *claim.ops,
        ]
        try:
            results = await self.submit(ops)
        except MultiFailed as failure:
            if isinstance(failure.error, NodeExists | BadVersion):
                return None
            raise
        written = next(result for result in results if isinstance(result, Stat))
        return replace(won, began_ms=written.mtime)

    def _identity(self, data: bytes) -> tuple[int, str, str]:
        try:
            identity = self._nodes.decode(data)
        except (msgspec.MsgspecError, ValueError) as problem:
            UNREADABLE.add(self._nodes.leader, problem)
            return -1, "", ""
        UNREADABLE.discard(self._nodes.leader)
        return identity

    def _reconnected(self) -> None:
        for callback in self._on_reconnected:
            callback()

    def _on_state(self, state: SessionState) -> None:
        logger.info("ZooKeeper session changed", session=f"{self.session_id:x}", state=state.name)
        if state is SessionState.LOST:
            self.lost.set()

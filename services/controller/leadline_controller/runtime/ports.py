"""What the runtime needs from outside, as narrow doors: ZooKeeper and the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from leadline_common.zk.ops import Op, OpResult
from leadline_common.znodes import ControllerRegistration
from leadline_controller.domain.cluster import Change, StateSet, TopicPartition
from leadline_controller.domain.facts import Holder, LiveBrokers, ReadNode, Term, Tombstone

Wake = Callable[[], None]
"""Told once of a change; a hint to read again (rule R8)."""


class Store(Protocol):
    """ZooKeeper, over one session.

    Every method may raise `ZkError`: ConnectionLoss means that the outcome of a
    write is unknown, SessionExpired that this store is over.
    `reads` and `writes` count requests on the wire.
    """

    reads: int
    writes: int

    @property
    def session_id(self) -> int:
        """The id of the session."""

    @property
    def lost(self) -> asyncio.Event:
        """Set once the session is over."""

    def is_connected(self) -> bool:
        """Tell whether a server is in touch."""

    def lease_valid(self) -> bool:
        """Tell whether this process may still act (rule R10)."""

    def on_reconnected(self, wake: Wake) -> None:
        """Have `wake` told after each reconnection: watches may have been missed."""

    async def close(self) -> None:
        """End the session, and with it `/controller` where this session holds it."""

    async def prepare(self, cluster_id: str) -> str:
        """Create what must exist before all else, and return the cluster's id."""

    async def holder(self, wake: Wake | None = None) -> Holder | None:
        """Return who is the active controller, or None."""

    async def claim(self, registration: ControllerRegistration, entry: bytes) -> Term | None:
        """Become the active controller in one multi; None when another one is, or was faster.

        `entry` is for the audit outbox.
        """

    async def term(self) -> Term:
        """Read the present controller epoch."""

    async def live_brokers(self, wake: Wake | None = None) -> LiveBrokers:
        """Read who is live."""

    async def watch_broker(self, broker_id: int, wake: Wake) -> bool:
        """Have `wake` told when a broker's registration goes; False when it has gone already."""

    async def brokers_ever(self) -> frozenset[int]:
        """Return the ids of all brokers that ever registered."""

    async def topic_names(self, wake: Wake | None = None) -> list[str]:
        """Return the names of all topics."""

    async def tombstones(self, wake: Wake | None = None) -> list[Tombstone]:
        """Return all pending deletions."""

    async def read_topics(
        self, names: Sequence[str], known: Mapping[str, int] | None = None
    ) -> list[Change]:
        """Read topic nodes and configs; a topic node whose last zxid is `known` is left out."""

    async def read_states(
        self, names: Sequence[TopicPartition], known: Sequence[int] | None = None
    ) -> list[StateSet]:
        """Read states. With `known` versions, in the order of `names`, only other ones."""

    async def read_nodes(self, paths: Sequence[str]) -> list[ReadNode | None]:
        """Read any nodes."""

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Read the children's names of any nodes."""

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[list[OpResult]]:
        """Send a multi; those of one store are applied in the order of submission."""


class BrokerGateway(Protocol):
    """Commands to brokers over HTTP."""

    async def post(self, url: str, path: str, body: bytes, timeout_ms: int) -> bytes:
        """Send a JSON body and return the answer's.

        Raises:
            LeadlineError: the broker refused, or (ConnectionLost) no answer came.

        """

    async def close(self) -> None:
        """Close all connections."""

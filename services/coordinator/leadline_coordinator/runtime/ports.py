"""What the runtime needs from outside, as narrow doors: ZooKeeper and the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.records import (
    Committed,
    Ends,
    GroupRecord,
    Holder,
    Partition,
    StoredGroup,
    Term,
    TopicFacts,
)

Wake = Callable[[], None]
"""Told once of a change; a hint to read again (rule R8)."""


class Store(Protocol):
    """ZooKeeper, over one session.

    Every method may raise `ZkError`: ConnectionLoss means that the outcome of a
    write is unknown, SessionExpired that this store is over. Writes raise TermEnded
    when the coordinator epoch is no longer that of their term (R16).
    """

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
        """End the session, and with it the office where this session holds it."""

    async def prepare(self) -> None:
        """Create what must exist before all else."""

    async def holder(self, wake: Wake | None = None) -> Holder | None:
        """Return who is the coordinator, or None."""

    async def claim(self, coordinator_id: int, url: str, wall_ms: int) -> Term | None:
        """Become the coordinator in one multi; None when another one is, or was faster."""

    async def term(self) -> Term:
        """Read the present epoch."""

    async def topic_names(self, wake: Wake | None = None) -> list[str]:
        """Return the names of all topics that are not being deleted."""

    async def read_topics(
        self, names: Sequence[str], watches: Mapping[str, Wake]
    ) -> dict[str, TopicFacts]:
        """Read topics, and have those in `watches` told of the next change."""

    async def brokers(self) -> list[str]:
        """Return the URLs of the live brokers."""

    async def load_groups(self) -> list[StoredGroup]:
        """Read all groups."""

    async def record(self, term: Term, group: GroupRecord) -> None:
        """Write what differs from what was written last, the group itself at last."""

    async def write_offsets(
        self,
        term: Term,
        group: str,
        offsets: Mapping[Partition, Committed],
        topic_ids: Mapping[str, str],
        told: Sequence[AuditEntry] = (),
    ) -> None:
        """Write committed offsets, and what the audit is told of that."""

    async def delete_offsets(
        self,
        term: Term,
        group: str,
        partitions: Collection[Partition],
        told: Sequence[AuditEntry] = (),
    ) -> None:
        """Delete committed offsets, and write what the audit is told of that."""

    async def delete_group(self, term: Term, group: str, told: Sequence[AuditEntry] = ()) -> None:
        """Delete a group with all that is recorded of it, and tell the audit."""

    async def tell(self, term: Term, entry: AuditEntry) -> None:
        """Write an audit entry alone."""


class BrokerGateway(Protocol):
    """Questions to brokers over HTTP."""

    async def offsets(
        self, brokers: Sequence[str], partitions: Collection[Partition], timestamp: int | None
    ) -> Mapping[Partition, Ends]:
        """Ask the leaders where partitions begin and end; of those that do not answer nothing.

        `brokers` are the URLs of live brokers; `timestamp` in Unix ms is looked up as well.
        """

    async def close(self) -> None:
        """Close all connections."""

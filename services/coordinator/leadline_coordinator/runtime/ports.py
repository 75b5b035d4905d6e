"""What the runtime needs from outside, as narrow doors: ZooKeeper and the brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from leadline_common.leader_election import ElectionSession, LeadershipTerm
from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.records import (
    Committed,
    Ends,
    GroupRecord,
    Partition,
    StoredGroup,
    TopicFacts,
)

Wake = Callable[[], None]
"""Told once of a change; a hint to read again (rule R8)."""


class CoordinatorStore(ElectionSession, Protocol):
    """ZooKeeper, over one session.

    Every method may raise `ZkError`: ConnectionLoss means that the outcome of a
    write is unknown, SessionExpired that this store is over. Writes raise TermEnded
    when the coordinator epoch is no longer that of their term (R16).
    """

    async def prepare(self) -> None:
        """Create what must exist before all else."""

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

    async def record(self, term: LeadershipTerm, group: GroupRecord) -> None:
        """Write what differs from what was written last, the group itself at last."""

    async def write_offsets(
        self,
        term: LeadershipTerm,
        group: str,
        offsets: Mapping[Partition, Committed],
        topic_ids: Mapping[str, str],
        told: Sequence[AuditEntry] = (),
    ) -> None:
        """Write committed offsets, and what the audit is told of that."""

    async def delete_offsets(
        self,
        term: LeadershipTerm,
        group: str,
        partitions: Collection[Partition],
        told: Sequence[AuditEntry] = (),
    ) -> None:
        """Delete committed offsets, and write what the audit is told of that."""

    async def delete_group(
        self, term: LeadershipTerm, group: str, told: Sequence[AuditEntry] = ()
    ) -> None:
        """Delete a group with all that is recorded of it, and tell the audit."""

    async def tell(self, term: LeadershipTerm, entry: AuditEntry) -> None:
        """Write an audit entry alone."""


class BrokerClient(Protocol):
    """Questions to brokers over HTTP."""

    async def offsets(
        self, brokers: Sequence[str], partitions: Collection[Partition], timestamp: int | None
    ) -> Mapping[Partition, Ends]:
        """Ask the leaders where partitions begin and end; of those that do not answer nothing.

        `brokers` are the URLs of live brokers; `timestamp` in Unix ms is looked up as well.
        """

    async def close(self) -> None:
        """Close all connections."""

"""What the runtime needs from outside: ZooKeeper and the brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from leadline_client.wire import TopicPartition
from leadline_common.identity import ServiceAddress
from leadline_common.leader_election import ElectionSession, LeadershipTerm
from leadline_common.zk.client import Callback
from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.records import (
    CommittedOffset,
    Ends,
    GroupRecord,
    StoredGroup,
    TopicState,
)


class GroupStore(Protocol):
    """The groups in ZooKeeper.

    Every method may raise `ZkError`: ConnectionLoss means that the outcome of a write is
    unknown, MultiFailed that a part of it may be written, SessionExpired that the session is
    over. Writes raise TermEnded if the coordinator epoch is no longer that of `term` (R16) and
    nothing was written. `audit` is written with the change.
    """

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The groups that may not be read, each with one of its nodes that may not."""

    async def load(self) -> list[StoredGroup]:
        """Read all groups, except those that may not be read."""

    async def load_again(self, group: str) -> StoredGroup | None:
        """Read a group that could not be read before; None if it still cannot, or is gone."""

    async def record(self, term: LeadershipTerm, record: GroupRecord) -> None:
        """Write what differs from the last write, the group's own node last."""

    async def write_offsets(
        self,
        term: LeadershipTerm,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | None],
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        """Write committed offsets, and delete those that are None."""

    async def delete_group(
        self, term: LeadershipTerm, group: str, audit: Sequence[AuditEntry] = ()
    ) -> None:
        """Delete a group with everything recorded about it; a group that is gone is no error.

        Nothing else may write to the group at the same time.
        """

    async def write_audit(self, term: LeadershipTerm, entry: AuditEntry) -> None:
        """Write an audit entry alone."""


class CoordinatorStore(ElectionSession, Protocol):
    """ZooKeeper over one session."""

    @property
    def groups(self) -> GroupStore:
        """The groups."""

    async def cluster_id(self) -> str:
        """Return the cluster's id, "" until the first controller has written it."""

    async def prepare(self) -> None:
        """Create the nodes that must exist."""

    async def topic_names(self, watch: Callback | None = None) -> list[str]:
        """Return the names of all topics that are not being deleted."""

    async def read_topics(
        self, names: Sequence[str], watches: Mapping[str, Callback]
    ) -> dict[str, TopicState]:
        """Read topics; call a topic's callback in `watches` once when it changes."""

    async def brokers(self) -> list[ServiceAddress]:
        """Return the live brokers."""


class BrokerClient(Protocol):
    """Requests to brokers over HTTP."""

    async def offsets(
        self,
        brokers: Sequence[ServiceAddress],
        topic_partitions: Collection[TopicPartition],
        timestamp: int | None,
    ) -> Mapping[TopicPartition, Ends]:
        """Ask the leaders where partitions begin and end; leave out those that do not answer.

        `brokers` are the live brokers. `timestamp`, in Unix ms, is looked up as well.
        """

    async def log_ends(
        self, brokers: Sequence[ServiceAddress], topic_partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Ask the leaders for log end offset and leader epoch; leave out who does not answer.

        `brokers` are the live brokers. It takes at most about two seconds.
        """

    async def close(self) -> None:
        """Close all connections."""

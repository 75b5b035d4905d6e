"""What the runtime needs from outside, as narrow doors: ZooKeeper and the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from leadline_client.wire import TopicPartition
from leadline_common.leader_election import ElectionSession
from leadline_common.zk.ops import MultiResults, Op
from leadline_controller.domain.cluster import Change, StateSet
from leadline_controller.domain.history import (
    AuditQuery,
    AuditRecord,
    FailureRecord,
    PartitionChange,
    PastCluster,
    ReaderPosition,
    TaskRecord,
)
from leadline_controller.domain.state import LiveBrokers, ReadNode, Tombstone

Wake = Callable[[], None]
"""Told once of a change; a hint to read again (rule R8)."""


class Store(ElectionSession, Protocol):
    """ZooKeeper, over one session.

    Every method may raise `ZkError`: ConnectionLoss means that the outcome of a
    write is unknown, SessionExpired that this store is over.
    `reads` and `writes` count requests on the wire.
    """

    reads: int
    writes: int

    async def prepare(self, cluster_id: str) -> str:
        """Create what must exist before all else, and return the cluster's id."""

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

    async def read_configs(self, wake: Wake) -> dict[str, ReadNode]:
        """Read the settings of the cluster and of brokers, by path; `wake` is told of changes."""

    async def intents(self, root: str, wake: Wake) -> dict[str, dict[int, bytes]]:
        """Return the orders for single partitions below `root`, by topic and partition.

        A topic's parent node without any order is there, empty. `wake` is told of new ones.
        """

    async def watched_node(self, path: str, wake: Wake) -> ReadNode | None:
        """Read a node that may come and go; `wake` is told when it does."""

    async def read_nodes(self, paths: Sequence[str]) -> list[ReadNode | None]:
        """Read any nodes."""

    async def list_children(self, path: str, wake: Wake) -> list[str] | None:
        """Read the children's names of a node, and have `wake` told once when they change."""

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Read the children's names of any nodes."""

    @property
    def outbox(self) -> Outbox:
        """The audit outbox."""

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        """Send a multi; those of one store are applied in the order of submission."""


class Outbox(Protocol):
    """The audit outbox in ZooKeeper, and how far each controller has read it."""

    async def extent(self) -> tuple[int, int]:
        """Return how many entries were ever written (the next id), and how many are there."""

    async def read(self, first: int, count: int) -> list[AuditRecord]:
        """Read up to `count` entries from the id `first` on, as far as they are there."""

    async def ids(self) -> list[int]:
        """Return the ids that are there, the lowest first."""

    async def watch(self, audit_id: int, wake: Wake) -> bool:
        """Have `wake` told when an entry is written; True when it is there already."""

    async def readers(self) -> list[ReaderPosition]:
        """Return how far every controller that ever read has come."""

    async def note(self, position: ReaderPosition) -> None:
        """Publish how far this controller has come."""


class History(Protocol):
    """The history in a database of this controller's own; it may raise anything."""

    async def open(self, cluster_id: str) -> None:
        """Open it for a cluster, whose id must be the one that it was begun with."""

    async def close(self) -> None:
        """Finish what is being written."""

    async def append(self, records: Sequence[AuditRecord]) -> None:
        """Store records, which come in order of their ids, in one transaction."""

    async def forget_before(self, time_ms: int) -> int:
        """Delete entries older than a Unix time in ms; return how many."""

    async def ids(self) -> tuple[int, int]:
        """Return the oldest and the newest stored id; both -1 when none is."""

    async def find(
        self, query: AuditQuery, *, cursor: int | None, newest_first: bool, limit: int
    ) -> list[AuditRecord]:
        """Return up to `limit` records that match, beyond the id `cursor` in the order wanted."""

    async def partition_history(
        self, topic: str, partition: int, *, after_id: int, limit: int
    ) -> list[PartitionChange]:
        """Return the changes of a partition beyond an id, oldest first."""

    async def failures(self, broker: int | None, limit: int) -> list[FailureRecord]:
        """Return the failures of a broker, or of all, newest first."""

    async def tasks(self, limit: int) -> list[TaskRecord]:
        """Return the tasks, newest first."""

    async def past(self, *, time_ms: int | None, zxid: int | None) -> PastCluster:
        """Rebuild the cluster as it was at a time or after a transaction; None means now."""


class PeerAuditClient(Protocol):
    """The histories of other controllers, over HTTP."""

    def export(self, url: str, first: int) -> AsyncIterator[list[AuditRecord]]:
        """Yield a controller's records from the id `first` on, some at a time.

        Raises:
            LeadlineError: the controller refused, or no answer came.

        """

    async def close(self) -> None:
        """Close all connections."""


class BrokerGateway(Protocol):
    """Commands to brokers over HTTP."""

    async def post(self, url: str, path: str, body: bytes, timeout_ms: int) -> bytes:
        """Send a JSON body and return the answer's.

        Raises:
            LeadlineError: the broker refused, or (ConnectionLost) no answer came.

        """

    async def close(self) -> None:
        """Close all connections."""

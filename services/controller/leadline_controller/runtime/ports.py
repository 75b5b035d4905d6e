"""The interfaces that the runtime needs: ZooKeeper, the audit history, and the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Protocol

from leadline_client.wire import TopicPartition
from leadline_common.identity import InternalAddress, ServiceAddress
from leadline_common.leader_election import ElectionSession
from leadline_common.settings.fields import INT64_MAX
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
from leadline_controller.domain.state import AuditedTransactions, LiveBrokers, ReadNode, Tombstone

Wake = Callable[[], None]
"""Called once when a watch fires: read again (rule R8)."""


class ControllerStore(ElectionSession, Protocol):
    """ZooKeeper, over one session.

    Every method may raise `ZkError`: ConnectionLoss means that the outcome of a
    write is unknown, SessionExpired that the session is over.
    `reads` and `writes` count requests on the wire.
    """

    reads: int
    writes: int

    async def prepare(self, cluster_id: str) -> str:
        """Create the persistent parent nodes, and return the cluster's id.

        Raises:
            UnfinishedRestore: a backup is being restored.

        """

    async def live_brokers(self, wake: Wake | None = None) -> LiveBrokers:
        """Read the live brokers."""

    async def watch_broker(self, broker_id: int, wake: Wake) -> bool:
        """Call `wake` when a broker's registration goes; False if it has gone already."""

    async def brokers_ever(self) -> frozenset[int]:
        """Return the ids of all brokers that ever registered."""

    async def topic_names(self, wake: Wake | None = None) -> list[str]:
        """Return the names of all topics."""

    async def tombstones(self, wake: Wake | None = None) -> list[Tombstone]:
        """Return all pending deletions."""

    async def read_topics(
        self, names: Sequence[str], known: Mapping[str, int] | None = None
    ) -> list[Change]:
        """Read topic nodes and configs, but no topic node whose last zxid is `known`."""

    async def read_states(
        self, topic_partitions: Sequence[TopicPartition], known: Sequence[int] | None = None
    ) -> list[StateSet]:
        """Read states; with `known` versions (in the same order), only those that differ."""

    async def read_configs(self, wake: Wake) -> dict[str, ReadNode]:
        """Read the configs of the cluster and of brokers, by path, and watch them."""

    async def intents(self, root: str, wake: Wake | None = None) -> dict[str, dict[str, bytes]]:
        """Return the nodes of the intents below `root`, by topic and by name.

        A topic's parent node without intents is included, empty.
        """

    async def watched_node(self, path: str, wake: Wake) -> ReadNode | None:
        """Read a node that may not exist, and call `wake` when it is created or deleted."""

    async def read_nodes(self, paths: Sequence[str]) -> list[ReadNode | None]:
        """Read nodes; None for each that does not exist."""

    async def list_children(self, path: str, wake: Wake) -> list[str] | None:
        """Read the names of a node's children, and call `wake` once when they change."""

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Read the names of several nodes' children; None for each node that does not exist."""

    @property
    def outbox(self) -> Outbox:
        """The audit outbox."""

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        """Send a multi; those of one store are applied in the order of submission."""


class Outbox(Protocol):
    """The audit outbox in ZooKeeper, and each controller's position in it."""

    async def sync(self) -> None:
        """Wait until reads see everything that ZooKeeper's leader has committed."""

    async def extent(self) -> tuple[int, int]:
        """Return the id of the next entry, and the number of entries present."""

    async def skip_to(self, first: int) -> bool:
        """Let no later entry get an id below `first`; return whether one would have."""

    async def read(self, first: int, count: int) -> list[AuditRecord]:
        """Read up to `count` entries from the id `first` on, if they are present."""

    async def audited(self, zxids: Collection[int]) -> AuditedTransactions:
        """Tell which of these transactions have an entry that is present."""

    async def ids(self) -> list[int]:
        """Return the ids of the entries present, the lowest first."""

    async def watch(self, audit_id: int, wake: Wake) -> bool:
        """Call `wake` when an entry is written; True if it is present already."""

    async def readers(self) -> list[ReaderPosition]:
        """Return the position of every controller that has ever read."""

    async def note(self, position: ReaderPosition) -> None:
        """Publish the position of this controller."""


class HistoryReads(Protocol):
    """Reads of the audit history; they may raise any exception."""

    async def ids(self) -> tuple[int, int]:
        """Return the oldest and the newest stored id; both -1 when none is."""

    async def find(
        self, query: AuditQuery, *, cursor: int | None, newest_first: bool, limit: int
    ) -> list[AuditRecord]:
        """Return up to `limit` matching records beyond the id `cursor`, in the given order."""

    async def partition_history(
        self, topic: str, partition: int, *, after_id: int, limit: int
    ) -> list[PartitionChange]:
        """Return the changes of a partition after an id, oldest first."""

    async def failures(self, broker: int | None, limit: int) -> list[FailureRecord]:
        """Return the failures of a broker, or of all, newest first."""

    async def tasks(self, limit: int) -> list[TaskRecord]:
        """Return the tasks, newest first."""

    async def past(self, *, time_ms: int | None, zxid: int | None) -> PastCluster:
        """Rebuild the cluster as of a time or a transaction; without both, as of now."""


class AuditHistory(HistoryReads, Protocol):
    """The audit history in this controller's own database; methods may raise any exception."""

    @property
    def is_durable(self) -> bool:
        """Whether it outlives this process."""

    async def open(self, cluster_id: str) -> None:
        """Open the database, which must belong to the cluster of this id."""

    async def close(self) -> bool:
        """Finish the current write, and close; return whether everything has ended."""

    async def check(self) -> None:
        """Raise an error if what is stored is not there any more: it must be opened again."""

    async def append(self, records: Sequence[AuditRecord]) -> None:
        """Store records, in the order of their ids, in one transaction."""

    async def forget_before(self, time_ms: int, now_ms: int = INT64_MAX) -> int:
        """Delete entries older than a Unix time in ms; return how many.

        It ends at the first younger one; times after `now_ms` do not count.
        """

    async def last_before_election(self) -> int:
        """Return the last entry's id before the latest election that no broker wrote, or -1."""


class PeerAuditClient(Protocol):
    """Reads the audit histories of other controllers, over HTTP."""

    def export(self, peer: ServiceAddress, first: int) -> AsyncIterator[list[AuditRecord]]:
        """Yield a controller's records from the id `first` on, in batches.

        Raises:
            LeadlineError: the controller refused, or no answer came.

        """


class CommandGateway(Protocol):
    """Sends requests to brokers over HTTP."""

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        """Send a JSON body, and return the body of the answer.

        Raises:
            LeadlineError: the broker refused, or (ConnectionLost) no answer came, or
                (Unreachable) nothing could be sent.

        """

    async def close(self) -> None:
        """Close all connections."""

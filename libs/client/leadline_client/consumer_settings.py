"""Settings of a consumer, and the listener that it calls during a rebalance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from leadline_client.channel import Assignor, Protocol
from leadline_client.errors import InvalidRequest
from leadline_client.membership import ConsumerSubscription
from leadline_client.wire import ReplicaChoice, TopicPartition

OffsetReset: TypeAlias = Literal["earliest", "latest", "error"]
Partitions: TypeAlias = tuple[TopicPartition, ...]
Topics: TypeAlias = Sequence[str] | Mapping[str, int]
"""Topics to subscribe to; with a mapping, each with the number of threads that read it."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of a consumer.

    `replica`: `any` reads from in-sync followers too, and from those in `rack` first.
    `offset_reset`: where to begin if there is no committed offset or it is out of range;
    with "error", polls raise OffsetOutOfRange until a seek. If an unclean election truncates
    the log below the position, a consumer with "earliest" or "latest" continues where the log
    differs from what it read, and logs a warning; otherwise polls raise LogTruncated until a
    seek. None is like "earliest", except that a truncation is raised. `auto_commit_ms`: the
    interval for commits of consumed offsets, which also happen when partitions are revoked and
    at the close; None leaves commits to the application. `max_poll_records`: the limit of one
    poll. `instance_id`: makes a static member, which keeps its partitions over a quick
    restart. `instance_secret`: at least 16 characters, the same after a restart; with it the
    restarted consumer replaces its predecessor at once, and nobody else can. Without it, the
    restarted consumer waits until the predecessor has certainly stopped.
    """

    offset_reset: OffsetReset | None = None
    auto_commit_ms: int | None = 5_000
    max_poll_records: int = 500
    assignor: Assignor = "range"
    protocol: Protocol = "eager"
    threads: int = 1
    instance_id: str | None = None
    instance_secret: str | None = field(default=None, repr=False)
    client_id: str = ""
    replica: ReplicaChoice = "leader"
    rack: str | None = None

    def subscription(self, topics: Topics | None, pattern: str | None) -> ConsumerSubscription:
        """Return the subscription of a consumer with these settings.

        Raises:
            InvalidRequest: `topics` are no names.

        """
        _check_names(topics or ())
        counts = tuple(sorted(topics.items())) if isinstance(topics, Mapping) else ()
        return ConsumerSubscription(
            None if topics is None else tuple(topics),
            pattern,
            self.threads,
            self.assignor,
            self.protocol,
            self.instance_id,
            self.client_id,
            counts,
            self.instance_secret,
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """A change of the assignment; the listener is called before `poll` returns more records."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: Partitions

    def without(self, partitions: Collection[TopicPartition]) -> Notice:
        """Return the notice without these partitions; what is lost stays in it."""
        if self.kind == "lost":
            return self
        return Notice(self.kind, tuple(one for one in self.partitions if one not in partitions))


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """Callbacks for changes of the assignment, called within `poll` or `close`.

    `on_assigned` is called before the first record of the partitions. `on_revoked` may
    still commit. `on_lost`: other members may own the partitions already. With an
    asynchronous consumer, each may be a coroutine function.
    """

    on_assigned: Callable[[Partitions], Awaitable[None] | None] | None = None
    on_revoked: Callable[[Partitions], Awaitable[None] | None] | None = None
    on_lost: Callable[[Partitions], Awaitable[None] | None] | None = None

    def call(self, notice: Notice) -> Awaitable[None] | None:
        """Call the callback for a notice; return what it returns."""
        callback = {
            "assigned": self.on_assigned,
            "revoked": self.on_revoked,
            "lost": self.on_lost,
        }[notice.kind]
        return None if callback is None else callback(notice.partitions)


def _check_names(topics: Topics) -> None:
    """Refuse what a caller without type checks may give, and no group could tell from names."""
    if isinstance(topics, str | bytes):
        raise InvalidRequest(f"topics: a list of names, not the single one {topics!r}")
    for name in topics:
        if not isinstance(name, str):
            raise InvalidRequest(f"topics: {name!r} is not a string")

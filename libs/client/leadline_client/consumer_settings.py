"""How a consumer takes part in its group, and what it calls when partitions come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from leadline_client.channel import Assignor, Protocol
from leadline_client.membership import Subscription, TopicPartition

OffsetReset: TypeAlias = Literal["earliest", "latest", "error"]
Partitions: TypeAlias = tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a consumer takes part in its group.

    `offset_reset`: where to begin without a committed offset, or when it is out of
    range; "error" raises OffsetOutOfRange until a seek. `auto_commit_ms`: how often to
    commit what is consumed, and also when partitions are given up and at the close;
    None leaves it to `commit`. `max_poll_records`: the most that one poll gives.
    `instance_id`: a static member, which keeps its partitions over a quick restart.
    """

    offset_reset: OffsetReset = "earliest"
    auto_commit_ms: int | None = 5_000
    max_poll_records: int = 500
    assignor: Assignor = "range"
    protocol: Protocol = "eager"
    threads: int = 1
    instance_id: str | None = None
    client_id: str = ""

    def subscription(self, topics: Sequence[str] | None, pattern: str | None) -> Subscription:
        """Return what a consumer with these settings asks of its group."""
        return Subscription(
            None if topics is None else tuple(topics),
            pattern,
            self.threads,
            self.assignor,
            self.protocol,
            self.instance_id,
            self.client_id,
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """A change that the application is told of before it gets any more records."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """What to call when partitions come and go, always within a poll or the close.

    `on_assigned` comes before their first record. `on_revoked` may still commit.
    `on_lost`: they are gone, and others may have them already. Each may be a
    coroutine function where the consumer is asynchronous.
    """

    on_assigned: Callable[[Partitions], Awaitable[None] | None] | None = None
    on_revoked: Callable[[Partitions], Awaitable[None] | None] | None = None
    on_lost: Callable[[Partitions], Awaitable[None] | None] | None = None

    def call(self, notice: Notice) -> Awaitable[None] | None:
        """Tell the application."""
        listener = {
            "assigned": self.on_assigned,
            "revoked": self.on_revoked,
            "lost": self.on_lost,
        }[notice.kind]
        return None if listener is None else listener(notice.partitions)

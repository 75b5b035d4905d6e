"""A consumer's membership in its group, as a state machine: frames and times in, effects out (R16).

It does no IO and reads no clock: `now_s` is an argument, in seconds of any monotonic clock. The
rules are those of `channel.py`. In short:

- A member consumes only after a Start on the current channel, and only during its lease. The lease
  counts from the sending of the last answer that the coordinator has acknowledged, so it ends
  before the coordinator may act on its end.
- The application gives up the partitions that a Stop names at its next poll. If it does not poll
  before the lease ends, less a margin, the member loses these partitions instead.
- Frames with lower numbers than the highest seen, and repeated frames, change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Final, TypeAlias

from leadline_client.channel import (
    Assignor,
    Error,
    Frame,
    FromConsumer,
    Hello,
    Partitions,
    Ping,
    Pong,
    Protocol,
    Start,
    Started,
    Stop,
    Stopped,
    Welcome,
    group_partitions,
    partition_pairs,
)
from leadline_client.errors import LeadlineError, Unauthorized, UnknownMember
from leadline_client.wire import LogPosition, TopicPartition

Numbers: TypeAlias = tuple[int, int, int]
"""Coordinator epoch, generation, attempt."""

_ANSWER_MARGIN: Final = 0.1
"""The share of the stop limit that is left for a late answer to arrive."""

_WELCOME_WITHIN_S: Final = 10.0
"""How long a coordinator may take to send its Welcome: many members may join at once."""


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    """What a consumer subscribes to: `topics`, a `pattern` (RE2, whole names), or both.

    `threads` is the number of threads that read a topic, unless `topic_threads` names it.
    `instance_id` makes it a static member, which keeps its partitions over a quick restart. With
    `instance_secret`, of at least 16 characters, nobody else can take its place.
    """

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    threads: int = 1
    assignor: Assignor = "range"
    protocol: Protocol = "eager"
    instance_id: str | None = None
    client_id: str = ""
    topic_threads: tuple[tuple[str, int], ...] = ()
    instance_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a frame."""

    frame: FromConsumer


@dataclass(frozen=True, slots=True)
class RevokePartitions:
    """Ask the application to give these partitions up; `on_revoked` reports that it has."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class LosePartitions:
    """Stop consuming these partitions at once, and commit nothing for them."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AssignPartitions:
    """Also consume `added`, each from its committed position (None: nothing is committed)."""

    added: tuple[tuple[TopicPartition, LogPosition | None], ...]
    threads: tuple[tuple[TopicPartition, ...], ...]
    topic_ids: tuple[tuple[str, str], ...] = ()
    """The id of each assigned topic, to which the committed offsets belong."""


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """Close the channel, if it is open, and find the coordinator again; `error` says why."""

    error: LeadlineError | None = None


@dataclass(frozen=True, slots=True)
class Warn:
    """Log a warning."""

    message: str


@dataclass(frozen=True, slots=True)
class FailConsumer:
    """The consumer cannot be a member, and connecting again would not help."""

    error: LeadlineError


Effect: TypeAlias = (
    SendFrame
    | RevokePartitions
    | LosePartitions
    | AssignPartitions
    | CloseChannel
    | Warn
    | FailConsumer
)


class MembershipManager:
    """The state of one consumer's membership in its group."""

    def __init__(self, subscription: ConsumerSubscription) -> None:
        self.subscription = subscription
        self.member: str | None = None
        self.secret: str | None = None
        """Proves to the coordinator that this is the member; never logged or shown."""
        self.owned: frozenset[TopicPartition] = frozenset()
        self._numbers: Numbers | None = None
        self._warned_of: int | None = None
        """The lower coordinator epoch that the last warning named."""
        self._channel: _Channel | None = None

    @property
    def coordinator_epoch(self) -> int | None:
        """The highest coordinator epoch that this member has seen."""
        return self._numbers[0] if self._numbers else None

    @property
    def generation(self) -> int | None:
        """The highest generation of the group that this member has seen."""
        return self._numbers[1] if self._numbers else None

    @property
    def settled(self) -> bool:
        """Whether a Start came on this channel, and no Stop waits for an answer."""
        channel = self._channel
        return channel is not None and channel.started and not channel.stops

    @property
    def stopping(self) -> bool:
        """Whether a Stop waits for its answer, and so for the application."""
        return self._channel is not None and bool(self._channel.stops)

    def may_consume(self, now_s: float) -> bool:
        """Tell whether the application may get records at `now_s`; ask again for each poll."""
        channel = self._channel
        return channel is not None and channel.started and now_s < channel.lease_until_s

    def deadline_s(self) -> float | None:
        """Return when to call `on_time` next, if nothing happens before."""
        if self._channel is None:
            return None
        return min(self._channel.stop_by_s, self._channel.silent_at_s)

    def hello(self, now_s: float) -> Hello:
        """Return the first frame of a new channel, to be sent at `now_s` or later."""
        self._channel = _Channel(now_s)
        return Hello(
            **asdict(self.subscription),
            member=self.member,
            secret=self.secret,
            owned=group_partitions(self.owned),
            coordinator_epoch=self.coordinator_epoch if self.member else None,
            generation=self.generation if self.member else None,
        )

    def on_frame(self, frame: Frame, now_s: float) -> list[Effect]:
        """Handle a frame of the current channel."""
        if self._channel is None:
            return []
        if isinstance(frame, Welcome):
            return self._on_welcome(self._channel, frame, now_s)
        if isinstance(frame, Error):
            return self._on_error(frame.to_exception())
        if isinstance(frame, Ping | Stop | Start):
            return self._on_request(self._channel, frame, now_s)
        return []

    def on_closed(self) -> None:
        """Handle the end of the channel: consuming stops, and owned partitions become claims."""
        self._channel = None

    def on_revoked(self, partitions: Iterable[tuple[str, int]], now_s: float) -> list[Effect]:
        """Handle that the application has given up partitions that a Stop named."""
        self.owned = self.owned.difference(partitions)
        channel = self._channel
        return [] if channel is None else self._answer_stops(channel, now_s)

    def on_time(self, now_s: float) -> list[Effect]:
        """Handle the deadlines that have passed."""
        channel = self._channel
        if channel is None:
            return []
        if now_s >= channel.silent_at_s:
            return [CloseChannel()]
        if now_s < channel.stop_by_s:
            return []
        late = frozenset(one for stop in channel.stops for one in self._owned_of(stop.partitions))
        return [*self._lose(late), *self._answer_stops(channel, now_s)]

    def end(self) -> list[Effect]:
        """End the membership: all partitions are lost."""
        self.member = self.secret = None
        self._channel = None
        return self._lose(self.owned)

    def _on_welcome(self, channel: _Channel, frame: Welcome, now_s: float) -> list[Effect]:
        numbers = (frame.coordinator_epoch, frame.generation, 0)
        if self._numbers is not None and numbers[0] < self._numbers[0]:
            return [*self._warn_of(numbers[0], self._numbers[0]), CloseChannel()]
        known, self.member = self.member, frame.member
        if known != frame.member:
            self.secret = frame.secret
        channel.welcome(frame, now_s)
        # Not the highest ones seen: the generations of a deleted group start again from the first.
        self._numbers = numbers
        return self._lose(self.owned) if known != frame.member else []

    def _warn_of(self, found: int, seen: int) -> list[Effect]:
        if found == self._warned_of:
            return []
        self._warned_of = found
        return [
            Warn(
                f"the coordinator has the epoch {found}, and this consumer has seen {seen}: it "
                "waits for a later one. If this lasts, ZooKeeper has lost data or was replaced by "
                "an older copy: start the consumer again"
            )
        ]

    def _on_error(self, error: LeadlineError) -> list[Effect]:
        if isinstance(error, UnknownMember):
            return [*self.end(), CloseChannel(error)]
        # The token may have a successor. If it has none, the next channel is not opened either.
        if error.retriable or isinstance(error, Unauthorized):
            return [CloseChannel(error)]
        return [*self.end(), FailConsumer(error)]

    def _on_request(
        self, channel: _Channel, frame: Ping | Stop | Start, now_s: float
    ) -> list[Effect]:
        if not channel.is_new(frame.id) or self._is_stale(frame):
            return []
        channel.received(frame.id, now_s)
        if isinstance(frame, Ping):
            channel.acknowledge(frame.acknowledged)
            return [channel.answer(Pong(**_answered(frame)), now_s)]
        if isinstance(frame, Stop):
            return self._on_stop(channel, frame, now_s)
        return self._on_start(channel, frame, now_s)

    def _is_stale(self, frame: Ping | Stop | Start) -> bool:
        """Tell whether a frame's numbers are lower than those seen; if not, remember them."""
        attempt = 0 if isinstance(frame, Ping) else frame.attempt
        numbers = (frame.coordinator_epoch, frame.generation, attempt)
        seen = self._numbers or numbers
        length = 2 if isinstance(frame, Ping) else 3
        if numbers[:length] < seen[:length]:
            return True
        self._numbers = max(numbers, seen)
        return False

    def _on_stop(self, channel: _Channel, frame: Stop, now_s: float) -> list[Effect]:
        channel.wait_for(frame)
        revoked = self._owned_of(frame.partitions)
        if not revoked:
            return self._answer_stops(channel, now_s)
        return [RevokePartitions(revoked), *self.on_time(now_s)]

    def _on_start(self, channel: _Channel, frame: Start, now_s: float) -> list[Effect]:
        assigned = frozenset(partition_pairs(frame.assignment))
        positions = {
            TopicPartition(topic, partition): LogPosition(offset, leader_epoch)
            for topic, partition, offset, leader_epoch in frame.offsets
            if offset is not None
        }
        lost = self._lose(self.owned - assigned)
        added = tuple(
            (topic_partition, positions.get(topic_partition))
            for topic_partition in sorted(assigned - self.owned)
        )
        threads = tuple(tuple(partition_pairs(thread)) for thread in frame.threads)
        self.owned = assigned
        channel.start()
        answer = Started(**_answered(frame), attempt=frame.attempt)
        assign = AssignPartitions(added, threads, frame.topic_ids)
        return [*lost, assign, channel.answer(answer, now_s)]

    def _answer_stops(self, channel: _Channel, now_s: float) -> list[Effect]:
        """Answer each Stop if the member owns none of its partitions any more."""
        done = [stop for stop in channel.stops if not self._owned_of(stop.partitions)]
        channel.drop(done)
        return [channel.answer(_stopped(stop), now_s) for stop in done]

    def _lose(self, partitions: frozenset[TopicPartition]) -> list[Effect]:
        self.owned -= partitions
        return [LosePartitions(tuple(sorted(partitions)))] if partitions else []

    def _owned_of(self, partitions: Partitions) -> tuple[TopicPartition, ...]:
        return tuple(one for one in partition_pairs(partitions) if one in self.owned)


def _answered(frame: Ping | Stop | Start) -> dict[str, int]:
    """Return what each answer repeats of its frame."""
    return {
        "id": frame.id,
        "coordinator_epoch": frame.coordinator_epoch,
        "generation": frame.generation,
    }


def _stopped(stop: Stop) -> Stopped:
    return Stopped(**_answered(stop), attempt=stop.attempt, partitions=stop.partitions)


_NEVER: Final = float("inf")


class _Channel:
    """One connection: the frames received and answered on it, and the end of the lease."""

    def __init__(self, now_s: float) -> None:
        self.started = False
        self.stops: list[Stop] = []
        self.stop_by_s = _NEVER
        self.lease_until_s = now_s
        self.silent_at_s = now_s + _WELCOME_WITHIN_S
        self._answered_s: dict[int, float] = {0: now_s}
        self._last_id = 0
        self._stop_limit_s = 0.0

    def welcome(self, frame: Welcome, now_s: float) -> None:
        self._stop_limit_s = frame.stop_limit_ms / 1000
        self.silent_at_s = now_s + self._stop_limit_s
        self.acknowledge(0)

    def is_new(self, frame_id: int) -> bool:
        return frame_id > self._last_id

    def received(self, frame_id: int, now_s: float) -> None:
        self._last_id = frame_id
        self.silent_at_s = now_s + self._stop_limit_s

    def acknowledge(self, answered: int) -> None:
        """Extend the lease: the coordinator has received the answer to frame `answered`."""
        sent_s = self._answered_s.get(answered)
        if sent_s is not None:
            self.lease_until_s = max(self.lease_until_s, sent_s + self._stop_limit_s)
            self._answered_s = {n: at for n, at in self._answered_s.items() if n >= answered}

    def answer(self, frame: Pong | Stopped | Started, now_s: float) -> SendFrame:
        self._answered_s[frame.id] = now_s
        return SendFrame(frame)

    def wait_for(self, stop: Stop) -> None:
        """Wait until the application gives up what `stop` names, at most until the lease ends."""
        margin_s = self._stop_limit_s * _ANSWER_MARGIN
        self.stop_by_s = min(self.stop_by_s, self.lease_until_s - margin_s)
        self.stops.append(stop)

    def drop(self, stops: Iterable[Stop]) -> None:
        """Stop waiting for the application to give these up."""
        for stop in stops:
            self.stops.remove(stop)
        if not self.stops:
            self.stop_by_s = _NEVER

    def start(self) -> None:
        """Begin to consume; a Start replaces each Stop that was not answered."""
        self.started = True
        self.drop(tuple(self.stops))

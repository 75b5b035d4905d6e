"""The members of a group, their sessions, and the partitions they may still be consuming (R16).

`held` is what a member may be consuming: from the moment a Start is sent until the member
answers a Stop, or until it has certainly stopped: it said so, its channel ended long
enough ago, or its lease ran out. No partition held by one member is started at another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.records import MemberCredentials, MemberSubscription

NO_GENERATION: Final = -1
FIRST_POLL_MS: Final = 10_000
"""How long a member that polls may take from its join to its first poll."""
_CLOCK_MARGIN: Final = 10
"""The part of a session timeout that is added for clocks that differ in speed."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Times in ms and counts, from the settings of the same names."""

    ping_interval_ms: int = 1_000
    stop_limit_ms: int = 3_000
    evict_limit_ms: int = 4_000
    reconnect_grace_ms: int = 1_000
    static_grace_ms: int = 30_000
    initial_delay_ms: int = 200
    answer_timeout_ms: int = 2_000
    max_size: int = 5_000
    max_retries: int = 4


@dataclass(slots=True, eq=False)
class MemberSession:
    """The state of one channel: frames sent and answers received.

    A member consumes until the stop limit has passed since it *sent* the answer that was
    last acknowledged to it. The coordinator counts the longer evict limit from when it
    *received* that answer. So once the evict limit has passed the member has certainly
    stopped, whatever was lost on the way.

    While a Stop is unanswered no later frame is acknowledged. So a member that answers
    pings but cannot stop is stopped by its own clock.
    """

    connection: int
    acknowledged_at_ms: int
    pinged_at_ms: int
    last_id: int = 0
    acknowledged: int = 0
    given: frozenset[TopicPartition] = frozenset()
    """What was started over this channel and not stopped since."""
    stops: dict[int, frozenset[TopicPartition]] = field(default_factory=dict)
    start_id: int = 0
    _answered: int = 0

    def next_id(self) -> int:
        """Return the id of the next frame."""
        self.last_id += 1
        return self.last_id

    def stop(self, partitions: frozenset[TopicPartition]) -> int:
        """Record that a Stop is sent, and return its id."""
        frame_id = self.next_id()
        self.stops[frame_id] = partitions
        return frame_id

    def start(self, assigned: frozenset[TopicPartition]) -> int:
        """Record that a Start is sent, and return its id. It replaces an earlier Start."""
        self.start_id = self.next_id()
        self.given = assigned
        return self.start_id

    def on_answer(self, frame_id: int, now_ms: int) -> None:
        """Apply the answer to a frame; a late or repeated answer changes nothing."""
        if not 0 < frame_id <= self.last_id:
            return
        self._answered = max(self._answered, frame_id)
        self._acknowledge(frame_id, now_ms)

    def on_stopped(self, frame_id: int, now_ms: int) -> frozenset[TopicPartition]:
        """Apply the answer to a Stop; return what has stopped, nothing for an unexpected answer."""
        stopped = self.stops.pop(frame_id, frozenset())
        self.given -= stopped
        self.on_answer(frame_id, now_ms)
        if stopped and not self.stops:
            self._acknowledge(self._answered, now_ms)
        return stopped

    def on_started(self, frame_id: int, now_ms: int) -> bool:
        """Apply the answer to a Start; tell whether it answers the latest one."""
        self.on_answer(frame_id, now_ms)
        is_latest = frame_id == self.start_id
        if is_latest:
            self.start_id = 0
        return is_latest

    def _acknowledge(self, frame_id: int, now_ms: int) -> None:
        held_back = self.stops and frame_id > min(self.stops)
        if frame_id > self.acknowledged and not held_back:
            self.acknowledged = frame_id
            self.acknowledged_at_ms = now_ms


@dataclass(slots=True, eq=False)
class PolledSession(MemberSession):
    """The session of a member that polls over HTTP. Its polls answer the frames.

    A poll shows by its cursor which answer the member has received, and so up to which frame it
    has given up what was revoked. A request that was delayed or repeated shows an older one, and
    acknowledges nothing new.

    The member consumes for at most `lease_ms` after it sent a poll that was answered. A poll
    extends that unless a Stop that an earlier answer told is still not acknowledged: so a member
    that never gives up a partition ends like one that is silent.
    """

    timeout_ms: int = 0
    told: int = 0
    """The last frame that an answer has told."""
    answers: int = 0
    claimed: frozenset[TopicPartition] = frozenset()
    """What the member has owned since an earlier session: its positions remain valid."""
    since: dict[TopicPartition, int] = field(default_factory=dict)
    """The frame from which on the member has owned each partition that it was given."""

    def start(self, assigned: frozenset[TopicPartition]) -> int:
        """Record a Start; see `MemberSession.start`."""
        frame_id = MemberSession.start(self, assigned)
        before = self.since
        self.since = {
            one: before.get(one, 0 if one in self.claimed else frame_id) for one in assigned
        }
        return frame_id

    def on_stopped(self, frame_id: int, now_ms: int) -> frozenset[TopicPartition]:
        """Apply the answer to a Stop; see `MemberSession.on_stopped`."""
        stopped = MemberSession.on_stopped(self, frame_id, now_ms)
        self.claimed -= stopped
        for one in stopped:
            self.since.pop(one, None)
        return stopped

    def on_poll(self, now_ms: int) -> None:
        """Count a poll, whose answer tells all frames up to now."""
        if not any(frame_id <= self.told for frame_id in self.stops):
            self.acknowledged_at_ms = now_ms
        self.told = self.last_id
        self.answers += 1

    def lease_ms(self, now_ms: int) -> int:
        """Return for how long the member may consume after it sent the poll of this moment."""
        return max(0, self.acknowledged_at_ms + self.timeout_ms - now_ms)

    def revoked(self) -> frozenset[TopicPartition]:
        """Return what the member has to give up."""
        return frozenset().union(*self.stops.values())


@dataclass(slots=True)
class GroupMember:
    """A member. `session` is None while it has no channel; then the two times apply.

    From `stopped_at_ms` on it has certainly stopped. At `remove_at_ms` it ceases to be a
    member. It may commit under `sent_generation`, that of the last Start sent to it, and
    under `confirmed_generation`, that of the last Start it answered.
    """

    id: str
    subscription: MemberSubscription
    session: MemberSession | None = None
    connection: int = 0
    """The latest connection that was its channel. Numbers rise in the order of opening."""
    held: set[TopicPartition] = field(default_factory=set)
    stopped_at_ms: int = 0
    remove_at_ms: int = 0
    sent_generation: int = NO_GENERATION
    confirmed_generation: int = NO_GENERATION
    started: bool = False
    """Whether it has answered a Start of its present assignment."""
    commit_sequences: dict[TopicPartition, int] = field(default_factory=dict)
    """The sequence number of its last commit of each partition."""
    credentials: MemberCredentials = field(default_factory=MemberCredentials)
    outdated: bool = False
    """Whether the last Start, answered or not, is not of its present or next assignment."""

    def outdate(self) -> None:
        """Require another Start; an answer to the last one may still come."""
        self.started, self.outdated = False, True

    def evict_limit_ms(self, limits: GroupLimits) -> int:
        """Return how long after its last acknowledged answer it has certainly stopped.

        For a member that polls, that is its session timeout with the margin for clocks.
        """
        timeout_ms = self.subscription.session_timeout_ms
        if timeout_ms is None:
            return limits.evict_limit_ms
        margin_ms = limits.evict_limit_ms - limits.stop_limit_ms
        return timeout_ms + max(margin_ms, timeout_ms // _CLOCK_MARGIN)

    def stopped_by_ms(self, limits: GroupLimits) -> int:
        """Return when it will certainly have stopped if it sends nothing more."""
        if self.session is None:
            return self.stopped_at_ms
        within_ms = self.evict_limit_ms(limits)
        if isinstance(self.session, PolledSession) and not self.session.answers:
            # It was told no assignment yet, so that it consumes nothing.
            within_ms = min(within_ms, FIRST_POLL_MS)
        return self.session.acknowledged_at_ms + within_ms


@dataclass(slots=True)
class PendingEviction:
    """What a former member may still be consuming, until `release_at_ms`."""

    held: set[TopicPartition]
    release_at_ms: int

"""A consumer's side of its group, as a state machine: frames and time in, effects out (R16).

No IO and no clock of its own: `now_s` is an argument, in seconds of any monotonic
clock. The rules are those of `channel.py`; what they come to here:

- A member consumes only after a Start on the present channel, and only while its
  lease lasts. The lease counts from the sending of the last answer that the
  coordinator has acknowledged, so it ends before the coordinator may act on it.
- What a Stop names is given up when the application comes back for more. It has as
  long as the lease, less a margin; then it loses these partitions instead.
- Frames with lower numbers than were seen, and repeated ones, change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
from leadline_client.errors import LeadlineError, UnknownMember

TopicPartition: TypeAlias = tuple[str, int]
Numbers: TypeAlias = tuple[int, int, int]
"""Coordinator epoch, generation, attempt."""

_ANSWER_MARGIN: Final = 0.1
"""The share of the stop limit that is left for a late answer to travel in."""

_WELCOME_WITHIN_S: Final = 10.0
"""How long a coordinator may take for its Welcome: many may be joining at once."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer asks of its group: exactly one of `topics` and `pattern` (RE2, whole names).

    `instance_id` makes it a static member: it keeps its part over a quick restart.
    """

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    threads: int = 1
    assignor: Assignor = "range"
    protocol: Protocol = "eager"
    instance_id: str | None = None
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame."""

    frame: FromConsumer


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Have the application give these up, and say so by `on_given_up`."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Lose:
    """These are gone: give nothing more of them, commit nothing for them."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """Consume `added` too, each from its committed offset (None: there is none yet)."""

    added: tuple[tuple[TopicPartition, int | None], ...]
    threads: tuple[tuple[TopicPartition, ...], ...]


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the channel, if it is not closed yet, and consult again; `error` says why."""

    error: LeadlineError | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The consumer cannot be a member; connecting again would not help."""

    error: LeadlineError


Effect: TypeAlias = Send | GiveUp | Lose | Take | HangUp | Fail


class Membership:
    """What one consumer is in its group."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.member: str | None = None
        self.owned: frozenset[TopicPartition] = frozenset()
        self._numbers: Numbers | None = None
        self._channel: _Channel | None = None

    @property
    def coordinator_epoch(self) -> int | None:
        """The highest coordinator epoch heard of."""
        return self._numbers[0] if self._numbers else None

    @property
    def generation(self) -> int | None:
        """The generation of the group, as far as this member has heard."""
        return self._numbers[1] if self._numbers else None

    @property
    def settled(self) -> bool:
        """Whether a Start came on this channel, and no Stop awaits its answer."""
        channel = self._channel
        return channel is not None and channel.started and not channel.stops

    @property
    def stopping(self) -> bool:
        """Whether a Stop awaits its answer, and so the application."""
        return self._channel is not None and bool(self._channel.stops)

    def may_consume(self, now_s: float) -> bool:
        """Tell whether records may be given to the application: to be asked each time."""
        channel = self._channel
        return channel is not None and channel.started and now_s < channel.lease_until_s

    def deadline_s(self) -> float | None:
        """Return when `on_time` is to be called next, if nothing happens before."""
        if self._channel is None:
            return None
        return min(self._channel.stop_by_s, self._channel.silent_at_s)

    def hello(self, now_s: float) -> Hello:
        """Return the first frame of a new channel, which is sent at `now_s` or later."""
        self._channel = _Channel(now_s)
        wish = self.subscription
        return Hello(
            member=self.member,
            instance_id=wish.instance_id,
            client_id=wish.client_id,
            topics=wish.topics,
            pattern=wish.pattern,
            threads=wish.threads,
            assignor=wish.assignor,
            protocol=wish.protocol,
            owned=group_partitions(self.owned),
            coordinator_epoch=self.coordinator_epoch if self.member else None,
            generation=self.generation if self.member else None,
        )

    def on_frame(self, frame: Frame, now_s: float) -> list[Effect]:
        """Take in a frame of the present channel."""
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
        """Take in that the channel is gone: nothing is consumed; what is owned becomes a claim."""
        self._channel = None

    def on_given_up(self, partitions: Iterable[TopicPartition], now_s: float) -> list[Effect]:
        """Take in that the application has given up partitions that a Stop named."""
        self.owned -= frozenset(partitions)
        channel = self._channel
        return [] if channel is None else self._answer_stops(channel, now_s)

    def on_time(self, now_s: float) -> list[Effect]:
        """Act on what is due."""
        channel = self._channel
        if channel is None:
            return []
        if now_s >= channel.silent_at_s:
            return [HangUp()]
        if now_s < channel.stop_by_s:
            return []
        late = frozenset(one for stop in channel.stops for one in self._held(stop.partitions))
        return [*self._lose(late), *self._answer_stops(channel, now_s)]

    def forget(self) -> list[Effect]:
        """Be no member any more: everything is lost."""
        self.member = None
        self._channel = None
        return self._lose(self.owned)

    def _on_welcome(self, channel: _Channel, frame: Welcome, now_s: float) -> list[Effect]:
        numbers = (frame.coordinator_epoch, frame.generation, 0)
        if self._numbers is not None and numbers[0] < self._numbers[0]:
            return [HangUp()]
        known, self.member = self.member, frame.member
        channel.welcome(frame, now_s)
        # Not the highest ones seen: a group that was deleted begins again with its generations.
        self._numbers = numbers
        return self._lose(self.owned) if known != frame.member else []

    def _on_error(self, error: LeadlineError) -> list[Effect]:
        if isinstance(error, UnknownMember):
            return [*self.forget(), HangUp(error)]
        if error.retriable:
            return [HangUp(error)]
        return [*self.forget(), Fail(error)]

    def _on_request(
        self, channel: _Channel, frame: Ping | Stop | Start, now_s: float
    ) -> list[Effect]:
        if not channel.is_new(frame.id) or self._overtaken(frame):
            return []
        channel.heard(frame.id, now_s)
        if isinstance(frame, Ping):
            channel.acknowledge(frame.acknowledged)
            answer = Pong(
                id=frame.id,
                coordinator_epoch=frame.coordinator_epoch,
                generation=frame.generation,
            )
            return [channel.answer(answer, now_s)]
        if isinstance(frame, Stop):
            return self._on_stop(channel, frame, now_s)
        return self._on_start(channel, frame, now_s)

    def _overtaken(self, frame: Ping | Stop | Start) -> bool:
        """Compare a frame's numbers with those seen; take note of them unless they are lower."""
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
        named = self._held(frame.partitions)
        if not named:
            return self._answer_stops(channel, now_s)
        return [GiveUp(named), *self.on_time(now_s)]

    def _on_start(self, channel: _Channel, frame: Start, now_s: float) -> list[Effect]:
        assigned = frozenset(partition_pairs(frame.assignment))
        offsets = {(topic, number): offset for topic, number, offset, _ in frame.offsets}
        lost = self._lose(self.owned - assigned)
        added = tuple((one, offsets.get(one)) for one in sorted(assigned - self.owned))
        threads = tuple(tuple(partition_pairs(part)) for part in frame.threads)
        self.owned = assigned
        channel.start()
        answer = Started(
            id=frame.id,
            coordinator_epoch=frame.coordinator_epoch,
            generation=frame.generation,
            attempt=frame.attempt,
        )
        return [*lost, Take(added, threads), channel.answer(answer, now_s)]

    def _answer_stops(self, channel: _Channel, now_s: float) -> list[Effect]:
        """Answer every Stop of whose partitions none is left."""
        done = [stop for stop in channel.stops if not self._held(stop.partitions)]
        channel.drop(done)
        return [channel.answer(_stopped(stop), now_s) for stop in done]

    def _lose(self, partitions: frozenset[TopicPartition]) -> list[Effect]:
        self.owned -= partitions
        return [Lose(tuple(sorted(partitions)))] if partitions else []

    def _held(self, named: Partitions) -> tuple[TopicPartition, ...]:
        return tuple(one for one in partition_pairs(named) if one in self.owned)


def _stopped(stop: Stop) -> Stopped:
    return Stopped(
        id=stop.id,
        coordinator_epoch=stop.coordinator_epoch,
        generation=stop.generation,
        attempt=stop.attempt,
        partitions=stop.partitions,
    )


_NEVER: Final = float("inf")


class _Channel:
    """One connection: what was heard and answered on it, and how long the lease lasts."""

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

    def heard(self, frame_id: int, now_s: float) -> None:
        self._last_id = frame_id
        self.silent_at_s = now_s + self._stop_limit_s

    def acknowledge(self, answered: int) -> None:
        """Extend the lease: the coordinator has the answer to `answered`."""
        sent_s = self._answered_s.get(answered)
        if sent_s is not None:
            self.lease_until_s = max(self.lease_until_s, sent_s + self._stop_limit_s)
            self._answered_s = {n: at for n, at in self._answered_s.items() if n >= answered}

    def answer(self, frame: Pong | Stopped | Started, now_s: float) -> Send:
        self._answered_s[frame.id] = now_s
        return Send(frame)

    def wait_for(self, stop: Stop) -> None:
        """Wait until the application has given up what `stop` names, but not for ever."""
        margin_s = self._stop_limit_s * _ANSWER_MARGIN
        self.stop_by_s = min(self.stop_by_s, self.lease_until_s - margin_s)
        self.stops.append(stop)

    def drop(self, stops: Iterable[Stop]) -> None:
        """Wait for these no longer."""
        for stop in stops:
            self.stops.remove(stop)
        if not self.stops:
            self.stop_by_s = _NEVER

    def start(self) -> None:
        """Consume; a Stop that was not answered is overtaken by this."""
        self.started = True
        self.drop(tuple(self.stops))

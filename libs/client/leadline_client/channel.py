"""The frames between a consumer and the coordinator (Consumer Coordinator design; rule R16).

The channel is the WebSocket `/v1/groups/{group}/channel`. Each frame is one text
message, a JSON object whose `type` names it. The consumer sends the first frame
(`Hello`), and then only answers: `Ping` with `Pong`, `Stop` with `Stopped`, `Start`
with `Started`. After `Welcome` the coordinator sends those three. It sends `Error`
last, and closes the channel.

Order. Every frame after `Welcome` carries (coordinator epoch, generation, attempt),
compared in this order. Both sides ignore a frame whose numbers are lower than the
highest that they have seen. `id` rises by one over the Ping, Stop and Start frames of
one channel, from 1; 0 stands for the Hello. Each answer repeats the id and the numbers
of the frame that it answers.

Lease. No partition ever has two owners, even if frames or connections are lost without
notice. `Ping.acknowledged` is the highest id whose answer the coordinator has counted;
the Welcome acknowledges 0. A member may consume until

    (its own monotonic time at which it SENT the answer to `acknowledged`) + stop_limit_ms

and then stops by itself. The coordinator assigns none of its partitions to others before
the evict limit, which is longer, has passed since it RECEIVED that answer. `acknowledged`
does not rise while a Stop waits for its answer, so a member that cannot answer is stopped
by its own clock when the coordinator stops waiting. A later acknowledgement may extend
a lease that ran out, as long as the channel is open.

A member whose channel ends stops consuming at once. It keeps its partitions as claims,
connects again, and lists them in `Hello.owned`; it consumes again after the next Start
on the new channel. If `Welcome.member` is not the member that the Hello named, the
coordinator had evicted that member, and all its partitions are lost. Claims that the
next Start does not assign are lost too.

`Start.assignment` is the member's whole assignment; owned partitions that the Start does
not list were revoked. `Start.offsets` lists the partitions that the member did not own on
this channel before, with the offset to begin at, unless the member claimed them.

This module is the whole protocol between consumer and coordinator. It needs only the
standard library, and it is pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

from leadline_client.errors import ERRORS_BY_CODE, InvalidRequest, LeadlineError, error_from_body
from leadline_client.wire import TopicPartition

CHANNEL_PATH: Final = "/v1/groups/{group}/channel"

Partitions: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions by topic: `[["orders", [0, 3]], …]`, both in order."""

StartOffset: TypeAlias = tuple[str, int, int | None, int | None]
"""Topic, partition, committed offset, leader epoch of the record before it; null if unknown."""

Assignor: TypeAlias = Literal["range", "roundrobin", "sticky"]
Protocol: TypeAlias = Literal["eager", "cooperative"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A consumer joins or rejoins; `member`, `owned`, epoch and generation are its last ones.

    It asks for `topics`, for all that match `pattern` (RE2, matched against whole names), or for
    both. It reads each topic with `threads` threads, or with as many as `topic_threads` says.
    `secret` is that of `member`, from its Welcome. `instance_secret`, of at least 16 characters, is
    chosen by whoever runs a static member: with it, a restarted consumer replaces the member.
    """

    type: ClassVar[str] = "hello"
    member: str | None = None
    instance_id: str | None = None
    client_id: str = ""
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    threads: int = 1
    assignor: Assignor = "range"
    protocol: Protocol = "eager"
    owned: Partitions = ()
    coordinator_epoch: int | None = None
    generation: int | None = None
    topic_threads: tuple[tuple[str, int], ...] = ()
    secret: str | None = field(default=None, repr=False)
    instance_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The consumer is a member. It answers pings within `stop_limit_ms`, or stops by itself.

    A new member gets its `secret`, which it keeps to itself: to reconnect, commit and leave, it
    needs the secret with its member id. The Welcome of a member that is back has none.
    """

    type: ClassVar[str] = "welcome"
    member: str
    coordinator_epoch: int
    generation: int
    ping_interval_ms: int
    stop_limit_ms: int
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Asks whether the member is alive; `acknowledged` extends its lease (see above)."""

    type: ClassVar[str] = "ping"
    id: int
    coordinator_epoch: int
    generation: int
    acknowledged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    """The answer to a Ping."""

    type: ClassVar[str] = "pong"
    id: int
    coordinator_epoch: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Revokes partitions: stop, commit, answer. Others are not affected; `reason` is for logs."""

    type: ClassVar[str] = "stop"
    id: int
    coordinator_epoch: int
    generation: int
    attempt: int
    partitions: Partitions
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The member has stopped consuming the partitions of the Stop, and committed offsets."""

    type: ClassVar[str] = "stopped"
    id: int
    coordinator_epoch: int
    generation: int
    attempt: int
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The member's whole assignment from now on, and where to begin with new partitions.

    `threads` divides the assignment among the member's threads, if it has more than one.
    `topic_ids` has the id of each assigned topic: the offsets belong to the topic with this id.
    """

    type: ClassVar[str] = "start"
    id: int
    coordinator_epoch: int
    generation: int
    attempt: int
    assignment: Partitions
    offsets: tuple[StartOffset, ...] = ()
    threads: tuple[Partitions, ...] = ()
    topic_ids: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The member consumes what the Start assigned."""

    type: ClassVar[str] = "started"
    id: int
    coordinator_epoch: int
    generation: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Why the coordinator closes the channel, as a code of the error tree."""

    type: ClassVar[str] = "error"
    error_code: int
    message: str
    retriable: bool = False

    @classmethod
    def of(cls, error: LeadlineError) -> Error:
        """Return the frame that carries an error."""
        return cls(error_code=error.code, message=error.message, retriable=error.retriable)

    def to_exception(self) -> LeadlineError:
        """Return the error that the frame carries."""
        known = ERRORS_BY_CODE.get(self.error_code)
        if known is not None:
            return known(self.message)
        return error_from_body(
            self.error_code // 100, {"error_code": self.error_code, "message": self.message}
        )


FromConsumer: TypeAlias = Hello | Pong | Stopped | Started
FromCoordinator: TypeAlias = Welcome | Ping | Stop | Start | Error
Frame: TypeAlias = FromConsumer | FromCoordinator

FROM_CONSUMER: Final = (Hello, Pong, Stopped, Started)
FROM_COORDINATOR: Final = (Welcome, Ping, Stop, Start, Error)
_KINDS: Final[dict[str, type[Frame]]] = {
    kind.type: kind for kind in (*FROM_CONSUMER, *FROM_COORDINATOR)
}
_MAX_SHOWN: Final = 100
_encode_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def group_partitions(partitions: Iterable[tuple[str, int]]) -> Partitions:
    """Group (topic, partition) pairs by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return tuple((topic, tuple(sorted(topics[topic]))) for topic in sorted(topics))


def partition_pairs(partitions: Partitions) -> Iterator[TopicPartition]:
    """Return the partitions of a grouped list one by one, in order."""
    return (TopicPartition(topic, number) for topic, numbers in partitions for number in numbers)


def encode(frame: Frame) -> str:
    """Return a frame as the text of one message."""
    members = {name: getattr(frame, name) for name in _READERS[frame.type]}
    return _encode_json({"type": frame.type} | members)


def decode(text: str | bytes) -> Frame:
    """Read one message; members that this release does not know are ignored.

    Raises:
        InvalidRequest: it is not a frame; the message names the invalid member.

    """
    try:
        members = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InvalidRequest(f"the frame is not JSON: {problem}") from None
    if not isinstance(members, dict):
        raise InvalidRequest("the frame is not a JSON object")
    kind = members.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidRequest(f"type: {_shown(kind)} is not a frame of this channel")
    known: dict[str, Any] = {}
    for name, read in _READERS[kind].items():
        if name in members:
            try:
                known[name] = read(members[name])
            except (TypeError, ValueError) as problem:
                raise InvalidRequest(f"{name}: {problem}") from None
            except RecursionError:
                raise InvalidRequest(f"{name}: it is nested too deeply") from None
    try:
        return _KINDS[kind](**known)
    except TypeError:
        missing = [one.name for one in fields(_KINDS[kind]) if one.name not in members]
        raise InvalidRequest(f"{kind} lacks {', '.join(missing)}") from None


# -- Readers for the type hints of frames --------------------------------------------


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return what checks and converts a decoded JSON value to the type of `hint`."""
    options = get_args(hint)
    origin = get_origin(hint)
    if origin is UnionType:
        (inner,) = (option for option in options if option is not NoneType)
        return partial(_optional, _reader(inner))
    if origin is Literal:
        return partial(_one_of, options)
    if origin is tuple and options[-1] is Ellipsis:
        return partial(_list_of, _reader(options[0]))
    if origin is tuple:
        return partial(_row_of, tuple(_reader(option) for option in options))
    return partial(_plain, hint)


def _optional(inner: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else inner(value)


def _one_of(options: tuple[str, ...], value: Any) -> Any:
    if value not in options:
        raise ValueError(f"{_shown(value)} is not one of {', '.join(options)}")
    return value


def _list_of(inner: Callable[[Any], Any], value: Any) -> Any:
    return tuple(inner(one) for one in _plain(list, value))


def _row_of(readers: tuple[Callable[[Any], Any], ...], value: Any) -> Any:
    if len(_plain(list, value)) != len(readers):
        raise ValueError(f"expected a row of {len(readers)}")
    return tuple(read(one) for read, one in zip(readers, value, strict=True))


def _plain(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:  # Not isinstance: in JSON, true is not an integer.
        raise TypeError(f"{_shown(value)} is not of type {kind.__name__}")
    return value


def _shown(value: Any) -> str:
    """Return a value as a message shows it: a stranger may send any, of any size."""
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"


_READERS: Final[dict[str, dict[str, Callable[[Any], Any]]]] = {
    kind.type: {one.name: _reader(get_type_hints(kind)[one.name]) for one in fields(kind)}
    for kind in _KINDS.values()
}
"""The members of each frame, in order, and what reads each of them."""

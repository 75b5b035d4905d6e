"""Subscriptions: what a consumer may ask for, which topics that is, and whom a topic concerns.

Patterns are RE2 expressions, which match in time linear in the text. So no consumer can
block the coordinator, and with it all groups, by its pattern. That time also grows with
the size of the compiled pattern, which is limited, and with capturing groups, which are
switched off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import re2

from leadline_client.channel import Assignor, Hello, Protocol
from leadline_client.errors import InvalidRequest, InvalidSubscription
from leadline_common.group_polls import OffsetReset
from leadline_coordinator.domain.records import MemberSubscription

INTERNAL_PREFIX: Final = "__"
"""Topics with this prefix are internal; no pattern matches them."""

_MAX_TOPICS: Final = 10_000
_MAX_TOPICS_BYTES: Final = 100_000
"""Of all names together, in UTF-8: a member has to fit into a znode, with room to spare."""
_MAX_THREADS: Final = 1_000
_MAX_NAME: Final = 255
_STEPS: Final = frozenset({".", ".."})
_MIN_SECRET: Final = 16
_MAX_PATTERN: Final = 1_000
_MAX_PROGRAM: Final = 2_000
"""Instructions; a match then takes less than 0.1 ms, even if little of it fits the memory."""
_MAX_MEMORY: Final = 1 << 20


# -- checks --------------------------------------------------------------------


def check_group_name(name: str) -> None:
    """Refuse a name that no group can have.

    Raises:
        InvalidRequest: it is empty, too long, or not printable, or paths cannot name it.

    """
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"group: a name has 1 to {_MAX_NAME} printable characters")
    # Browsers, curl and proxies take these out of a path, even if they are encoded.
    if name in _STEPS or "/" in name:
        raise InvalidRequest("group: a name has no '/', and is not '.' or '..'")


@dataclass(frozen=True, slots=True)
class PollingTerms:
    """What a consumer that polls over HTTP joins with."""

    session_timeout_ms: int
    offset_reset: OffsetReset


def subscription_of(hello: Hello, polling: PollingTerms | None = None) -> MemberSubscription:
    """Return the subscription that a consumer asks for.

    Raises:
        InvalidSubscription: it is not valid; the message names the member of Hello.

    """
    if hello.topics is None and hello.pattern is None:
        raise InvalidSubscription("topics: give topics, a pattern, or both")
    _check_texts(hello)
    if hello.pattern is not None:
        check_pattern(hello.pattern)
    if hello.topics is not None and not 0 < len(hello.topics) <= _MAX_TOPICS:
        raise InvalidSubscription(f"topics: must name 1 to {_MAX_TOPICS} topics")
    if sum(len(topic.encode()) for topic in hello.topics or ()) > _MAX_TOPICS_BYTES:
        raise InvalidSubscription("topics: too many; subscribe to a pattern instead")
    _check_threads(hello)
    if hello.instance_id is not None and not 0 < len(hello.instance_id) <= _MAX_NAME:
        raise InvalidSubscription(f"instance_id: must have 1 to {_MAX_NAME} characters")
    if hello.instance_secret is not None:
        _check_instance_secret(hello)
    if len(hello.client_id) > _MAX_NAME:
        raise InvalidSubscription(f"client_id: must have at most {_MAX_NAME} characters")
    return MemberSubscription(
        client_id=hello.client_id,
        instance_id=hello.instance_id,
        topics=None if hello.topics is None else tuple(sorted(set(hello.topics))),
        pattern=hello.pattern,
        threads=hello.threads,
        topic_threads=tuple(sorted(hello.topic_threads)),
        session_timeout_ms=None if polling is None else polling.session_timeout_ms,
        offset_reset="earliest" if polling is None else polling.offset_reset,
    )


def check_session_timeout(timeout_ms: int, least_ms: int, most_ms: int) -> None:
    """Refuse a session timeout that is out of bounds.

    Raises:
        InvalidSubscription: it is.

    """
    if not least_ms <= timeout_ms <= most_ms:
        raise InvalidSubscription(f"session_timeout_ms: must be from {least_ms} to {most_ms}")


def _check_instance_secret(hello: Hello) -> None:
    if hello.instance_id is None:
        raise InvalidSubscription("instance_secret: requires instance_id")
    if not _MIN_SECRET <= len(hello.instance_secret or "") <= _MAX_NAME:
        raise InvalidSubscription(
            f"instance_secret: must have {_MIN_SECRET} to {_MAX_NAME} characters"
        )


def _check_threads(hello: Hello) -> None:
    if not 0 < hello.threads <= _MAX_THREADS:
        raise InvalidSubscription(f"threads: must be 1 to {_MAX_THREADS}")
    counts = dict(hello.topic_threads)
    unknown = sorted(counts.keys() - set(hello.topics or ()))
    if unknown:
        raise InvalidSubscription(f"topic_threads: {unknown[0]!r} is not one of topics")
    if len(counts) != len(hello.topic_threads):
        raise InvalidSubscription("topic_threads: names a topic twice")
    if not all(0 < count <= _MAX_THREADS for count in counts.values()):
        raise InvalidSubscription(f"topic_threads: counts must be 1 to {_MAX_THREADS}")


def _check_texts(hello: Hello) -> None:
    """Refuse text that cannot be encoded, such as the lone surrogates that JSON allows."""
    texts = {
        "client_id": (hello.client_id,),
        "instance_id": (hello.instance_id or "",),
        "instance_secret": (hello.instance_secret or "",),
        "pattern": (hello.pattern or "",),
        "topics": hello.topics or (),
    }
    for name, values in texts.items():
        if not all(value.isprintable() for value in values):
            raise InvalidSubscription(f"{name}: must be of printable characters")


def check_fits(hello: Hello, assignor: Assignor, protocol: Protocol) -> None:
    """Refuse a consumer whose assignor or protocol differs from that of its group's members.

    Raises:
        InvalidSubscription: the assignor or the protocol differs from the group's.

    """
    for name, asked, present in (
        ("assignor", hello.assignor, assignor),
        ("protocol", hello.protocol, protocol),
    ):
        if asked != present:
            raise InvalidSubscription(
                f"{name}: the group's is {present}, not {asked}; "
                "to change it, stop the group's other members first"
            )


# -- patterns ------------------------------------------------------------------


def check_pattern(pattern: str) -> None:
    """Refuse an invalid pattern.

    Raises:
        InvalidSubscription: it is not valid RE2 syntax, or too large.

    """
    if not 0 < len(pattern) <= _MAX_PATTERN:
        raise InvalidSubscription(f"pattern: must have 1 to {_MAX_PATTERN} characters")
    try:
        program = _compiled(pattern).programsize
    except re2.error as problem:
        reason = problem.args[0].decode() if isinstance(problem.args[0], bytes) else str(problem)
        raise InvalidSubscription(f"pattern: not valid RE2 syntax: {reason}") from None
    if program > _MAX_PROGRAM:
        raise InvalidSubscription("pattern: too large once its repetitions are expanded")


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MAX_MEMORY
    return re2.compile(pattern, options=options)


@lru_cache(maxsize=1 << 17)
def matches(pattern: str, topic: str) -> bool:
    """Tell whether a pattern matches the whole name of a topic that is not internal."""
    return not topic.startswith(INTERNAL_PREFIX) and _compiled(pattern).fullmatch(topic) is not None


def subscribed_topics(subscription: MemberSubscription, topics: Iterable[str]) -> tuple[str, ...]:
    """Return those of `topics` that a subscription asks for, by name."""
    pattern, named = subscription.pattern, frozenset(subscription.topics or ())
    if pattern is None:
        return tuple(sorted(named.intersection(topics)))
    return tuple(sorted(topic for topic in topics if topic in named or matches(pattern, topic)))


def resolve(
    subscriptions: Mapping[str, MemberSubscription], topics: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Return the existing topics that each member asks for.

    Members of a group mostly ask for the same, so each distinct request is resolved once.
    """
    known: dict[tuple[tuple[str, ...] | None, str | None], tuple[str, ...]] = {}
    resolved = {}
    for member, subscription in subscriptions.items():
        wish = (subscription.topics, subscription.pattern)
        if wish not in known:
            known[wish] = subscribed_topics(subscription, topics)
        resolved[member] = known[wish]
    return resolved


# -- by topic ------------------------------------------------------------------


class TopicSubscriptionIndex:
    """The groups that a topic concerns, by topic and by pattern (Consumer Coordinator design).

    The document calls the two maps consumerGroupsPerTopic and groupsWithWildcardTopics.
    """

    def __init__(self) -> None:
        self.consumer_groups_per_topic: dict[str, set[str]] = {}
        self.groups_with_wildcard_topics: dict[str, set[str]] = {}
        self._topics_of: dict[str, set[str]] = {}

    def update(self, group: str, subscriptions: Iterable[MemberSubscription]) -> bool:
        """Replace what a group subscribes to; no subscriptions remove the group.

        Returns:
            Whether anything changed.

        """
        wanted = list(subscriptions)
        before = self._topics_of.get(group), self.groups_with_wildcard_topics.get(group)
        topics = {topic for one in wanted for topic in one.topics or ()}
        for topic in self._topics_of.pop(group, set()) - topics:
            groups = self.consumer_groups_per_topic[topic]
            groups.discard(group)
            if not groups:
                del self.consumer_groups_per_topic[topic]
        if topics:
            self._topics_of[group] = topics
        for topic in topics:
            self.consumer_groups_per_topic.setdefault(topic, set()).add(group)
        patterns = {one.pattern for one in wanted if one.pattern is not None}
        self.groups_with_wildcard_topics.pop(group, None)
        if patterns:
            self.groups_with_wildcard_topics[group] = patterns
        return before != (topics or None, patterns or None)

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that subscribe to a topic, by name or by pattern."""
        by_pattern = {
            group
            for group, patterns in self.groups_with_wildcard_topics.items()
            if any(matches(pattern, topic) for pattern in patterns)
        }
        return by_pattern | self.consumer_groups_per_topic.get(topic, set())

"""Wildcard subscriptions: which topics a pattern stands for.

The engine is RE2: it takes time linear in the text whatever the pattern, so that no
consumer can hold up the coordinator, and all groups with it, by what it subscribes to.
As the time also grows with the pattern's program, and with the groups that it is to
remember, the one has a bound and the other is not asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import re2

from leadline_client.errors import InvalidSubscription
from leadline_coordinator.domain.records import Subscription

INTERNAL_PREFIX: Final = "__"
"""Topics whose names begin so are the system's own; a pattern never stands for them."""

_MAX_PATTERN: Final = 1_000
_MAX_PROGRAM: Final = 2_000
"""Instructions; a match then takes less than 0.1 ms, however little of it fits the memory."""
_MAX_MEMORY: Final = 1 << 20


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MAX_MEMORY
    return re2.compile(pattern, options=options)


def check_pattern(pattern: str) -> None:
    """Refuse what is no pattern.

    Raises:
        InvalidSubscription: it is not RE2's syntax, or too large.

    """
    if not 0 < len(pattern) <= _MAX_PATTERN:
        raise InvalidSubscription(f"pattern: must have 1 to {_MAX_PATTERN} characters")
    try:
        program = _compiled(pattern).programsize
    except re2.error as problem:
        reason = problem.args[0].decode() if isinstance(problem.args[0], bytes) else str(problem)
        raise InvalidSubscription(f"pattern: not RE2's syntax: {reason}") from None
    if program > _MAX_PROGRAM:
        raise InvalidSubscription("pattern: too large when its repetitions are written out")


@lru_cache(maxsize=1 << 17)
def matches(pattern: str, topic: str) -> bool:
    """Tell whether a pattern stands for a topic: it has to match the whole name."""
    return not topic.startswith(INTERNAL_PREFIX) and _compiled(pattern).fullmatch(topic) is not None


def interested_topics(subscription: Subscription, topics: Iterable[str]) -> tuple[str, ...]:
    """Return those of `topics` that a subscription is about, in order of names."""
    if subscription.pattern is not None:
        pattern = subscription.pattern
        return tuple(sorted(topic for topic in topics if matches(pattern, topic)))
    wanted = set(subscription.topics or ())
    return tuple(sorted(wanted.intersection(topics)))


def resolve(
    subscriptions: Mapping[str, Subscription], topics: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Return the existing topics that each member is interested in.

    Members of one group mostly ask for the same: what they ask for is looked up once.
    """
    known: dict[tuple[tuple[str, ...] | None, str | None], tuple[str, ...]] = {}
    resolved = {}
    for member, subscription in subscriptions.items():
        wish = (subscription.topics, subscription.pattern)
        if wish not in known:
            known[wish] = interested_topics(subscription, topics)
        resolved[member] = known[wish]
    return resolved

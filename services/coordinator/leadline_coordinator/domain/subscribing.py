"""What a consumer may ask for when it joins."""

from __future__ import annotations

from typing import Final

from leadline_client.channel import Assignor, Hello, Protocol
from leadline_client.errors import InvalidRequest, InvalidSubscription
from leadline_coordinator.domain.patterns import check_pattern
from leadline_coordinator.domain.records import Subscription

_MAX_TOPICS: Final = 10_000
_MAX_TOPICS_CHARACTERS: Final = 100_000
"""Of all names together: a member has to fit into a znode, with room to spare."""
_MAX_THREADS: Final = 1_000
_MAX_NAME: Final = 255


def check_group_name(name: str) -> None:
    """Refuse a name that no group can have.

    Raises:
        InvalidRequest: it is empty, too long, or cannot be printed.

    """
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"group: a name has 1 to {_MAX_NAME} printable characters")


def subscription_of(hello: Hello) -> Subscription:
    """Return what a consumer asks for.

    Raises:
        InvalidSubscription: it makes no sense; the message names the member of Hello.

    """
    if (hello.topics is None) == (hello.pattern is None):
        raise InvalidSubscription("topics: give either topics or a pattern")
    _check_texts(hello)
    if hello.pattern is not None:
        check_pattern(hello.pattern)
    if hello.topics is not None and not 0 < len(hello.topics) <= _MAX_TOPICS:
        raise InvalidSubscription(f"topics: 1 to {_MAX_TOPICS} topics can be asked for")
    if sum(map(len, hello.topics or ())) > _MAX_TOPICS_CHARACTERS:
        raise InvalidSubscription("topics: too many; subscribe to a pattern instead")
    if not 0 < hello.threads <= _MAX_THREADS:
        raise InvalidSubscription(f"threads: must be 1 to {_MAX_THREADS}")
    if hello.instance_id is not None and not 0 < len(hello.instance_id) <= _MAX_NAME:
        raise InvalidSubscription(f"instance_id: must have 1 to {_MAX_NAME} characters")
    if len(hello.client_id) > _MAX_NAME:
        raise InvalidSubscription(f"client_id: must have at most {_MAX_NAME} characters")
    return Subscription(
        client_id=hello.client_id,
        instance_id=hello.instance_id,
        topics=None if hello.topics is None else tuple(sorted(set(hello.topics))),
        pattern=hello.pattern,
        threads=hello.threads,
    )


def _check_texts(hello: Hello) -> None:
    """Refuse what cannot be written down, as half a character cannot that JSON can spell."""
    texts = {
        "client_id": (hello.client_id,),
        "instance_id": (hello.instance_id or "",),
        "pattern": (hello.pattern or "",),
        "topics": hello.topics or (),
    }
    for name, values in texts.items():
        if not all(value.isprintable() for value in values):
            raise InvalidSubscription(f"{name}: must be of printable characters")


def check_fits(hello: Hello, assignor: Assignor, protocol: Protocol) -> None:
    """Refuse a consumer that wants its group assigned in another way than its other members.

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

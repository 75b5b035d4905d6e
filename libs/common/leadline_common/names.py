"""Which names may become part of a path: of a znode and of a directory. Pure."""

from __future__ import annotations

import re
from typing import Final

MAX_TOPIC_NAME: Final = 249

_TOPIC: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_TOPIC_NAME}}}")
_RESERVED: Final = frozenset({".", "..", "-"})
_TOPIC_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def is_topic_name(name: str) -> bool:
    """Return whether a topic may have this name."""
    return _TOPIC.fullmatch(name) is not None and name not in _RESERVED


def is_topic_id(topic_id: str) -> bool:
    """Return whether a topic may have this id; the controller makes ids of 32 hex digits."""
    return _TOPIC_ID.fullmatch(topic_id) is not None

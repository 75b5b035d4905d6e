"""What a group asks to be done: frames to send, channels to end, news to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from leadline_client.channel import FromCoordinator
from leadline_client.errors import LeadlineError


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame over a connection."""

    connection: int
    frame: FromCoordinator


@dataclass(frozen=True, slots=True)
class Close:
    """End a connection, saying why where there is something to say."""

    connection: int
    error: LeadlineError | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """A member is no longer one."""

    member: str
    reason: str


Effect: TypeAlias = Send | Close | Removed

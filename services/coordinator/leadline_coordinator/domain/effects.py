"""What a group asks its manager to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from leadline_client.channel import FromCoordinator


@dataclass(frozen=True, slots=True)
class SendToMember:
    """Send a frame over a connection."""

    connection: int
    frame: FromCoordinator


@dataclass(frozen=True, slots=True)
class CloseMemberChannel:
    """Close a connection once the frames before this are sent."""

    connection: int


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """A member is gone. `reason` is a label of the evictions metric, or `left`."""

    member: str
    reason: str


GroupEffect: TypeAlias = SendToMember | CloseMemberChannel | MemberRemoved

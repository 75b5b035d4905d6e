"""Consumers of a group that poll over HTTP: what a broker asks the coordinator for each poll.

A poll goes to any broker. The broker synchronizes the consumer's session with the coordinator,
reads the records, and puts the positions after them into the cursor of its answer. Pure: no IO.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from leadline_client.errors import InvalidRequest
from leadline_common.group_commits import CommittedRow, Name, Number, Offset

SYNC_PATH: Final = "/v1/groups/{group}/consumers/{member}/sync"
MAX_SYNC_BYTES: Final = 8 * 1024 * 1024
MAX_CURSOR: Final = 4 * 1024 * 1024
"""Characters of a cursor, which has one position for each partition of its consumer."""
MAX_WATCH_MS: Final = 30_000

OffsetReset: TypeAlias = Literal["earliest", "latest"]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Secret = Annotated[str, msgspec.Meta(max_length=255)]
CursorText = Annotated[str, msgspec.Meta(max_length=MAX_CURSOR)]


class SessionPoint(msgspec.Struct, array_like=True, frozen=True):
    """One answer of the coordinator to a consumer.

    `epoch` and `connection` identify the session, `answer` counts its answers, and `frame` is the
    last change of the assignment that the answer told.
    """

    epoch: Count
    connection: Count
    frame: Count
    answer: Count


class Position(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The offset of the next record, and the leader epoch of the record before it, if known."""

    offset: Offset
    leader_epoch: Count | None = None


class TopicPositions(msgspec.Struct, array_like=True, frozen=True):
    """The positions in the partitions of the topic with this id."""

    topic_id: str
    partitions: dict[Number, Position]


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """What a consumer has received: an answer, and the positions after its records."""

    point: SessionPoint
    generation: int
    topics: dict[Name, TopicPositions]

    def position(self, topic: str, topic_id: str, partition: int) -> Position | None:
        """Return the position in a partition of the topic with this id, if there is one."""
        found = self.topics.get(topic)
        if found is None or found.topic_id != topic_id:
            return None
        return found.partitions.get(partition)


_decoder = msgspec.json.Decoder(Cursor)


def encode_cursor(cursor: Cursor) -> str:
    """Return a cursor as the text that a consumer keeps."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()


def decode_cursor(text: str | None) -> Cursor | None:
    """Return the cursor that a consumer has kept; None if it has none.

    Raises:
        InvalidRequest: no broker has made this cursor.

    """
    if not text:
        return None
    try:
        return _decoder.decode(base64.b64decode(text, altchars=b"-_", validate=True))
    except (binascii.Error, msgspec.DecodeError, ValueError, RecursionError):
        problem = {"field": "body.cursor", "message": "is not one that a poll has returned"}
        raise InvalidRequest("body.cursor: " + problem["message"], fields=[problem]) from None


class SyncRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a consumer, which proves with its `secret` to be the member.

    `cursor` is that of the last answer that it has received: all records of that answer are
    processed, and what it revoked is given up. With `commit` its positions are committed. With
    `watch` nothing of this is said: the answer comes as soon as there is something to tell beyond
    that point, or after `wait_ms`.
    """

    secret: Secret
    cursor: CursorText | None = None
    commit: bool = False
    watch: SessionPoint | None = None
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WATCH_MS)] = 0


class AssignedRow(msgspec.Struct, frozen=True):
    """A partition to read, from the committed `offset` if there is one.

    A cursor's position counts instead if it is not older than the frame `since`.
    """

    topic: str
    topic_id: str
    partition: int
    since: int
    offset: int | None
    leader_epoch: int | None


class PartitionOfTopic(msgspec.Struct, frozen=True):
    """One partition of a topic."""

    topic: str
    partition: int


class SyncAnswer(msgspec.Struct, frozen=True):
    """What the consumer owns now.

    It may process records of `partitions` until `lease_ms` after it sent its request. It must give
    up those of `revoked`, and acknowledges that by the cursor of this answer. `not_committed` are
    the refused commits. A watch is answered without partitions: `changed` says that there is
    something to tell, `superseded` that the consumer has polled again.
    """

    point: SessionPoint
    generation: int
    session_timeout_ms: int
    lease_ms: int
    offset_reset: OffsetReset
    partitions: list[AssignedRow] = []
    revoked: list[PartitionOfTopic] = []
    not_committed: list[CommittedRow] = []
    changed: bool = False
    superseded: bool = False

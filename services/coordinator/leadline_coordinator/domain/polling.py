"""Members that poll over HTTP: what a poll says, and what its answer tells (rule R16).

The session of such a member takes part in the same procedures as a channel. A Stop waits for the
poll that shows that the member was told, or until the member's lease has certainly run out. A
Start waits for nothing: from then on the member counts as consuming, and its next poll tells it.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline_client.errors import InvalidRequest
from leadline_client.wire import TopicPartition
from leadline_common.group_commits import OffsetToCommit
from leadline_common.group_polls import (
    AssignedRow,
    Cursor,
    PartitionOfTopic,
    Position,
    SessionPoint,
    SyncAnswer,
)
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupMember, PolledSession

_ANSWERS_BITS = 32


def polling_member(group: Group, name: str, secret: str) -> GroupMember:
    """Return the member that polls.

    Raises:
        UnknownMember, FencedInstance, WrongMemberSecret: see `Group.proven_member`.
        InvalidRequest: the member has a channel.

    """
    member = group.proven_member(name, secret)
    if member.subscription.session_timeout_ms is None:
        raise InvalidRequest(f"{name!r} has a channel, and does not poll")
    return member


def point_of(group: Group, session: PolledSession) -> SessionPoint:
    """Return the point of the session's last answer."""
    return SessionPoint(group.epoch, session.connection, session.told, session.answers)


def is_of_session(group: Group, session: PolledSession, point: SessionPoint) -> bool:
    """Tell whether a point is of this session, and was reached."""
    same = (point.epoch, point.connection) == (group.epoch, session.connection)
    return same and point.frame <= session.told and point.answer <= session.answers


def has_news(group: Group, session: PolledSession, point: SessionPoint) -> bool:
    """Tell whether a session has something to tell beyond a point."""
    return not is_of_session(group, session, point) or session.last_id > point.frame


def commit_sequence(point: SessionPoint) -> int:
    """Return the order of a commit among those of its member: that of the answers.

    A member that comes back has a new session, whose answers are counted from the beginning, and
    connections are numbered in the order of opening. Another coordinator remembers no order.
    """
    return point.connection << _ANSWERS_BITS | point.answer


def positions_to_commit(
    group: Group, member: GroupMember, session: PolledSession, cursor: Cursor
) -> list[OffsetToCommit]:
    """Return the positions of a cursor that are not committed yet.

    Only those of partitions that the member has owned without a break since the cursor's answer,
    in this session: a later reader may have committed the others.
    """
    if not is_of_session(group, session, cursor.point):
        return []
    return [
        OffsetToCommit(one.topic, one.partition, position.offset, position.leader_epoch)
        for one, position in _positions(group, cursor)
        if one in member.held
        and session.since.get(one, cursor.point.frame + 1) <= cursor.point.frame
        and _is_new(group, one, position)
    ]


def _positions(group: Group, cursor: Cursor) -> Iterator[tuple[TopicPartition, Position]]:
    for topic, positions in cursor.topics.items():
        if group.topic_ids.get(topic) == positions.topic_id:
            for number, position in positions.partitions.items():
                yield TopicPartition(topic, number), position


def _is_new(group: Group, one: TopicPartition, position: Position) -> bool:
    committed = group.offsets.get(one)
    return committed is None or committed.offset != position.offset


def acknowledge(
    group: Group, member: GroupMember, session: PolledSession, cursor: Cursor | None, now_ms: int
) -> None:
    """Apply a poll: what its cursor acknowledges, and that the member is alive."""
    if cursor is not None and is_of_session(group, session, cursor.point):
        frame = cursor.point.frame
        for frame_id in sorted(session.stops):
            if frame_id <= frame:
                group.release(member, session.on_stopped(frame_id, now_ms))
        if 0 < session.start_id <= frame:
            session.on_started(session.start_id, now_ms)
            member.confirmed_generation = member.sent_generation
    session.on_poll(now_ms)


def answer_of(group: Group, member: GroupMember, session: PolledSession, now_ms: int) -> SyncAnswer:
    """Return what a member is told: what it may read, and what it has to give up."""
    revoked = session.revoked()
    return SyncAnswer(
        point=point_of(group, session),
        generation=member.sent_generation,
        session_timeout_ms=session.timeout_ms,
        lease_ms=session.lease_ms(now_ms),
        offset_reset=member.subscription.offset_reset,
        partitions=[
            AssignedRow(
                one.topic,
                group.topic_ids.get(one.topic, ""),
                one.partition,
                session.since[one],
                *group.start_offset(one)[2:],
            )
            for one in sorted(session.given - revoked)
            if one in member.held
        ],
        revoked=[PartitionOfTopic(*one) for one in sorted(revoked)],
    )

"""Members that poll over HTTP: leases, Stops and what a late or repeated poll may do (R16)."""

from __future__ import annotations

from typing import Any

import pytest

from leadline_client.channel import Hello
from leadline_client.errors import InvalidRequest, UnknownMember, WrongMemberSecret
from leadline_client.wire import TopicPartition
from leadline_common.group_polls import (
    Cursor,
    Position,
    SessionPoint,
    SyncAnswer,
    TopicPositions,
    decode_cursor,
    encode_cursor,
)
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import FIRST_POLL_MS, GroupMember, PolledSession
from leadline_coordinator.domain.membership import GroupMembership, restored
from leadline_coordinator.domain.polling import (
    acknowledge,
    answer_of,
    has_news,
    polling_member,
    positions_to_commit,
)
from leadline_coordinator.domain.subscriptions import PollingTerms
from tests.unit.coordinator.world import LIMITS

OWN = "s" * 43
TIMEOUT_MS = 30_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class One:
    """A group with one member that polls, `a`, which was given both partitions of `t`."""

    def __init__(self) -> None:
        self.group = Group("g", 3, LIMITS, {"t": 2}, {}, {"t": "id"})
        self.members = GroupMembership(self.group)
        self.members.on_hello(
            Hello(topics=("t",)),
            1,
            "a",
            0,
            new_secret=OWN,
            polling=PollingTerms(TIMEOUT_MS, "earliest"),
        )
        self.group.owners = {P0: "a", P1: "a"}
        self.group.send_start(self.member, {P0, P1})

    @property
    def member(self) -> GroupMember:
        return self.group.member("a")

    @property
    def session(self) -> PolledSession:
        found = self.member.session
        assert isinstance(found, PolledSession)
        return found

    def poll(self, now_ms: int, cursor: Cursor | None = None) -> SyncAnswer:
        acknowledge(self.group, self.member, self.session, cursor, now_ms)
        return answer_of(self.group, self.member, self.session, now_ms)

    def stop(self, *partitions: TopicPartition) -> None:
        self.group.retained = {"a": self.member.held - set(partitions)}
        self.group.awaited = {"a"}
        self.group.send_stop(self.member)


def cursor_of(answer: SyncAnswer, **offsets: int) -> Cursor:
    partitions = {int(name[1:]): Position(offset) for name, offset in offsets.items()}
    return Cursor(answer.point, answer.generation, {"t": TopicPositions("id", partitions)})


@pytest.fixture
def one() -> One:
    return One()


def owned(answer: SyncAnswer) -> set[int]:
    return {row.partition for row in answer.partitions}


def test_nobody_waits_for_a_member_that_polls_to_answer_a_start(one: One) -> None:
    assert one.member.started
    assert not one.group.awaited
    assert owned(one.poll(0)) == {0, 1}


def test_a_stop_waits_for_a_poll_that_was_told_of_it(one: One) -> None:
    before = one.poll(0)
    one.stop(P1)
    for late in (None, cursor_of(before)):
        told = one.poll(10, late)
        assert owned(told) == {0}
        assert [row.partition for row in told.revoked] == [1]
        assert one.member.held == {P0, P1}
        assert one.group.awaited == {"a"}

    one.poll(20, cursor_of(told))
    assert one.member.held == {P0}
    assert one.group.awaited == set()


def test_a_member_that_never_acknowledges_a_stop_ends_like_a_silent_one(one: One) -> None:
    old = cursor_of(one.poll(0))
    one.stop(P1)
    assert one.poll(1_000, old).lease_ms == TIMEOUT_MS
    assert one.poll(11_000, old).lease_ms == TIMEOUT_MS - 10_000
    assert one.poll(40_000, old).lease_ms == 0
    one.members.on_tick(1_000 + one.member.evict_limit_ms(LIMITS))
    assert "a" not in one.group.members
    assert one.group.pending_evictions == {}


def test_the_coordinator_waits_longer_than_any_lease_that_it_told(one: One) -> None:
    old, ends = cursor_of(one.poll(0)), []
    for now_ms in range(0, 60_000, 7_000):
        if now_ms == 14_000:
            one.stop(P1)
        lease_ms = one.poll(now_ms, old).lease_ms
        ends += [now_ms + lease_ms] if lease_ms else []
        assert one.member.stopped_by_ms(LIMITS) > max(ends)


def test_it_is_not_pinged_and_is_removed_once_its_session_times_out(one: One) -> None:
    one.poll(0)
    one.group.effects.clear()
    for now_ms in range(0, TIMEOUT_MS, 50):
        one.members.on_tick(now_ms)
    assert one.group.effects == []
    one.members.on_tick(one.member.stopped_by_ms(LIMITS) - 1)
    assert "a" in one.group.members
    for now_ms in range(TIMEOUT_MS, 2 * TIMEOUT_MS, 50):
        one.members.on_tick(now_ms)
    assert "a" not in one.group.members


def test_a_member_that_never_polled_is_removed_soon(one: One) -> None:
    for now_ms in range(0, FIRST_POLL_MS + 50, 50):
        one.members.on_tick(now_ms)
    assert "a" not in one.group.members


def test_only_the_member_polls(one: One) -> None:
    with pytest.raises(WrongMemberSecret):
        polling_member(one.group, "a", "x" * 43)
    with pytest.raises(UnknownMember):
        polling_member(one.group, "b", OWN)
    one.members.on_hello(Hello(topics=("t",)), 2, "c", 0, new_secret=OWN)
    with pytest.raises(InvalidRequest):
        polling_member(one.group, "c", OWN)


def commits(one: One, cursor: Cursor) -> list[tuple[int, int]]:
    found = positions_to_commit(one.group, one.member, one.session, cursor)
    return [(each.partition, each.offset) for each in found]


def test_positions_are_committed_of_what_was_owned_all_the_time(one: One) -> None:
    answer = one.poll(0)
    old = cursor_of(answer, p0=5, p1=6)
    assert commits(one, old) == [(0, 5), (1, 6)]
    one.stop(P1)
    told = one.poll(10, old)
    assert commits(one, old) == [(0, 5), (1, 6)]
    one.poll(20, cursor_of(told, p0=5))
    assert commits(one, old) == [(0, 5)]
    one.group.retained = None
    one.group.send_start(one.member, {P0, P1})
    again = one.poll(30, cursor_of(told, p0=5))
    assert commits(one, old) == [(0, 5)], "another member may have had it in between"
    assert commits(one, cursor_of(again, p1=9)) == [(1, 9)]


@pytest.mark.parametrize(
    "changed",
    [
        {"epoch": 2},
        {"epoch": 4},
        {"connection": 9},
        {"frame": 2**31 - 1},
        {"answer": 2**31 - 1},
    ],
)
def test_a_cursor_of_another_session_acknowledges_and_commits_nothing(
    one: One, changed: dict[str, Any]
) -> None:
    answer = one.poll(0)
    one.stop(P1)
    told = one.poll(10, cursor_of(answer))
    members = dict(zip(SessionPoint.__struct_fields__, _values(told.point), strict=True))
    foreign = Cursor(SessionPoint(**members | changed), told.generation, {})
    foreign.topics["t"] = TopicPositions("id", {0: Position(7)})

    assert commits(one, foreign) == []
    one.poll(20, foreign)
    assert one.member.held == {P0, P1}


def _values(point: SessionPoint) -> list[int]:
    return [getattr(point, name) for name in SessionPoint.__struct_fields__]


def test_positions_in_a_recreated_topic_do_not_count(one: One) -> None:
    old = cursor_of(one.poll(0), p0=5)
    one.group.topic_ids = {"t": "another"}
    assert commits(one, old) == []


def test_a_new_coordinator_waits_as_long_as_the_session_and_keeps_the_owner(one: One) -> None:
    answer = one.poll(0)
    group = restored(one.group.record(), 4, LIMITS, {"t": 2}, {}, 100)
    group.topic_ids = {"t": "id"}
    members, member = GroupMembership(group), group.member("a")
    members.on_tick(100 + TIMEOUT_MS)
    assert member.held == {P0, P1}

    members.on_return(member, 7, answer.generation, 100 + TIMEOUT_MS)
    assert isinstance(member.session, PolledSession)
    acknowledge(group, member, member.session, cursor_of(answer), 100 + TIMEOUT_MS)
    back = answer_of(group, member, member.session, 100 + TIMEOUT_MS)

    assert [row.since for row in back.partitions] == [0, 0]
    assert back.point.epoch == 4


def test_who_has_consumed_under_another_generation_begins_at_what_is_committed(one: One) -> None:
    """Else it would go on at positions from before another member had the partition."""
    answer = one.poll(0)
    group = restored(one.group.record(), 4, LIMITS, {"t": 2}, {}, 100)
    members, member = GroupMembership(group), group.member("a")

    members.on_return(member, 7, answer.generation + 1, 200)
    assert isinstance(member.session, PolledSession)
    acknowledge(group, member, member.session, cursor_of(answer), 200)

    back = answer_of(group, member, member.session, 200)
    assert owned(back) == {0, 1}
    assert all(row.since > 0 for row in back.partitions)


def test_news_are_what_the_last_answer_did_not_tell(one: One) -> None:
    answer = one.poll(0)
    assert not has_news(one.group, one.session, answer.point)
    one.stop(P1)
    assert has_news(one.group, one.session, answer.point)


@pytest.mark.parametrize("text", ["x", "e30=", "W10=", "//8=", "!!!!", "[" * 5_000, "é"])
def test_a_hostile_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        decode_cursor(text)


def test_a_cursor_survives_its_text() -> None:
    cursor = Cursor(SessionPoint(1, 2, 3, 4), 5, {"t": TopicPositions("id", {0: Position(7, 1)})})
    assert decode_cursor(encode_cursor(cursor)) == cursor
    assert decode_cursor(None) is None

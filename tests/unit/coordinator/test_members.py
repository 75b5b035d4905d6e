"""What happens to members, at the awkward moment: pauses, late frames, successors."""

from __future__ import annotations

from typing import Any

import pytest

from leadline_client.channel import Hello, Pong, Start, Started, Stopped
from leadline_client.errors import (
    FencedInstance,
    InvalidRequest,
    InvalidSubscription,
    RebalanceInProgress,
    StaleGeneration,
    UnknownMember,
    UnknownPartition,
)
from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.commits import (
    check_not_added_again,
    committing_member,
    is_superseded,
)
from leadline_coordinator.domain.credentials import hash_of
from leadline_coordinator.domain.effects import SendToMember
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupLimits, GroupMember, MemberSession
from leadline_coordinator.domain.membership import GroupMembership, restored
from leadline_coordinator.domain.rebalance import (
    AwaitAnswers,
    ComputeAssignment,
    JoinDelay,
    WriteRecord,
    handle_rebalance_request,
)
from leadline_coordinator.domain.records import (
    CommittedOffset,
    GroupRecord,
    MemberCredentials,
    MemberSubscription,
)

LIMITS = GroupLimits()
OWN = "the secret of every member in these tests"
P = TopicPartition("t", 0)
Q = TopicPartition("t", 1)


def hello(**said: Any) -> Hello:
    """The Hello of a consumer that has the secrets of whom it says to be."""
    if "member" in said:
        said = {"secret": OWN} | said
    if "instance_id" in said:
        said = {"instance_secret": OWN} | said
    return Hello(topics=("t",), **said)


def new_group() -> GroupMembership:
    return GroupMembership(
        Group("g", 1, LIMITS, {"t": 2}, {P: CommittedOffset(7, 0), Q: CommittedOffset(8, 0)})
    )


def taken_over(*, instance_id: str | None = None) -> GroupMembership:
    """A group as a new coordinator finds it: member `a` has both partitions."""
    subscription = MemberSubscription(instance_id=instance_id, topics=("t",))
    record = GroupRecord(
        "g",
        "range",
        "eager",
        3,
        {"a": subscription},
        {P: "a", Q: "a"},
        credentials={"a": MemberCredentials(hash_of(OWN), hash_of(OWN))},
    )
    offsets = {P: CommittedOffset(7, 0), Q: CommittedOffset(8, 0)}
    members = GroupMembership(restored(record, 2, LIMITS, {"t": 2}, offsets, 0))
    members.group.awaited = {"a"}
    return members


def starts(members: GroupMembership) -> list[Start]:
    sent = [effect.frame for effect in members.group.effects if isinstance(effect, SendToMember)]
    return [frame for frame in sent if isinstance(frame, Start)]


def start(members: GroupMembership, name: str, *part: TopicPartition) -> Start:
    """Start a member in another generation, as a rebalance does."""
    members.group.generation += 1
    members.group.send_start(members.group.members[name], set(part))
    return starts(members)[-1]


def test_a_group_that_was_empty_for_long_puts_out_who_falls_silent_as_soon_as_any_other() -> None:
    members = new_group()
    members.on_hello(hello(), 1, "a", 0, new_secret=OWN)
    members.on_tick(50)
    members.on_leave("a", OWN)
    hours_later = 3_600_000
    members.on_hello(hello(), 2, "b", hours_later, new_secret=OWN)

    for passed_ms in range(0, LIMITS.evict_limit_ms + 1, 50):
        members.on_tick(hours_later + passed_ms)

    assert not members.group.members


def test_what_a_member_claims_is_started_with_its_offset_as_it_may_have_given_it_up_since() -> None:
    members = taken_over()

    members.on_hello(hello(member="a", owned=(("t", (0, 1)),)), 1, "x", 10, new_secret=OWN)

    assert starts(members)[-1].offsets == (("t", 0, 7, None), ("t", 1, 8, None))


def test_defect_04_an_offset_of_an_earlier_topic_of_the_same_name_is_not_handed_out() -> None:
    members = new_group()
    members.group.offsets = {
        P: CommittedOffset(7, 0, topic_id="old"),
        Q: CommittedOffset(8, 0, topic_id="new"),
    }
    members.group.topic_ids = {"t": "new", "u": "other"}
    members.on_hello(hello(), 1, "a", 0, new_secret=OWN)

    first = start(members, "a", P, Q)

    assert first.offsets == (("t", 0, None, None), ("t", 1, 8, None))
    assert first.topic_ids == (("t", "new"),)


def test_defect_41_a_late_commit_without_an_epoch_is_of_the_former_partition() -> None:
    members = new_group()
    members.on_hello(hello(), 1, "a", 0, new_secret=OWN)
    group, late = members.group, start(members, "a", P, Q).generation
    group.owners = {P: "a", Q: "a"}
    group.note_added_again({"t": 1})
    check_not_added_again(group, P)
    with pytest.raises(UnknownPartition):
        check_not_added_again(group, Q)
    committing_member(group, "a", late, group.epoch, OWN)

    now = start(members, "a", P, Q).generation

    check_not_added_again(group, Q)
    committing_member(group, "a", now, group.epoch, OWN)
    with pytest.raises(StaleGeneration):
        committing_member(group, "a", late, group.epoch, OWN)


def test_defect_05_the_commits_of_a_member_are_ordered_for_each_partition() -> None:
    members = new_group()
    member = members.on_hello(hello(), 1, "a", 0, new_secret=OWN)
    assert not is_superseded(member, P, 4)
    assert not is_superseded(member, Q, 2)
    assert is_superseded(member, P, 3)
    assert not is_superseded(member, P, 4), "its answer was lost"
    assert not is_superseded(member, P, 5)
    assert is_superseded(member, P, 4)
    assert not is_superseded(member, Q, 3)
    assert not is_superseded(member, P, None), "in the order of arrival"
    assert not is_superseded(None, P, 1)


def test_what_a_member_has_on_its_channel_is_not_told_its_offset_again() -> None:
    members = new_group()
    members.on_hello(hello(), 1, "a", 0, new_secret=OWN)
    first = start(members, "a", P)
    second = start(members, "a", P, Q)

    assert first.offsets == (("t", 0, 7, None),)
    assert second.offsets == (("t", 1, 8, None),)


def test_what_a_member_stopped_is_told_its_offset_when_it_comes_back_to_it() -> None:
    members = new_group()
    member = members.on_hello(hello(), 1, "a", 0, new_secret=OWN)
    start(members, "a", P, Q)
    members.group.retained = {"a": {Q}}
    members.group.send_stop(member)
    members.on_answer(stopped(members, 2), 1, 20)

    assert start(members, "a", P, Q).offsets == (("t", 0, 7, None),)


def stopped(members: GroupMembership, number: int) -> Stopped:
    group = members.group
    return Stopped(
        id=number,
        coordinator_epoch=group.epoch,
        generation=group.generation,
        attempt=group.attempt,
        partitions=(),
    )


def test_who_took_the_place_of_one_that_may_still_read_is_not_started_at_once() -> None:
    members = taken_over(instance_id="i")
    members.on_hello(hello(instance_id="i"), 1, "b", 10, new_secret=OWN)
    members.on_closed(1, 20)

    members.on_hello(hello(instance_id="i", member="b"), 2, "x", 30, new_secret=OWN)

    assert members.group.pending_evictions["a"].held == {P, Q}
    assert not starts(members)


@pytest.mark.parametrize("said", [{"member": "a"}, {"instance_id": "i"}])
def test_a_hello_that_was_overtaken_by_a_later_channel_changes_nothing(
    said: dict[str, str],
) -> None:
    members = new_group()
    members.on_hello(hello(instance_id="i"), 2, "a", 0, new_secret=OWN)
    start(members, "a", P)

    with pytest.raises(InvalidRequest):
        members.on_hello(hello(**said), 1, "x", 10, new_secret=OWN)

    member = members.group.members["a"]
    assert member.session is not None
    assert member.session.connection == 2
    assert member.held == {P}


def test_the_instance_that_came_last_has_the_place() -> None:
    members = new_group()
    members.on_hello(hello(instance_id="i"), 1, "a", 0, new_secret=OWN)

    members.on_hello(hello(instance_id="i"), 2, "b", 10, new_secret=OWN)

    assert list(members.group.members) == ["b"]
    errors = [one.frame for one in members.group.effects if isinstance(one, SendToMember)]
    assert FencedInstance.code in [getattr(frame, "error_code", None) for frame in errors]


def test_the_answer_to_an_earlier_start_is_none_to_the_one_that_is_due() -> None:
    subscription = MemberSubscription(topics=("t",))
    credentials = {"a": MemberCredentials(hash_of(OWN))}
    record = GroupRecord("g", "range", "eager", 3, {"a": subscription}, credentials=credentials)
    members = GroupMembership(restored(record, 2, LIMITS, {"t": 2}, {}, 0))
    steps = handle_rebalance_request(members.group, members)
    assert steps.send(None) == AwaitAnswers()
    members.on_hello(hello(member="a"), 1, "x", 10, new_secret=OWN)
    early = starts(members)[-1]
    assert early.assignment == ()
    assert isinstance(steps.send(None), ComputeAssignment)
    assert isinstance(steps.send({"a": [P, Q]}), WriteRecord)

    answer = Started(id=early.id, coordinator_epoch=2, generation=early.generation, attempt=0)
    members.on_answer(answer, 1, 20)

    assert steps.send(None) == AwaitAnswers(LIMITS.answer_timeout_ms)
    assert starts(members)[-1].assignment == (("t", (0, 1)),)
    assert members.group.awaited == {"a"}


def test_an_answer_to_an_earlier_coordinator_counts_for_nothing() -> None:
    """Numbers of frames begin again with each channel, so that it would fit a frame of this one."""
    members = new_group()
    member = members.on_hello(hello(), 1, "a", 0, new_secret=OWN)
    members.on_tick(LIMITS.ping_interval_ms)
    assert member.session is not None

    members.on_answer(Pong(id=1, coordinator_epoch=0, generation=0), 1, 1_500)
    assert (member.session.acknowledged, member.session.acknowledged_at_ms) == (0, 0)

    members.on_answer(Pong(id=1, coordinator_epoch=1, generation=0), 1, 1_600)
    assert (member.session.acknowledged, member.session.acknowledged_at_ms) == (1, 1_600)


def test_another_assignor_waits_for_members_that_may_come_back() -> None:
    members = new_group()
    members.on_hello(hello(), 1, "a", 0, new_secret=OWN)
    with pytest.raises(InvalidSubscription):
        members.on_hello(hello(assignor="sticky"), 2, "b", 10, new_secret=OWN)
    members.on_closed(1, 20)

    with pytest.raises(RebalanceInProgress):
        members.on_hello(hello(assignor="sticky"), 3, "b", 30, new_secret=OWN)
    assert members.group.assignor == "range"

    members.on_tick(20 + LIMITS.reconnect_grace_ms)
    members.on_hello(hello(assignor="sticky"), 4, "b", 2_000, new_secret=OWN)
    assert (members.group.assignor, list(members.group.members)) == ("sticky", ["b"])


def test_a_static_member_that_is_alone_comes_back_with_another_assignor() -> None:
    members = new_group()
    members.on_hello(hello(instance_id="i"), 1, "a", 0, new_secret=OWN)
    members.on_closed(1, 10)

    members.on_hello(hello(instance_id="i", assignor="sticky"), 2, "b", 20, new_secret=OWN)

    assert (members.group.assignor, list(members.group.members)) == ("sticky", ["b"])


def test_a_generation_before_what_was_lost_and_regained_commits_nothing() -> None:
    members = new_group()
    member = members.on_hello(hello(), 1, "a", 0, new_secret=OWN)
    first = start(members, "a", P)
    members.on_answer(
        Started(id=1, coordinator_epoch=1, generation=first.generation, attempt=0), 1, 10
    )
    member.held.clear()  # it stopped, another member had it
    start(members, "a", Q)  # and this was never answered
    last = start(members, "a", P, Q)

    with pytest.raises(StaleGeneration):
        committing_member(members.group, "a", first.generation, 1, OWN)
    assert committing_member(members.group, "a", last.generation, 1, OWN) is member


# -- what a member may still be reading ------------------------------------------------


def with_one_member(*part: TopicPartition) -> tuple[GroupMembership, GroupMember]:
    """A group whose member `a` joined at 0 and was started with its part."""
    members = new_group()
    member = members.on_hello(hello(), 1, "a", 0, new_secret=OWN)
    start(members, "a", *part)
    return members, member


def test_what_a_removed_member_may_be_reading_is_held_until_it_has_certainly_stopped() -> None:
    members, _ = with_one_member(P)
    pending = members.group.pending_evictions

    members.evict("a", UnknownMember("evicted"))

    members.on_tick(LIMITS.evict_limit_ms - 1)
    assert pending["a"].held == {P}
    members.on_tick(LIMITS.evict_limit_ms)
    assert not pending


def test_nobody_is_started_with_what_a_removed_member_may_be_reading() -> None:
    members, _ = with_one_member(P, Q)
    members.evict("a", UnknownMember("evicted"))
    members.on_hello(hello(), 2, "b", 10, new_secret=OWN)
    steps = handle_rebalance_request(members.group, members)
    assert isinstance(steps.send(None), JoinDelay)
    assert isinstance(steps.send(None), ComputeAssignment)

    assert steps.send({"b": [P, Q]}) == AwaitAnswers()

    assert members.group.awaited == {"a"}


def test_an_answer_past_an_unanswered_stop_does_not_keep_a_member_alive() -> None:
    """It could not act on the Stop, so that its own clock has to end it."""
    session = MemberSession(1, acknowledged_at_ms=0, pinged_at_ms=0)
    stop = session.stop(frozenset({P}))
    ping = session.next_id()

    session.on_answer(ping, 500)
    assert (session.acknowledged, session.acknowledged_at_ms) == (0, 0)

    assert session.on_stopped(stop, 600) == {P}
    assert (session.acknowledged, session.acknowledged_at_ms) == (ping, 600)


def test_a_silent_member_is_evicted_only_after_its_own_limit() -> None:
    members, _ = with_one_member(P)

    members.on_tick(LIMITS.evict_limit_ms - 1)
    assert "a" in members.group.members

    members.on_tick(LIMITS.evict_limit_ms)
    assert "a" not in members.group.members


def test_a_new_coordinator_waits_until_the_members_of_the_last_one_have_stopped() -> None:
    members = taken_over()
    member = members.group.members["a"]

    members.on_tick(LIMITS.evict_limit_ms - 1)
    assert member.held == {P, Q}

    members.on_tick(LIMITS.evict_limit_ms)
    assert not member.held


def test_a_member_that_returns_keeps_of_its_claims_only_what_it_held() -> None:
    members, member = with_one_member(P)

    members.on_hello(hello(member="a", owned=(("t", (0, 1)),)), 2, "x", 10, new_secret=OWN)

    assert member.held == {P}


def test_a_member_without_a_channel_may_read_on_during_the_grace_time() -> None:
    members, member = with_one_member(P)
    members.on_closed(1, 100)

    members.on_tick(100 + LIMITS.reconnect_grace_ms - 1)
    assert member.held == {P}

    members.on_tick(100 + LIMITS.reconnect_grace_ms)
    assert not member.held

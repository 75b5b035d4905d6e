"""A member of a group: what lost, late and repeated frames do to it (rule R16)."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_client.channel import (
    Error,
    Frame,
    Ping,
    Start,
    Started,
    Stop,
    Stopped,
    Welcome,
    group_partitions,
)
from leadline_client.errors import (
    FencedInstance,
    InvalidSubscription,
    NotCoordinator,
    Unauthorized,
    UnknownMember,
)
from leadline_client.membership import (
    AssignPartitions,
    CloseChannel,
    ConsumerSubscription,
    Effect,
    FailConsumer,
    LosePartitions,
    MembershipManager,
    RevokePartitions,
    SendFrame,
    Warn,
)
from leadline_client.wire import LogPosition, TopicPartition

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
STOP_LIMIT_S = 3.0
E = TypeVar("E")


def welcome(member: str = "m", epoch: int = 1, generation: int = 1) -> Welcome:
    return Welcome(
        member=member,
        coordinator_epoch=epoch,
        generation=generation,
        ping_interval_ms=1000,
        stop_limit_ms=int(STOP_LIMIT_S * 1000),
    )


def ping(number: int, acknowledged: int, epoch: int = 1, generation: int = 1) -> Ping:
    return Ping(
        id=number, coordinator_epoch=epoch, generation=generation, acknowledged=acknowledged
    )


def start(
    number: int,
    *partitions: TopicPartition,
    generation: int = 1,
    epoch: int = 1,
    attempt: int = 1,
    offset: int | None = None,
) -> Start:
    return Start(
        id=number,
        coordinator_epoch=epoch,
        generation=generation,
        attempt=attempt,
        assignment=group_partitions(partitions),
        offsets=tuple((*one, offset, None) for one in partitions),
    )


def stop(
    number: int,
    *partitions: TopicPartition,
    generation: int = 2,
    epoch: int = 1,
    attempt: int = 1,
) -> Stop:
    return Stop(
        id=number,
        coordinator_epoch=epoch,
        generation=generation,
        attempt=attempt,
        partitions=group_partitions(partitions),
    )


def joined(*partitions: TopicPartition) -> MembershipManager:
    """Return a member that said hello at 0 s and was started right after it."""
    member = MembershipManager(ConsumerSubscription(topics=("t", "u")))
    member.hello(0.0)
    assert member.on_frame(welcome(), 0.0) == []
    member.on_frame(start(1, *partitions), 0.0)
    return member


def only(kind: type[E], effects: list[Effect]) -> list[E]:
    return [one for one in effects if isinstance(one, kind)]


def answers(effects: list[Effect]) -> list[Frame]:
    return [one.frame for one in only(SendFrame, effects)]


def test_a_member_consumes_from_its_start_on_from_the_offsets_that_came_with_it() -> None:
    member = MembershipManager(ConsumerSubscription(pattern="t.*", threads=2, instance_id="i"))
    hello = member.hello(0.0)
    assert (hello.member, hello.pattern, hello.threads, hello.instance_id) == (None, "t.*", 2, "i")
    member.on_frame(welcome(), 0.1)
    assert not member.may_consume(0.1)
    effects = member.on_frame(start(1, A, B, offset=7), 0.2)
    assert only(AssignPartitions, effects) == [
        AssignPartitions(((A, LogPosition(7)), (B, LogPosition(7))), ())
    ]
    assert [type(one) for one in answers(effects)] == [Started]
    assert member.may_consume(0.2)
    assert (member.member, member.owned) == ("m", frozenset({A, B}))


def test_a_member_says_its_secret_until_it_is_no_member_any_more() -> None:
    member = MembershipManager(ConsumerSubscription(topics=("t",)))
    assert member.hello(0.0).secret is None
    member.on_frame(replace(welcome(), secret=str(1)), 0.0)
    member.on_closed()
    assert (member.hello(1.0).member, member.hello(1.0).secret) == ("m", "1")
    member.on_frame(welcome(epoch=2), 1.0)
    kept = member.hello(2.0).secret
    assert kept == str(1), "a Welcome to a member that is back has none"

    member.on_frame(replace(welcome("n", epoch=3), secret=str(2)), 2.0)
    assert (member.hello(3.0).member, member.hello(3.0).secret) == ("n", "2")
    member.end()
    assert member.hello(4.0).secret is None


def test_the_lease_counts_from_the_answer_that_was_acknowledged_not_from_the_last_one() -> None:
    member = joined(A)
    member.on_frame(ping(2, acknowledged=1), 1.0)
    member.on_frame(ping(3, acknowledged=1), 2.0)
    member.on_frame(ping(4, acknowledged=1), 2.9)
    assert member.may_consume(2.99)
    assert not member.may_consume(3.0), "the coordinator has nothing that was sent after 0 s"
    member.on_frame(ping(5, acknowledged=3), 3.1)
    assert member.may_consume(4.9)
    assert not member.may_consume(5.0)


def test_an_old_acknowledgement_does_not_shorten_the_lease() -> None:
    member = joined(A)
    member.on_frame(ping(2, acknowledged=1), 1.0)
    member.on_frame(ping(3, acknowledged=2), 2.0)
    member.on_frame(ping(4, acknowledged=1), 2.1)
    assert member.may_consume(3.9)


def test_a_stop_that_was_answered_late_counts_from_its_answer() -> None:
    member = joined(A)
    member.on_frame(stop(2, A), 0.5)
    member.on_frame(ping(3, acknowledged=1, generation=2), 1.0)
    member.on_revoked([A], 1.5)
    member.on_frame(ping(4, acknowledged=2, generation=2), 2.0)
    member.on_frame(ping(5, acknowledged=3, generation=2), 2.5)
    assert member.may_consume(4.4), "whoever has the answer of 1.5 s has it for good"
    assert not member.may_consume(4.5)


def test_a_silent_coordinator_is_left() -> None:
    member = joined(A)
    assert member.deadline_s() == STOP_LIMIT_S
    assert member.on_time(2.9) == []
    assert member.on_time(3.0) == [CloseChannel()]
    member.on_closed()
    assert member.deadline_s() is None
    assert not member.may_consume(0.1)


def test_what_a_stop_names_is_answered_when_the_application_has_given_it_up() -> None:
    member = joined(A, B, C)
    effects = member.on_frame(stop(2, A, B), 1.0)
    assert effects == [RevokePartitions((A, B))]
    assert not member.settled
    assert member.on_revoked([A], 1.1) == []
    (answer,) = answers(member.on_revoked([B], 1.2))
    assert isinstance(answer, Stopped)
    assert (answer.id, answer.generation, answer.partitions) == (2, 2, (("t", (0, 1)),))
    assert member.owned == {C}
    assert member.may_consume(1.2), "what the Stop does not name goes on"


def test_an_application_that_does_not_poll_in_time_loses_the_partitions_of_the_stop() -> None:
    member = joined(A, C)
    member.on_frame(stop(2, A), 1.0)
    due = member.deadline_s()
    assert due is not None
    assert due < STOP_LIMIT_S
    effects = member.on_time(due)
    assert only(LosePartitions, effects) == [LosePartitions((A,))]
    assert [type(one) for one in answers(effects)] == [Stopped]
    assert member.on_revoked([A], due) == []
    assert member.owned == {C}


def test_a_stop_that_comes_too_late_to_wait_is_answered_at_once_with_a_loss() -> None:
    member = joined(A)
    effects = member.on_frame(stop(2, A), 2.95)
    assert only(LosePartitions, effects) == [LosePartitions((A,))]
    assert [type(one) for one in answers(effects)] == [Stopped]


def test_a_second_attempt_is_answered_too_and_the_first_is_not_forgotten() -> None:
    member = joined(A, B)
    member.on_frame(stop(2, A), 1.0)
    member.on_frame(stop(3, A, B, attempt=2), 1.1)
    found = [one for one in answers(member.on_revoked([A, B], 1.2)) if isinstance(one, Stopped)]
    assert [one.id for one in found] == [2, 3]


def test_a_stop_for_what_is_not_owned_is_answered_at_once() -> None:
    member = joined(A)
    assert [type(one) for one in answers(member.on_frame(stop(2, B), 1.0))] == [Stopped]


def test_a_start_takes_away_what_it_does_not_name() -> None:
    member = joined(A, B)
    effects = member.on_frame(start(2, B, C, generation=2, offset=5), 1.0)
    assert only(LosePartitions, effects) == [LosePartitions((A,))]
    assert only(AssignPartitions, effects) == [AssignPartitions(((C, LogPosition(5)),), ())]


def test_lower_numbers_and_repeated_frames_change_nothing() -> None:
    member = joined(A)
    member.on_frame(ping(2, 1, generation=4), 0.1)
    for late in (
        stop(3, A, generation=3, attempt=9),
        start(4, B, generation=3, attempt=9),
        ping(5, 1, generation=3),
        stop(2, A, generation=5),
        start(7, B, epoch=0, generation=9),
    ):
        assert member.on_frame(late, 0.2) == []
    assert member.owned == {A}
    assert member.generation == 4
    assert answers(member.on_frame(start(8, B, generation=4), 0.3)), "the first of a generation"


def test_after_a_lost_channel_what_was_owned_is_claimed_and_goes_on_with_the_next_start() -> None:
    member = joined(A, B)
    member.on_closed()
    assert not member.may_consume(0.1)
    hello = member.hello(1.0)
    assert (hello.member, hello.owned) == ("m", (("t", (0, 1)),))
    assert (hello.coordinator_epoch, hello.generation) == (1, 1)
    assert member.on_frame(welcome(epoch=2), 1.1) == []
    assert not member.may_consume(1.1), "who else has it meanwhile, only a Start can tell"
    effects = member.on_frame(start(1, A, epoch=2, offset=3), 1.2)
    assert only(LosePartitions, effects) == [LosePartitions((B,))]
    assert only(AssignPartitions, effects) == [AssignPartitions((), ())], "a claim keeps its place"
    assert member.may_consume(1.2)


def test_a_new_member_id_means_that_everything_was_lost() -> None:
    member = joined(A)
    member.on_closed()
    member.hello(9.0)
    assert member.on_frame(welcome("other", generation=7), 9.1) == [LosePartitions((A,))]
    assert member.owned == frozenset()


def test_after_the_deletion_of_a_group_its_member_starts_again() -> None:
    member = joined(A)
    member.on_frame(stop(2, B, generation=8), 0.1)
    member.on_closed()
    member.hello(9.0)
    member.on_frame(welcome("other", generation=0), 9.1)
    effects = member.on_frame(start(1, A, generation=1, attempt=0), 9.2)
    assert [type(one) for one in answers(effects)] == [Started]
    assert member.generation == 1


def test_an_older_coordinator_is_left() -> None:
    member = joined(A)
    member.on_frame(ping(2, 1, epoch=3), 0.1)
    member.on_closed()
    member.hello(1.0)
    warning, left = member.on_frame(welcome(epoch=2), 1.1)
    assert isinstance(warning, Warn)
    assert left == CloseChannel()
    assert member.member == "m"


def test_an_older_coordinator_is_warned_of_once() -> None:
    """A consumer leaves it again and again if ZooKeeper was replaced by an older copy."""
    member = joined(A)
    member.on_frame(ping(2, 1, epoch=3), 0.1)
    warnings: list[str] = []
    for epoch in (1, 1, 2, 2):
        member.on_closed()
        member.hello(1.0)
        effects = member.on_frame(welcome(epoch=epoch), 1.1)
        warnings += [one.message for one in effects if isinstance(one, Warn)]
    assert ["the epoch 1, and this consumer has seen 3" in one for one in warnings] == [True, False]


def test_errors_decide_whether_a_member_rejoins_and_with_which_id() -> None:
    member = joined(A)
    again = member.on_frame(Error.of(NotCoordinator("elsewhere")), 0.1)
    assert [type(one) for one in again] == [CloseChannel]
    assert member.member == "m"
    lost, away = member.on_frame(Error.of(UnknownMember("evicted")), 0.1)
    assert lost == LosePartitions((A,))
    assert isinstance(away, CloseChannel)
    hello = member.hello(1.0)
    assert (hello.member, hello.owned, hello.generation) == (None, (), None)
    for error in (FencedInstance("taken"), InvalidSubscription("no")):
        (fatal,) = member.on_frame(Error.of(error), 1.0)
        assert isinstance(fatal, FailConsumer)
        assert type(fatal.error) is type(error)
        member.hello(2.0)


def test_a_refused_token_ends_the_channel_and_not_the_membership() -> None:
    member = joined(A)
    effects = member.on_frame(Error.of(Unauthorized("revoked")), 0.1)
    assert [type(one) for one in effects] == [CloseChannel]
    member.on_closed()
    hello = member.hello(1.0)
    assert hello.member == "m"
    assert member.owned == {A}


def test_nothing_that_comes_after_the_end_of_the_channel_is_answered() -> None:
    member = joined(A)
    member.on_closed()
    assert member.on_frame(ping(2, 1), 0.1) == []
    assert member.on_frame(start(3, B, generation=9), 0.1) == []
    assert member.owned == {A}


FRAMES = st.one_of(
    st.builds(ping, st.integers(1, 30), st.integers(0, 30), st.integers(1, 2), st.integers(1, 4)),
    st.builds(
        lambda number, parts, generation, attempt: stop(
            number, *parts, generation=generation, attempt=attempt
        ),
        st.integers(1, 30),
        st.sets(st.sampled_from([A, B, C])),
        st.integers(1, 4),
        st.integers(1, 3),
    ),
    st.builds(
        lambda number, parts, generation, attempt: start(
            number, *parts, generation=generation, attempt=attempt
        ),
        st.integers(1, 30),
        st.sets(st.sampled_from([A, B, C])),
        st.integers(1, 4),
        st.integers(1, 3),
    ),
    st.just("given up"),
    st.just("closed"),
)


class Application:
    """What an application holds, rebuilt from the effects alone, and when answers were sent."""

    def __init__(self, *held: TopicPartition) -> None:
        self.held = set(held)
        self.going: set[TopicPartition] = set()
        self.last_answer_s = 0.0

    def see(self, effects: list[Effect], now_s: float) -> None:
        for effect in effects:
            if isinstance(effect, AssignPartitions):
                self.held |= {one for one, _ in effect.added}
            elif isinstance(effect, LosePartitions):
                self.held -= set(effect.partitions)
                self.going -= set(effect.partitions)
            elif isinstance(effect, RevokePartitions):
                self.going |= set(effect.partitions)
            elif isinstance(effect, SendFrame):
                self.last_answer_s = now_s

    def give_up(self) -> set[TopicPartition]:
        given, self.going = self.going, set()
        self.held -= given
        return given


def happen(
    member: MembershipManager, application: Application, event: Frame | str, now_s: float
) -> list[Effect]:
    if event == "given up":
        return member.on_revoked(application.give_up(), now_s)
    if event == "closed":
        member.on_closed()
        application.last_answer_s = now_s
        member.hello(now_s)
        return member.on_frame(welcome(epoch=member.coordinator_epoch or 1), now_s)
    assert not isinstance(event, str)
    return member.on_frame(event, now_s)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(FRAMES, st.floats(0.0, 1.5)), max_size=40))
def test_whatever_comes_what_is_held_is_owned_and_what_is_consumed_is_leased(
    events: list[tuple[Frame | str, float]],
) -> None:
    member, application, now_s = joined(A, B), Application(A, B), 0.0
    for event, passes_s in events:
        now_s += passes_s
        application.see(member.on_time(now_s), now_s)
        application.see(happen(member, application, event, now_s), now_s)
        assert application.held == member.owned
        if member.may_consume(now_s):
            assert now_s < application.last_answer_s + STOP_LIMIT_S

"""Which role a replica takes, and what it refuses."""

from __future__ import annotations

import pytest

from leadline_broker.domain.effects import Flush, StartFetching, StopFetching, Truncate
from leadline_broker.domain.replica import Replica, Role
from leadline_broker.domain.rules import Rules
from leadline_broker.domain.state import PublishedState
from leadline_client.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    NotLeader,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from leadline_client.wire import NO_LEADER
from leadline_common.rpc import NO_ERROR, FetchedRow, FetchRow
from tests.unit.broker.replicas import (
    ME,
    Follower,
    acknowledged,
    failed,
    leader,
    leadership,
    replica,
    row,
)


def test_starts_fenced_and_serves_nothing() -> None:
    made, _ = replica([1, 1])

    assert made.role is Role.FENCED
    assert made.fetch_row() is None
    with pytest.raises(NotLeader):
        made.leading().check_append(all_replicas=False)
    answer, effects = made.on_replica_fetch(
        FetchRow(0, 5, 0, -1), broker_id=2, incarnation=0, nonce=1, now=0
    )
    assert (answer.error_code, effects) == (NotLeader.code, [])
    assert made.peek(FetchRow(0, 5, 0, -1)).error_code == NotLeader.code


def test_granted_to_lead() -> None:
    made, _ = replica([1, 1])

    code, effects = made.on_leader_and_isr(row(1, 3, version=7), 0)

    assert (code, made.role) == (NO_ERROR, Role.LEADER)
    assert effects == [StopFetching(), Flush()]
    assert (made.state.leader_epoch, made.state.state_version) == (3, 7)
    assert leadership(made).epoch_start == 2


def test_a_leader_claims_no_more_than_its_log_holds() -> None:
    made, log = replica([1, 1, 1], high_watermark=3)
    log.truncate(1)

    made.on_leader_and_isr(row(1, 3), 0)

    assert made.state.high_watermark == 1


def test_granted_to_follow_keeps_the_log() -> None:
    made, _ = replica([1, 1, 1], high_watermark=1)

    code, effects = made.on_leader_and_isr(row(2, 3), 0)

    assert (code, made.role) == (NO_ERROR, Role.FOLLOWER)
    assert effects == [StopFetching(), Flush(), StartFetching(2, 3)]
    assert made.fetch_row() == FetchRow(0, 3, 3, 1)


def test_without_rule_r2_a_follower_cuts_to_its_high_watermark() -> None:
    made, _ = replica([1, 1, 1], high_watermark=1, rules=Rules(r2_reconcile=False))

    _, effects = made.on_leader_and_isr(row(2, 3), 0)

    assert Truncate(1) in effects


def test_without_a_leader_there_is_nobody_to_fetch_from() -> None:
    made, _ = replica([1])

    code, effects = made.on_leader_and_isr(row(NO_LEADER, 3), 0)

    assert (code, made.role) == (NO_ERROR, Role.FOLLOWER)
    assert effects == [StopFetching(), Flush()]
    assert made.fetch_row() is None


@pytest.mark.parametrize("to", [1, 2, NO_LEADER])
@pytest.mark.parametrize("held", [1, 2, NO_LEADER])
def test_grants_of_older_epochs_are_refused(held: int, to: int) -> None:
    made, _ = replica()
    made.on_leader_and_isr(row(held, 5, version=3), 0)
    role = made.role

    assert made.on_leader_and_isr(row(to, 4, version=9), 0) == (FencedLeaderEpoch.code, [])
    assert (made.role, made.state.leader_epoch, made.state.state_version) == (role, 5, 3)


@pytest.mark.parametrize("held", [1, 2, NO_LEADER])
def test_a_repeated_grant_changes_nothing(held: int) -> None:
    made, _ = replica()
    made.on_leader_and_isr(row(held, 5), 0)
    role, led = made.role, made.leadership

    assert made.on_leader_and_isr(row(held, 5), 0) == (NO_ERROR, [])
    assert (made.role, made.leadership) == (role, led)


@pytest.mark.parametrize("to", [1, 2, NO_LEADER])
@pytest.mark.parametrize("held", [1, 2, NO_LEADER])
def test_grants_of_newer_epochs_are_taken_whatever_was_missed(held: int, to: int) -> None:
    made, _ = replica()
    made.on_leader_and_isr(row(held, 5), 0)

    code, _ = made.on_leader_and_isr(row(to, 9, version=4), 0)

    assert code == NO_ERROR
    assert made.role is (Role.LEADER if to == 1 else Role.FOLLOWER)
    assert (made.state.leader, made.state.leader_epoch, made.state.state_version) == (to, 9, 4)


def test_a_grant_that_does_not_name_this_broker_is_invalid() -> None:
    made, _ = replica()

    assert made.on_leader_and_isr(row(2, 5, (2, 3), replicas=(2, 3)), 0) == (
        InvalidRequest.code,
        [],
    )
    assert made.role is Role.FENCED


def test_a_leader_takes_a_newer_isr_of_its_epoch() -> None:
    made, _ = leader([5], version=3)

    code, _ = made.on_leader_and_isr(row(1, 5, (1, 2), version=4), 0)

    assert (code, made.state.isr, made.state.state_version) == (NO_ERROR, (1, 2), 4)


def test_a_leader_ignores_an_older_isr_of_its_epoch() -> None:
    made, _ = leader([5], version=3)

    made.on_leader_and_isr(row(1, 5, (1, 2), version=2), 0)

    assert (made.state.isr, made.state.state_version) == ((1, 2, 3), 3)


def stepped_down() -> Replica:
    """Return a former leader with produces that wait for two records, the ends 1 and 2."""
    made, log = leader()
    log.append([5, 5])
    made.leading().park(1, 77)
    made.leading().park(2, 78)
    _, effects = made.on_leader_and_isr(row(2, 6), 0)
    assert failed(effects) == acknowledged(effects) == []
    return made


def test_a_former_leader_acknowledges_what_the_new_one_has_committed() -> None:
    made = stepped_down()

    assert acknowledged(made.on_fetched(1)) == [77]
    assert made.has_parked
    assert acknowledged(made.on_fetched(9)) == [78]
    assert not made.has_parked
    assert made.on_durable() == []


def test_a_former_leader_fails_what_the_new_one_has_not_got() -> None:
    made = stepped_down()
    diverging = FetchedRow(0, 6, 2, 5, NO_ERROR, 0, 0, diverging_epoch=5, diverging_end=1)

    assert failed(made.on_fetch_answer(diverging)) == [78]
    assert made.has_parked


@pytest.mark.parametrize("how", ["reset", "fenced", "unreachable"])
def test_a_former_leader_fails_all_it_will_never_hear_of(how: str) -> None:
    made = stepped_down()
    reset = FetchedRow(0, 6, 2, 5, OffsetOutOfRange.code, 9, 9)
    ends = {
        "reset": lambda: made.on_fetch_answer(reset),
        "fenced": made.step_down,
        "unreachable": made.give_up,
    }

    assert failed(ends[how]()) == [77, 78]


def test_a_caller_that_gave_up_at_a_former_leader_is_forgotten() -> None:
    made = stepped_down()

    made.unpark(77)

    assert acknowledged(made.on_fetched(2)) == [78]


def test_a_leader_does_not_give_up() -> None:
    made, _ = leader([5])
    made.leading().park(2, 77)

    assert made.give_up() == []


def test_a_leader_elected_again_keeps_its_parked_produces() -> None:
    made, log = leader(min_insync=1, isr=(1,))
    log.append([5])
    log.durable_end_offset = 0
    made.leading().park(1, 77)

    _, effects = made.on_leader_and_isr(row(1, 6, (1, 2)), 0)

    assert failed(effects) == []
    log.durable_end_offset = 1
    _, effects = Follower(made, 2).fetch(1, 5, epoch=6)
    assert acknowledged(effects) == [77]


def test_stepping_down_fences() -> None:
    made, log = leader()
    log.append([5])
    made.leading().park(1, 77)

    assert failed(made.step_down()) == [77]
    assert made.role is Role.FENCED
    assert made.fetch_row() is None
    with pytest.raises(NotLeader):
        made.leading().park(1, 78)


@pytest.mark.parametrize("to", [2, NO_LEADER])
@pytest.mark.parametrize("held", [1, 2])
def test_fenced_within_an_epoch_it_follows_by_a_grant_of_the_same(held: int, to: int) -> None:
    """A broker whose session expired registers again; its partition need not change."""
    made, _ = replica([1])
    made.on_leader_and_isr(row(held, 5), 0)
    made.step_down()

    code, effects = made.on_leader_and_isr(row(to, 5), 0)

    assert (code, made.role) == (NO_ERROR, Role.FOLLOWER)
    assert (StartFetching(2, 5) in effects) is (to == 2)


def test_fenced_within_an_epoch_it_never_leads_in_it_again() -> None:
    """An ISR proposal of the former leadership may still be under way (rule R5)."""
    made, _ = leader([5])
    made.step_down()

    assert made.on_leader_and_isr(row(1, 5, version=9), 0) == (FencedLeaderEpoch.code, [])
    assert made.role is Role.FENCED
    assert made.on_leader_and_isr(row(1, 6, version=10), 0)[0] == NO_ERROR
    assert leadership(made).epoch_start == 1


@pytest.mark.parametrize(("stored", "end", "starts_at"), [(5, 3, 3), (2, 3, 2), (0, 0, 0)])
def test_the_checkpointed_high_watermark_is_capped_by_the_log(
    stored: int, end: int, starts_at: int
) -> None:
    made, _ = replica([1] * end, high_watermark=stored)

    assert made.state.high_watermark == starts_at


def test_reading_a_newer_epoch_deposes() -> None:
    made, log = leader()
    log.append([5])
    made.leading().park(1, 77)

    effects = made.on_state_read(PublishedState(2, 6, (2, 3), (), 4))

    assert failed(effects) == [77]
    assert made.role is Role.FENCED


def test_reading_no_state_deposes() -> None:
    made, _ = leader()

    made.on_state_read(None)

    assert made.role is Role.FENCED


@pytest.mark.parametrize("state", [None, PublishedState(1, 9, (1,), (), 9)])
def test_a_follower_reads_no_state(state: PublishedState | None) -> None:
    made, _ = replica()
    made.on_leader_and_isr(row(2, 5), 0)

    assert made.on_state_read(state) == []
    assert made.role is Role.FOLLOWER


def test_defect_08_a_log_with_an_epoch_above_the_granted_one_does_not_lead() -> None:
    made, _ = replica([1, 1, 1029])

    code, effects = made.on_leader_and_isr(row(ME, 5), 0)

    assert (code, effects) == (UnknownLeaderEpoch.code, [])
    assert made.role is Role.FENCED
    code, _ = made.on_leader_and_isr(row(2, 6), 0)
    assert (code, made.role) == (NO_ERROR, Role.FOLLOWER)


def test_defect_08_a_follower_truncates_what_has_an_epoch_above_the_published_one() -> None:
    """Its leader answers with the end of the largest epoch up to the one that it was asked for."""
    made, _ = replica([1, 1, 1029])
    made.on_leader_and_isr(row(2, 5), 0)

    effects = made.on_fetch_answer(
        FetchedRow(0, 5, 3, 1029, NO_ERROR, 2, 0, diverging_epoch=1, diverging_end=7)
    )

    assert Truncate(2) in effects

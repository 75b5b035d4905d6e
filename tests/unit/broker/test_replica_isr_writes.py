"""Publishing ISR changes: one write in flight, results that come late, twice or not at all."""

from __future__ import annotations

from itertools import product

import pytest

from leadline_broker.domain.effects import Effect, ReadState, WriteIsr
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.replica import Replica, Role
from leadline_broker.domain.rules import Rules
from leadline_broker.domain.state import PublishedState, ReplicaConfig
from leadline_common.rpc import NO_ERROR, PartitionRow
from tests.unit.broker.replicas import (
    AR,
    LAG_MS,
    ME,
    Follower,
    MemoryLog,
    acknowledged,
    failed,
    leader,
    leadership,
    proposals,
    replica,
    row,
    the_proposal,
)

COMMITTED, UNKNOWN = IsrWriteResult.COMMITTED, IsrWriteResult.UNKNOWN
CONFLICT, REFUSED = IsrWriteResult.CONFLICT, IsrWriteResult.JOINER_REFUSED


def shrinking() -> tuple[Replica, MemoryLog]:
    """Return a leader of three that proposes to drop broker 3."""
    made, log = leader([5])
    Follower(made, 2).fetch(1, 5, now=LAG_MS)
    proposal = the_proposal(made.maybe_change_isr(LAG_MS + 1))
    assert (proposal.isr, proposal.state_version) == ((1, 2), 0)
    return made, log


def growing(rules: Rules | None = None) -> tuple[Replica, MemoryLog]:
    """Return a leader with ISR (1, 2) that proposes to add broker 3; all hold one record."""
    made, log = leader([5], isr=(1, 2), rules=rules or Rules())
    Follower(made, 2).fetch(1, 5)
    _, effects = Follower(made, 3, incarnation=7).fetch(1, 5)
    assert the_proposal(effects).joiners == ((3, 7),)
    return made, log


def test_a_committed_shrink_is_taken() -> None:
    made, _ = shrinking()

    made.on_isr_written(1, COMMITTED, 1)

    assert (made.state.isr, made.state.state_version) == ((1, 2), 1)
    assert leadership(made).pending is None
    assert made.state.high_watermark == 1


def test_one_write_is_in_flight_at_a_time() -> None:
    made, _ = shrinking()

    assert made.maybe_change_isr(10 * LAG_MS) == []
    _, effects = Follower(made, 3).fetch(1, 5, now=10 * LAG_MS)
    assert proposals(effects) == []


@pytest.mark.parametrize("result", list(IsrWriteResult))
@pytest.mark.parametrize("number", [0, 2, 99])
def test_results_of_other_proposals_are_ignored(number: int, result: IsrWriteResult) -> None:
    made, _ = shrinking()

    assert made.on_isr_written(number, result, 8) == []
    assert leadership(made).pending is not None
    assert (made.state.isr, made.state.state_version) == (AR, 0)


@pytest.mark.parametrize("result", list(IsrWriteResult))
def test_a_result_is_used_once(result: IsrWriteResult) -> None:
    made, _ = shrinking()
    made.on_isr_written(1, COMMITTED, 1)

    assert made.on_isr_written(1, result, 9) == []
    assert made.state.state_version == 1


@pytest.mark.parametrize("result", [UNKNOWN, CONFLICT])
def test_what_is_not_known_is_read(result: IsrWriteResult) -> None:
    made, _ = growing()

    assert made.on_isr_written(1, result) == [ReadState()]
    assert leadership(made).pending is not None


def test_without_rule_r7_an_unknown_write_is_taken_for_failed() -> None:
    made, _ = growing(Rules(r7_ambiguous=False))

    made.on_isr_written(1, UNKNOWN)

    assert leadership(made).pending is None


def test_a_write_of_unknown_outcome_that_was_applied_is_adopted() -> None:
    made, _ = growing()
    made.on_isr_written(1, UNKNOWN)

    made.on_state_read(PublishedState(1, 5, AR, (), 1))

    assert (made.state.isr, made.state.state_version) == (AR, 1)
    assert leadership(made).pending is None


def test_a_write_of_unknown_outcome_that_was_not_applied_is_written_again() -> None:
    made, _ = growing()
    pending = leadership(made).pending
    assert pending is not None
    made.on_isr_written(1, UNKNOWN)

    assert made.on_state_read(PublishedState(1, 5, (1, 2), (), 0)) == [WriteIsr(pending)]
    assert leadership(made).pending is pending


def test_a_late_read_does_not_settle_a_newer_proposal() -> None:
    """Taking the old ISR for the last word would commit without the joiner (rules R3, R5)."""
    made, log = shrinking()
    third = Follower(made, 3)
    made.on_isr_written(1, UNKNOWN)
    read_before_the_next_write = PublishedState(1, 5, (1, 2), (), 1)
    made.on_leader_and_isr(row(1, 5, (1, 2), version=1), 0)
    _, effects = third.fetch(1, 5, now=2 * LAG_MS)
    assert the_proposal(effects).isr == AR
    log.append([5])
    made.leading().park(2, 77)
    Follower(made, 2, incarnation=1).fetch(2, 5, now=2 * LAG_MS)

    assert acknowledged(made.on_state_read(read_before_the_next_write)) == []
    assert made.state.high_watermark == 1
    assert acknowledged(third.fetch(2, 5, now=2 * LAG_MS)[1]) == [77]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_read_of_an_older_version_changes_nothing(version: int) -> None:
    made, _ = leader([5], version=3)

    assert made.on_state_read(PublishedState(1, 5, (1,), (), version)) == []
    assert (made.state.isr, made.state.state_version) == (AR, 3)


def test_a_refused_joiner_must_fetch_again() -> None:
    made, log = growing()

    made.on_isr_written(1, REFUSED)

    assert made.state.isr == (1, 2)
    assert proposals(made.maybe_change_isr(0)) == []
    second = Follower(made, 3, incarnation=8)
    assert the_proposal(second.fetch(1, 5)[1]).joiners == ((3, 8),)
    assert log.log_end_offset == 1


def test_a_refusal_does_not_forget_a_newer_incarnation() -> None:
    made, _ = growing()
    Follower(made, 3, incarnation=8).fetch(1, 5)

    made.on_isr_written(1, REFUSED)

    assert leadership(made).progress[3].end == 1


def test_the_watermark_waits_for_a_proposed_member() -> None:
    made, log = growing()
    second = Follower(made, 2, incarnation=1)
    log.append([5])
    made.leading().park(2, 77)

    assert acknowledged(second.fetch(2, 5)[1]) == []
    assert made.state.high_watermark == 1
    effects = Follower(made, 3, incarnation=8).fetch(2, 5)[1]
    assert acknowledged(effects) == [77]


def test_without_rule_r5_it_does_not_wait() -> None:
    made, log = growing(Rules(r5_proposed_isr=False))
    log.append([5])

    Follower(made, 2, incarnation=1).fetch(2, 5)

    assert made.state.high_watermark == 2


def test_the_watermark_waits_for_a_member_until_its_removal_is_published() -> None:
    made, log = shrinking()

    assert made.state.high_watermark == 0
    made.on_isr_written(1, COMMITTED, 1)
    assert made.state.high_watermark == log.log_end_offset


def test_below_the_floor_nothing_commits() -> None:
    made, log = leader([5], isr=(1, 2))
    made.maybe_change_isr(2 * LAG_MS)
    made.on_isr_written(1, COMMITTED, 1)
    assert (made.state.isr, made.state.eligible) == ((1,), (2,))

    log.append([5])
    assert made.on_durable() == []
    assert made.state.high_watermark == 0


@pytest.mark.parametrize("then", list(product(list(IsrWriteResult), [0, 1, 2])))
def test_after_a_new_epoch_results_of_the_old_one_are_ignored(
    then: tuple[IsrWriteResult, int],
) -> None:
    made, _ = shrinking()
    made.on_leader_and_isr(row(1, 6, version=2), 0)

    assert made.on_isr_written(1, *then) == []
    assert (made.role, made.state.isr, made.state.state_version) == (Role.LEADER, AR, 2)


@pytest.mark.parametrize("result", list(IsrWriteResult))
def test_after_deposition_results_are_ignored(result: IsrWriteResult) -> None:
    made, _ = shrinking()
    made.on_leader_and_isr(row(2, 6, version=2), 0)

    assert made.on_isr_written(1, result, 1) == []
    assert made.role is Role.FOLLOWER


def test_proposals_are_numbered_over_epochs() -> None:
    made, _ = shrinking()
    made.on_leader_and_isr(row(1, 6, version=2), 0)

    assert the_proposal(made.maybe_change_isr(3 * LAG_MS)).number == 2


def test_a_conflict_with_a_newer_epoch_steps_down() -> None:
    made, log = shrinking()
    log.append([5])
    made.leading().park(2, 77)
    assert made.on_isr_written(1, CONFLICT) == [ReadState()]

    assert failed(made.on_state_read(PublishedState(2, 6, (2, 3), (), 1))) == [77]
    assert made.role is Role.FENCED


def below_the_floor(*, adding: tuple[int, ...] = ()) -> tuple[Replica, MemoryLog]:
    """Return a leader alone in the ISR, with 2 eligible, and a record that is not committed."""
    made, log = replica([5], high_watermark=1)
    grant = PartitionRow(0, ME, 6, (1,), AR, 3, (2,), adding)
    assert made.on_leader_and_isr(grant, 0)[0] == NO_ERROR
    log.append([6])
    assert leadership(made).park(2, token=9) == []
    return made, log


def lower_the_minimum(made: Replica) -> list[Effect]:
    made.state.config = ReplicaConfig(1, LAG_MS)
    return made.on_durable()


def test_defect_07_after_a_lowered_minimum_the_eligible_are_dropped_before_anything_commits() -> (
    None
):
    made, _ = below_the_floor()
    assert made.on_durable() == []

    effects = lower_the_minimum(made)

    proposal = the_proposal(effects)
    assert (proposal.isr, proposal.eligible, proposal.state_version) == ((1,), (), 3)
    assert (made.state.high_watermark, acknowledged(effects)) == (1, [])
    assert made.on_durable() == []

    effects = made.on_isr_written(proposal.number, COMMITTED, 4)

    assert (made.state.high_watermark, acknowledged(effects)) == (2, [9])
    assert made.state.eligible == ()


@pytest.mark.parametrize("result", [UNKNOWN, CONFLICT])
def test_defect_07_nothing_commits_while_it_is_unknown_whether_the_eligible_were_dropped(
    result: IsrWriteResult,
) -> None:
    made, _ = below_the_floor()
    proposal = the_proposal(lower_the_minimum(made))

    made.on_isr_written(proposal.number, result)
    again = made.on_state_read(PublishedState(ME, 6, (1,), (2,), 3))

    assert the_proposal(again).eligible == ()
    assert made.state.high_watermark == 1

    made.on_state_read(PublishedState(ME, 6, (1,), (), 4))

    assert made.state.high_watermark == 2


def test_defect_07_a_leader_with_a_lower_floor_than_the_controller_commits_nothing_at_first() -> (
    None
):
    made, _ = below_the_floor(adding=(2, 3))

    effects = made.on_durable()

    assert (made.state.isr_floor, made.state.high_watermark) == (1, 1)
    assert (the_proposal(effects).isr, the_proposal(effects).eligible) == ((1,), ())


def test_defect_07_members_that_leave_before_the_eligible_are_dropped_are_eligible_too() -> None:
    made, _ = leader([5, 5], isr=(1, 2), eligible=(3,), min_insync=3)
    Follower(made, 2).fetch(1, 5)
    made.state.config = ReplicaConfig(2, LAG_MS)

    proposal = the_proposal(made.maybe_change_isr(2 * LAG_MS))

    assert (proposal.isr, proposal.eligible) == ((1,), (2, 3))

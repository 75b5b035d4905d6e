"""Leading: which fetches count, who may join, what is acknowledged (rules R1-R6)."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from leadline_broker.domain.effects import Flush, HighWatermarkAdvanced, ResetLog
from leadline_broker.domain.isr import UNKNOWN_END
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.rules import Rules
from leadline_client.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    NotEnoughReplicas,
    OffsetOutOfRange,
    StaleIncarnation,
    UnknownLeaderEpoch,
)
from leadline_common.rpc import NO_ERROR, FetchRow
from tests.unit.broker.replicas import (
    LAG_MS,
    ME,
    Follower,
    acknowledged,
    leader,
    leadership,
    proposals,
    replica,
    row,
    the_proposal,
)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(4, FencedLeaderEpoch.code), (0, FencedLeaderEpoch.code), (6, UnknownLeaderEpoch.code)],
)
def test_fetches_of_other_epochs_are_refused_and_do_not_count(epoch: int, code: int) -> None:
    made, _ = leader([5])

    answer, effects = Follower(made, 2).fetch(1, 5, epoch=epoch)

    assert (answer.error_code, effects) == (code, [])
    assert (answer.leader_epoch, answer.fetch_offset, answer.last_epoch) == (epoch, 1, 5)
    assert leadership(made).progress[2].end == UNKNOWN_END


def test_without_rule_r1_they_count() -> None:
    made, _ = leader([5], rules=Rules(r1_identity=False))

    Follower(made, 2).fetch(1, 5, epoch=4)

    assert leadership(made).progress[2].end == 1


@pytest.mark.parametrize("broker", [1, 4])
def test_only_other_replicas_fetch(broker: int) -> None:
    made, _ = leader([5])

    answer, effects = Follower(made, broker).fetch(0)

    assert (answer.error_code, effects) == (InvalidRequest.code, [])


def test_an_older_incarnation_is_refused() -> None:
    made, _ = leader([5])
    Follower(made, 2, incarnation=3).fetch(1, 5)

    answer, _ = Follower(made, 2, incarnation=2).fetch(0)

    assert answer.error_code == StaleIncarnation.code
    assert leadership(made).progress[2].end == 1


def test_a_newer_incarnation_begins_again() -> None:
    made, _ = leader([5, 5])
    Follower(made, 2, incarnation=3).fetch(2, 5)

    Follower(made, 2, incarnation=4).fetch(0)

    assert leadership(made).progress[2].end == 0
    assert leadership(made).progress[2].incarnation == 4


def test_what_an_earlier_incarnation_stated_does_not_count_while_the_newer_one_diverges() -> None:
    """A power cut may have lost what the earlier one had (rule R9)."""
    made, _ = leader([1, 1, 5])
    Follower(made, 2, incarnation=3).fetch(3, 5)

    answer, effects = Follower(made, 2, incarnation=4).fetch(3, 2)

    assert (answer.diverging_end, effects) == (2, [])
    assert leadership(made).progress[2].end == UNKNOWN_END


@pytest.mark.parametrize("nonce", [1, 2])
def test_late_and_repeated_fetches_are_refused(nonce: int) -> None:
    made, _ = leader([5, 5])
    follower = Follower(made, 2)
    follower.fetch(0)
    follower.fetch(2, 5)

    follower.nonce = nonce - 1
    answer, effects = follower.fetch(0)

    assert (answer.error_code, effects) == (StaleIncarnation.code, [])
    assert leadership(made).progress[2].end == 2


def test_nothing_of_a_diverging_follower_counts() -> None:
    made, _ = leader([1, 1, 5])

    answer, effects = Follower(made, 2).fetch(3, 2)

    assert (answer.diverging_epoch, answer.diverging_end, effects) == (1, 2, [])
    assert leadership(made).progress[2].end == UNKNOWN_END


def test_without_rule_r2_a_diverging_follower_counts() -> None:
    made, _ = leader([1, 1, 5], rules=Rules(r2_reconcile=False))

    Follower(made, 2).fetch(3, 2)

    assert leadership(made).progress[2].end == 3


@pytest.mark.parametrize(
    ("offset", "last_epoch", "expected"),
    [
        (0, -1, None),
        (2, 1, None),
        (1, 1, None),
        (4, 3, None),
        (3, 1, (1, 2)),
        (5, 3, (3, 4)),
        (3, 2, (1, 2)),
        (2, 2, (1, 2)),
        (9, 4, (3, 4)),
        (1, 0, (-1, 0)),
    ],
)
def test_the_divergence_is_the_end_of_the_largest_epoch_not_above(
    offset: int, last_epoch: int, expected: tuple[int, int] | None
) -> None:
    made, _ = leader([1, 1, 3, 3])

    answer, _ = Follower(made, 2).fetch(offset, last_epoch)

    assert answer.error_code == NO_ERROR
    assert (answer.diverging_epoch, answer.diverging_end) == (expected or (-1, -1))


def test_an_empty_follower_beyond_the_log_is_out_of_range() -> None:
    made, _ = leader([1])

    answer, effects = Follower(made, 2).fetch(5)

    assert (answer.error_code, effects) == (OffsetOutOfRange.code, [])


@pytest.mark.parametrize("offset", [0, 2, 5])
def test_an_out_of_range_fetch_is_no_progress(offset: int) -> None:
    """The follower will restart its log, so that it holds nothing of what its offset says."""
    made, log = leader([1, 1, 1])
    log.log_start_offset = 1
    log.truncate(1)

    answer, effects = Follower(made, 2).fetch(offset)

    assert (answer.error_code, effects) == (OffsetOutOfRange.code, [])
    assert leadership(made).progress[2].end == UNKNOWN_END


@pytest.mark.parametrize("offset", [1, 3, 4])
def test_a_follower_begins_again_where_retention_leaves_nothing_to_compare(offset: int) -> None:
    """Its last record is older than any here. Truncating there, it would keep nothing at all."""
    made, log = leader([3, 3, 3, 5, 5])
    log.log_start_offset = 3
    log.epochs.advance_start(3)

    answer, effects = Follower(made, 2).fetch(offset, 3)

    assert (answer.error_code, answer.diverging_end, effects) == (OffsetOutOfRange.code, -1, [])
    assert leadership(made).progress[2].end == UNKNOWN_END


def test_defect_31_an_in_sync_follower_of_a_log_without_records_keeps_its_end() -> None:
    """An append that had begun a segment failed, and retention removed all before it."""
    made, log = leader([5, 5, 5])
    log.log_start_offset = 3
    log.epochs.truncate_to(0)
    follower, _ = replica([5, 5, 5], me=2, high_watermark=3)
    follower.on_leader_and_isr(row(ME, 5), 0)
    asked = follower.fetch_row()
    assert asked is not None

    answer, _ = Follower(made, 2).fetch(asked.fetch_offset, asked.last_epoch)

    assert follower.on_fetch_answer(answer) == [ResetLog(3), Flush()]


def test_a_follower_agrees_with_a_log_that_begins_in_its_epoch() -> None:
    made, log = leader([3, 3, 3, 3])
    log.log_start_offset = 3
    log.epochs.advance_start(3)

    answer, _ = Follower(made, 2).fetch(3, 3)

    assert (answer.error_code, answer.diverging_end) == (NO_ERROR, -1)
    assert leadership(made).progress[2].end == 3


def test_it_commits_when_every_member_has_fetched_in_this_epoch() -> None:
    made, _ = leader([5, 5])

    assert Follower(made, 2).fetch(2, 5)[1] == []
    assert Follower(made, 3).fetch(1, 5)[1] == [HighWatermarkAdvanced(1)]


def test_what_members_said_in_an_earlier_epoch_does_not_count() -> None:
    made, log = leader([5])
    followers = [Follower(made, broker) for broker in (2, 3)]
    for follower in followers:
        follower.fetch(1, 5)
    made.on_leader_and_isr(row(1, 6, version=1), 0)
    log.append([6])

    assert made.on_durable() == []
    assert made.state.high_watermark == 1


def test_the_leader_counts_its_own_durable_end() -> None:
    made, log = leader(isr=(1, 2))
    log.append([5], durable=False)
    assert Follower(made, 2).fetch(1, 5)[1] == []

    log.durable_end_offset = 1

    assert made.on_durable() == [HighWatermarkAdvanced(1)]


def test_without_rule_r4_it_does_not_wait_for_its_disk() -> None:
    made, log = leader(isr=(1, 2), rules=Rules(r4_durable_ends=False))
    log.append([5], durable=False)

    assert Follower(made, 2).fetch(1, 5)[1] == [HighWatermarkAdvanced(1)]


def test_a_peek_counts_nothing() -> None:
    made, _ = leader([5], isr=(1, 2))

    answer = made.peek(FetchRow(0, 5, 1, 5))

    assert (answer.error_code, answer.high_watermark) == (NO_ERROR, 0)
    assert leadership(made).progress[2].end == UNKNOWN_END
    assert made.peek(FetchRow(0, 4, 1, 5)).error_code == FencedLeaderEpoch.code


# -- acknowledgements -------------------------------------------------------------------


def test_it_acknowledges_in_the_order_of_offsets() -> None:
    made, log = leader(isr=(1, 2))
    log.append([5, 5, 5])
    for offset in (1, 2, 3):
        made.leading().park(offset, 70 + offset)
    follower = Follower(made, 2)

    assert acknowledged(follower.fetch(2, 5)[1]) == [71, 72]
    assert acknowledged(follower.fetch(3, 5)[1]) == [73]


def test_what_is_committed_is_acknowledged_at_once() -> None:
    made, _ = leader([5, 5], isr=(1, 2))
    Follower(made, 2).fetch(2, 5)

    assert acknowledged(made.leading().park(2, 7)) == [7]


def test_who_gave_up_is_not_acknowledged() -> None:
    made, log = leader(isr=(1, 2))
    log.append([5])
    made.leading().park(1, 7)
    made.unpark(7)

    assert acknowledged(Follower(made, 2).fetch(1, 5)[1]) == []


@pytest.mark.parametrize(
    ("isr", "replicas", "min_insync", "enough"),
    [
        ((1, 2, 3), (1, 2, 3), 2, True),
        ((1, 2), (1, 2, 3), 2, True),
        ((1,), (1, 2, 3), 2, False),
        ((1,), (1,), 2, True),
        ((1,), (1, 2), 2, False),
        ((1,), (1, 2), 1, True),
        ((1, 2), (1, 2, 3), 3, False),
    ],
)
def test_acks_all_need_enough_replicas(
    isr: tuple[int, ...], replicas: tuple[int, ...], min_insync: int, enough: bool
) -> None:
    made, _ = leader(isr=isr, replicas=replicas, min_insync=min_insync)

    made.leading().check_append(all_replicas=False)
    if enough:
        made.leading().check_append(all_replicas=True)
    else:
        with pytest.raises(NotEnoughReplicas):
            made.leading().check_append(all_replicas=True)


def test_a_single_replica_commits_by_itself() -> None:
    made, log = leader(isr=(1,), replicas=(1,))
    assert made.leading().on_appended(log.log_end_offset, 0) == [Flush()]
    log.append([5])

    assert made.on_durable() == [HighWatermarkAdvanced(1)]


# -- ISR --------------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "joins"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_joiner_must_reach_the_epoch_start(end: int, joins: bool) -> None:
    """An earlier leader may have committed up to there, unknown to this one."""
    made, _ = leader([1, 1, 1], isr=(1, 2), high_watermark=1)

    _, effects = Follower(made, 3).fetch(end, 1 if end else -1)

    assert [p.isr for p in proposals(effects)] == ([(1, 2, 3)] if joins else [])


def test_without_rule_r6_the_high_watermark_is_enough() -> None:
    made, _ = leader([1, 1, 1], isr=(1, 2), high_watermark=1, rules=Rules(r6_joiner=False))

    proposal = the_proposal(Follower(made, 3).fetch(1, 1)[1])

    assert (proposal.isr, proposal.joiners) == ((1, 2, 3), ())


def test_who_is_about_to_stop_does_not_join_until_it_is_back() -> None:
    made, _ = leader([5], isr=(1, 2))
    third = Follower(made, 3)
    assert proposals(third.fetch(1, 5, leaving=True)[1]) == []
    assert made.maybe_change_isr(0) == []
    third.incarnation += 1
    assert the_proposal(third.fetch(1, 5)[1]).isr == (1, 2, 3)


def test_one_joins_at_a_time_in_the_order_of_assignment() -> None:
    made, _ = leader([5], isr=(2, 1), replicas=(4, 3, 2, 1))
    Follower(made, 3).fetch(1, 5)
    Follower(made, 4).fetch(1, 5)

    pending = leadership(made).pending
    assert pending is not None
    assert pending.isr == (3, 2, 1)


def test_a_member_that_lags_is_dropped() -> None:
    made, log = leader([5])
    second, third = Follower(made, 2), Follower(made, 3)
    second.fetch(1, 5)
    third.fetch(1, 5)
    made.leading().on_appended(log.log_end_offset, 10)
    log.append([5])
    second.fetch(2, 5, now=LAG_MS)

    assert made.maybe_change_isr(10 + LAG_MS) == []
    proposal = the_proposal(made.maybe_change_isr(11 + LAG_MS))
    assert (proposal.isr, proposal.reason, proposal.joiners) == ((1, 2), "lagging", ())


def test_without_new_records_nobody_lags() -> None:
    made, _ = leader([5])
    for broker in (2, 3):
        Follower(made, broker).fetch(1, 5)

    assert made.maybe_change_isr(1000 * LAG_MS) == []


def test_who_lags_does_not_join_although_it_has_what_is_committed() -> None:
    """It would be removed again at once, and hold back the high watermark until then."""
    made, log = leader([5, 5], isr=(1, 2))
    Follower(made, 2).fetch(2, 5)
    third = Follower(made, 3)
    third.fetch(0)
    log.append([5])

    assert proposals(third.fetch(2, 5, now=2 * LAG_MS)[1]) == []
    assert the_proposal(third.fetch(3, 5, now=2 * LAG_MS)[1]).isr == (1, 2, 3)


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "sync", "fetch 2", "fetch 3", "tick", "write"])),
        max_size=40,
    )
)
def test_the_watermark_rises_and_covers_only_what_every_member_holds(
    steps: list[tuple[str]],
) -> None:
    made, log = leader()
    followers = {2: Follower(made, 2), 3: Follower(made, 3)}
    held = {2: 0, 3: 0}
    now = mark = 0
    for (step,) in steps:
        now += LAG_MS // 3
        if step == "append":
            made.leading().on_appended(log.log_end_offset, now)
            log.append([5], durable=False)
        elif step == "sync":
            log.durable_end_offset = log.log_end_offset
            made.on_durable()
        elif step == "tick":
            made.maybe_change_isr(now)
        elif step == "write" and (pending := leadership(made).pending) is not None:
            made.on_isr_written(pending.number, IsrWriteResult.COMMITTED, pending.state_version + 1)
        elif step.startswith("fetch"):
            broker = int(step[-1])
            followers[broker].fetch(held[broker], 5 if held[broker] else -1, now=now)
            held[broker] = log.log_end_offset
        counted = {b: leadership(made).progress[b].end for b in (2, 3)}
        members = {*made.state.isr, *(pending.isr if (pending := leadership(made).pending) else ())}
        after = made.state.high_watermark
        assert mark <= after <= log.log_end_offset
        if after > mark:
            assert after <= log.durable_end_offset
            assert all(after <= counted[b] for b in members if b in counted)
        assert 1 in made.state.isr
        mark = after


def test_a_partition_that_waits_for_a_dead_follower_is_settled() -> None:
    """Else a broker looks at all its partitions every half a second while another one is down."""
    made, log = leader([5], isr=(1, 2))
    assert not leadership(made).is_settled
    Follower(made, 2).fetch(1, 5)
    assert leadership(made).is_settled

    log.append([5])
    made.on_durable()
    assert not leadership(made).is_settled
    Follower(made, 2, incarnation=1).fetch(2, 5)
    assert leadership(made).is_settled

    _, effects = Follower(made, 3, incarnation=1).fetch(2, 5)
    assert the_proposal(effects).isr == (1, 2, 3)
    assert not leadership(made).is_settled


def test_a_removal_that_is_being_written_is_not_settled_though_its_follower_caught_up() -> None:
    made, log = leader([5])
    Follower(made, 2).fetch(1, 5, now=LAG_MS)
    assert the_proposal(made.maybe_change_isr(LAG_MS + 1)).isr == (1, 2)

    Follower(made, 3).fetch(1, 5, now=LAG_MS + 2)

    assert made.state.high_watermark == log.log_end_offset
    assert not leadership(made).is_settled


def test_a_follower_that_caught_up_while_another_joined_is_not_settled() -> None:
    """Its fetch was answered, and the next one may be long in coming."""
    made, _ = leader([5], isr=(1,), min_insync=1)
    _, effects = Follower(made, 2, incarnation=1).fetch(1, 5)
    joining = the_proposal(effects)
    assert joining.isr == (1, 2)
    Follower(made, 3, incarnation=1).fetch(1, 5)

    made.on_isr_written(joining.number, IsrWriteResult.COMMITTED, 1)

    assert not leadership(made).is_settled
    assert the_proposal(made.maybe_change_isr(1)).isr == (1, 2, 3)


fetches = st.lists(
    st.tuples(st.sampled_from((2, 3)), st.integers(0, 3), st.integers(0, 3 * LAG_MS)), max_size=6
)


@given(
    records=st.integers(0, 3),
    high_watermark=st.integers(0, 3),
    isr=st.sampled_from(((1,), (1, 2))),
    fetched=fetches,
    appended=st.integers(0, 1),
    later=st.integers(0, 9 * LAG_MS),
)
def test_time_changes_no_incomplete_isr_of_a_settled_partition(
    records: int,
    high_watermark: int,
    isr: tuple[int, ...],
    fetched: list[tuple[int, int, int]],
    appended: int,
    later: int,
) -> None:
    made, log = leader([5] * records, isr=isr, high_watermark=min(high_watermark, records))
    for broker, offset, now in sorted(fetched, key=lambda one: one[2]):
        Follower(made, broker, incarnation=now).fetch(offset, 5 if offset else -1, now=now)
    log.append([5] * appended)
    made.on_durable()
    for broker in isr[1:]:
        Follower(made, broker, incarnation=9 * LAG_MS).fetch(log.log_end_offset, 5, now=9 * LAG_MS)
    assume(leadership(made).is_settled)

    assert made.maybe_change_isr(9 * LAG_MS + later) == []

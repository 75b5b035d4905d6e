"""Leader epoch histories, and two logs that find where they part (rule R2)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.domain.effects import AppendFetched, Truncate
from leadline_broker.domain.epochs import NO_EPOCH, EpochHistory
from leadline_common.rpc import NO_ERROR
from tests.unit.broker.replicas import MemoryLog, leader, replica, row

Log = list[int]
"""A log as the leader epochs of its records."""

epoch_steps = st.lists(st.integers(0, 2), max_size=14)


def rising(steps: Sequence[int], start: int = 0) -> Log:
    log, epoch = [], start
    for step in steps:
        epoch += step
        log.append(epoch)
    return log


def history_of(log: Log) -> EpochHistory:
    history = EpochHistory()
    for offset, epoch in enumerate(log):
        history.assign(epoch, offset)
    return history


def end_by_hand(log: Log, epoch: int) -> tuple[int, int]:
    """Say what `end_of` promises, in the plainest way."""
    not_above = [e for e in log if e <= epoch]
    if not_above:
        return not_above[-1], len(not_above)
    return NO_EPOCH, 0


@given(epoch_steps, st.integers(-1, 30))
def test_end_of_is_what_counting_says(steps: list[int], epoch: int) -> None:
    log = rising(steps)

    assert history_of(log).end_of(epoch, len(log)) == end_by_hand(log, epoch)


@given(epoch_steps)
def test_epoch_at_is_the_epoch_of_the_record(steps: list[int]) -> None:
    log = rising(steps)
    history = history_of(log)

    assert [history.epoch_at(offset) for offset in range(len(log))] == log
    assert history.latest == (log[-1] if log else NO_EPOCH)


@given(epoch_steps, st.integers(0, 15))
def test_a_cut_history_is_that_of_the_cut_log(steps: list[int], end: int) -> None:
    log = rising(steps)
    history = history_of(log)

    history.truncate_to(end)

    assert history.entries() == history_of(log[:end]).entries()


@given(epoch_steps, st.integers(0, 14))
def test_retention_forgets_nothing_of_what_is_kept(steps: list[int], start: int) -> None:
    log = rising(steps)
    history = history_of(log)

    history.advance_start(start)

    assert [history.epoch_at(o) for o in range(start, len(log))] == log[start:]
    if start < len(log):
        assert history.entries()[0] == (log[start], start)


@given(epoch_steps)
def test_entries_make_an_equal_history(steps: list[int]) -> None:
    history = history_of(rising(steps))

    assert EpochHistory(history.entries()).entries() == history.entries()


@given(epoch_steps)
def test_epochs_and_starts_strictly_rise(steps: list[int]) -> None:
    entries = history_of(rising(steps)).entries()

    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))


@pytest.mark.parametrize(
    ("epoch", "offset"),
    [(2, 9), (1, 5), (4, 5), (4, 4), (4, 0)],
    ids=["older", "older at the start", "no longer than the last", "before it", "at the front"],
)
def test_an_entry_out_of_order_is_refused(epoch: int, offset: int) -> None:
    history = EpochHistory([(1, 0), (3, 5)])

    with pytest.raises(ValueError, match="after epoch 3 at offset 5"):
        history.assign(epoch, offset)
    assert history.entries() == [(1, 0), (3, 5)]


def test_repeating_the_latest_epoch_changes_nothing() -> None:
    history = EpochHistory([(1, 0), (3, 5)])

    history.assign(3, 99)

    assert history.entries() == [(1, 0), (3, 5)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (NO_EPOCH, 2)), (0, (NO_EPOCH, 2)), (1, (1, 5)), (2, (1, 5)), (3, (3, 8)), (9, (3, 8))],
)
def test_end_of_in_a_log_that_starts_late(epoch: int, expected: tuple[int, int]) -> None:
    assert EpochHistory([(1, 2), (3, 5)]).end_of(epoch, 8) == expected


def test_an_empty_log_ends_where_it_is() -> None:
    assert EpochHistory().end_of(4, 7) == (NO_EPOCH, 7)
    assert EpochHistory().latest == NO_EPOCH


def reconcile(leaders: Log, followers: Log, epoch: int) -> tuple[MemoryLog, int]:
    """Let a follower fetch from a leader until it has everything; return its log and the rounds."""
    leading, leader_log = leader(leaders, epoch=epoch, replicas=(1, 2), isr=(1, 2))
    following, log = replica(followers, me=2)
    following.on_leader_and_isr(row(1, epoch, (1, 2), replicas=(1, 2)), 0)
    for nonce in range(1, 100):
        asked = following.fetch_row()
        assert asked is not None
        answer, _ = leading.on_replica_fetch(asked, broker_id=2, incarnation=0, nonce=nonce, now=0)
        assert answer.error_code == NO_ERROR
        if answer.diverging_end < 0 and asked.fetch_offset == leader_log.log_end_offset:
            return log, nonce
        if answer.diverging_end < 0:
            log.append([leader_log.records[asked.fetch_offset]])
            continue
        before = log.log_end_offset
        (cut,) = following.on_fetch_answer(answer)
        assert isinstance(cut, Truncate)
        assert cut.end_offset < before
        log.truncate(cut.end_offset)
    raise AssertionError("the logs never agreed")


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[Log, Log, int]:
    """Draw a common beginning and two continuations in which no epoch is shared."""
    common = rising(draw(epoch_steps))
    epoch = common[-1] if common else 0
    ends: tuple[Log, Log] = ([], [])
    for whose in draw(st.lists(st.integers(0, 1), max_size=14)):
        epoch += 1
        ends[whose].extend([epoch] * draw(st.integers(1, 3)))
    return common + ends[0], common + ends[1], epoch + 1


@given(two_logs())
def test_two_logs_always_agree_on_their_common_beginning(logs: tuple[Log, Log, int]) -> None:
    leaders, followers, epoch = logs

    log, _ = reconcile(leaders, followers, epoch)

    assert log.records == leaders


@given(two_logs())
def test_reconciling_never_cuts_what_both_have(logs: tuple[Log, Log, int]) -> None:
    leaders, followers, epoch = logs
    common = next(
        (i for i, (a, b) in enumerate(zip(leaders, followers, strict=False)) if a != b),
        min(len(leaders), len(followers)),
    )
    following, log = replica(followers, me=2)
    leading, _ = leader(leaders, epoch=epoch, replicas=(1, 2), isr=(1, 2))
    following.on_leader_and_isr(row(1, epoch, (1, 2), replicas=(1, 2)), 0)

    for nonce in range(1, 40):
        asked = following.fetch_row()
        assert asked is not None
        answer, _ = leading.on_replica_fetch(asked, broker_id=2, incarnation=0, nonce=nonce, now=0)
        if answer.diverging_end < 0:
            break
        for effect in following.on_fetch_answer(answer):
            assert isinstance(effect, Truncate)
            assert effect.end_offset >= common
            log.truncate(effect.end_offset)

    assert log.log_end_offset == common


def test_leaders_that_changed_fast_are_told_apart() -> None:
    """The case of KIP-279: the follower's epoch is one that the leader never had."""
    log, rounds = reconcile([1, 1, 3], [1, 2, 2], 4)

    assert log.records == [1, 1, 3]
    assert rounds == 4


def test_a_longer_follower_of_the_same_epoch_is_cut() -> None:
    log, _ = reconcile([1, 1], [1, 1, 1, 1], 2)

    assert log.records == [1, 1]


def test_an_empty_leader_empties_its_follower() -> None:
    log, _ = reconcile([], [1, 1], 2)

    assert log.records == []


def test_an_empty_follower_is_filled() -> None:
    following, _ = replica(me=2)
    following.on_leader_and_isr(row(1, 5), 0)
    leading, _ = leader([1, 1])
    asked = following.fetch_row()
    assert asked is not None

    answer, _ = leading.on_replica_fetch(asked, broker_id=2, incarnation=0, nonce=1, now=0)

    assert (answer.error_code, answer.diverging_end) == (NO_ERROR, -1)
    assert not [e for e in following.on_fetch_answer(answer) if isinstance(e, AppendFetched)]


@given(st.lists(st.integers(0, 2), max_size=30), st.integers(0, 30), st.integers(0, 8))
def test_defect_02_a_log_has_what_a_reader_read_if_it_has_its_last_record(
    steps: list[int], offset: int, epoch: int
) -> None:
    log = rising(steps)
    ends = {"log_start_offset": 0, "log_end_offset": len(log)}
    has_read = offset == 0 or (offset <= len(log) and log[offset - 1] == epoch)
    assert history_of(log).has_read(offset, epoch, **ends) == has_read


def test_defect_02_records_that_retention_has_removed_are_not_held_against_a_reader() -> None:
    history = EpochHistory([(3, 10)])
    ends = {"log_start_offset": 10, "log_end_offset": 20}
    assert history.has_read(10, 1, **ends)
    assert history.has_read(11, 3, **ends)
    assert not history.has_read(11, 1, **ends)

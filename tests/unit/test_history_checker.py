"""Each anomaly of polls, sends, groups and advertised ends is found where it is planted.

`tests/simulation/test_history.py` has those of final reads.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.checks.anomalies import Anomaly, AnomalyKind
from tests.support.checks.group_history import Commit, GroupHistory
from tests.support.checks.history import Consumer, History, Read

T0, T1 = ("t", 0), ("t", 1)


def sent(count: int = 10) -> History:
    """Return a history in which v0, v1, ... were acknowledged at 0, 1, ... of T0."""
    made = History()
    for offset in range(count):
        row = made.send_batch([f"v{offset}"], T0, "p", at_s=float(offset))
        made.ack_batch(row, offset, at_s=offset + 0.5)
    return made


def records(*offsets: int) -> list[tuple[int, str]]:
    return [(offset, f"v{offset}") for offset in offsets]


def polled(*polls: tuple[int, ...]) -> tuple[History, Consumer]:
    """Return `sent()` with a consumer that got these offsets, and one that got everything."""
    made = sent()
    made.consumer("other").poll(T0, records(*range(10)), at_s=50.0)
    reader = made.consumer("reader")
    for number, offsets in enumerate(polls):
        reader.poll(T0, records(*offsets), at_s=100.0 + number)
    return made, reader


def kinds(found: list[Anomaly]) -> list[AnomalyKind]:
    return [one.kind for one in found]


def test_a_run_without_anomalies_has_none() -> None:
    made, reader = polled((0, 1, 2), (3, 4), (5, 6, 7, 8, 9))
    reader.finished([T0])
    made.ends.add(T0, 5, 1.0, 2.0, "reader")
    made.ends.add(T0, 10, 3.0, 4.0, "reader")
    assert made.check([Read(T0, records(*range(10)))]) == []


def test_records_before_the_log_start_may_be_missing() -> None:
    assert sent().check([Read(T0, records(*range(4, 10)), log_start=4)]) == []
    found = sent().check([Read(T0, records(*range(5, 10)), log_start=4)])
    assert [(one.kind, one.value) for one in found] == [(AnomalyKind.LOST, "v4")]


@pytest.mark.parametrize(
    ("polls", "kind", "value"),
    [
        (((0, 1), (3, 4)), AnomalyKind.POLL_SKIP, "v2"),
        (((0, 1, 3, 4),), AnomalyKind.INTERNAL_POLL_SKIP, "v2"),
        (((0, 1, 2), (1, 2, 3)), AnomalyKind.NONMONOTONIC_POLL, "v1"),
        (((0, 1, 2), (2, 3)), AnomalyKind.NONMONOTONIC_POLL, "v2"),
        (((0, 2, 1, 2),), AnomalyKind.INTERNAL_NONMONOTONIC_POLL, "v1"),
        (((0, 1, 1),), AnomalyKind.INTERNAL_NONMONOTONIC_POLL, "v1"),
    ],
)
def test_polls_in_the_wrong_order_are_found(
    polls: tuple[tuple[int, ...], ...], kind: AnomalyKind, value: str
) -> None:
    made, _ = polled(*polls)

    found = [one for one in made.check() if one.kind == kind]

    assert [(one.value, one.who) for one in found] == [(value, "reader")]
    assert found[0].at_s == 100.0 + len(polls) - 1


def test_a_consumer_that_sought_or_was_assigned_again_may_begin_anywhere() -> None:
    for is_assigned in (False, True):
        made, reader = polled((0, 1), (2, 3))
        if is_assigned:
            reader.assigned([T0], 2)
        else:
            reader.sought(T0)
        reader.poll(T0, records(1, 2), at_s=200.0)
        assert made.check() == []
        reader.poll(T0, records(5), at_s=201.0)
        assert kinds(made.check()) == [AnomalyKind.POLL_SKIP]


def test_offsets_that_nobody_has_cannot_be_skipped() -> None:
    made = History()
    row = made.send_batch(["a", "b"], T0)
    made.ack_batch(row)
    made.consumer("reader").poll(T0, [(0, "a"), (1 << 60, "b")])
    assert made.check() == []


def test_unseen_by_a_consumer_that_read_to_the_end() -> None:
    made, reader = polled(tuple(range(9)))
    assert made.check() == []
    reader.finished()
    found = made.check()
    assert [(one.kind, one.value, one.at_s) for one in found] == [(AnomalyKind.UNSEEN, "v9", 9.5)]


def test_unseen_by_a_consumer_that_was_given_nothing_at_all() -> None:
    made, reader = polled()
    reader.finished([T0])
    assert kinds(made.check()) == [AnomalyKind.UNSEEN] * 10


def test_what_any_member_was_given_the_group_has_seen() -> None:
    made = sent(4)
    one, other = made.consumer("one", "g"), made.consumer("other", "g")
    one.poll(T0, records(0, 1), at_s=20.0)
    one.finished()
    assert [found.value for found in made.check()] == ["v2", "v3"]
    other.poll(T0, records(2, 3), at_s=21.0)
    assert made.check() == []


def test_a_refused_record_in_a_poll_is_an_aborted_read() -> None:
    made = sent(1)
    made.refuse_batch(made.send_batch(["no"], T0, at_s=5.0), at_s=6.0)
    made.consumer("reader").poll(T0, [(0, "v0"), (1, "no")], at_s=7.0)
    assert kinds(made.check()) == [AnomalyKind.ABORTED_READ]


def test_what_was_polled_before_it_was_sent_is_unsent() -> None:
    made = sent(1)
    made.consumer("reader").poll(T0, [(0, "v0"), (1, "early")], at_s=2.0)
    made.ack_batch(made.send_batch(["early"], T0, at_s=3.0), at_s=4.0)
    found = made.check()
    assert [(one.kind, one.value, one.at_s) for one in found] == [(AnomalyKind.UNSENT, "early", 2)]


def test_two_consumers_with_two_values_at_one_offset() -> None:
    made = sent(2)
    made.consumer("one").poll(T0, records(0, 1), at_s=9.0)
    made.give_up_batch(made.send_batch(["x"], T0, at_s=10.0), at_s=11.0)
    made.consumer("two").poll(T0, [(0, "v0"), (1, "x")], at_s=12.0)
    found = made.check()
    assert kinds(found) == [AnomalyKind.INCONSISTENT_OFFSETS]
    assert found[0].detail == "at 1 for two, 'v1' for one"
    assert (found[0].at_s, found[0].who) == (12.0, "two")


def test_one_value_at_two_offsets_of_two_consumers_is_a_duplicate() -> None:
    made = sent(2)
    made.consumer("one").poll(T0, records(0, 1), at_s=9.0)
    made.consumer("two").poll(T0, [(2, "v0")], at_s=12.0)
    found = made.check()
    assert [(one.kind, one.detail) for one in found] == [(AnomalyKind.DUPLICATE, "at [0, 2]")]


@pytest.mark.parametrize(("log_start", "found"), [(0, 1), (1, 0), (3, 0)])
def test_a_value_whose_first_copy_retention_has_removed_may_be_there_again(
    log_start: int, found: int
) -> None:
    """A replica that was made after that does not know its producer."""
    made = sent(2)
    made.consumer("one").poll(T0, records(0, 1), at_s=9.0)
    again = Read(T0, [(2, "v0")], log_start=log_start)

    anomalies = [one for one in made.check([again]) if one.kind is AnomalyKind.DUPLICATE]

    assert len(anomalies) == found


def a_batch(values: str, places: str, base: int | None = 0) -> History:
    """Return a history of one send of single letters, read in the order of `places`."""
    made = History()
    made.ack_batch(made.send_batch(list(values), T0, "p", at_s=1.0), base, at_s=2.0)
    made.consumer("reader").poll(T0, list(enumerate(places)), at_s=3.0)
    return made


def test_values_of_one_send_in_another_order() -> None:
    assert a_batch("abc", "abc").check() == []
    found = a_batch("abc", "bac", base=None).check()
    assert [(o.kind, o.value) for o in found] == [(AnomalyKind.INTERNAL_NONMONOTONIC_SEND, "b")]


def test_misplaced_within_a_batch() -> None:
    found = a_batch("abc", "xabc").check()
    assert kinds(found) == [AnomalyKind.UNSENT] + [AnomalyKind.MISPLACED] * 3


def test_a_value_in_another_partition_is_misplaced() -> None:
    made = sent(2)
    made.consumer("reader").poll(T1, records(0), at_s=9.0)
    assert [(o.kind, o.partition) for o in made.check()] == [(AnomalyKind.MISPLACED, T1)]


def test_a_later_send_before_an_earlier_one() -> None:
    made = History()
    for at_s, values in ((1.0, ["a", "b"]), (3.0, ["c", "d"])):
        made.ack_batch(made.send_batch(values, T0, "p", at_s), at_s=at_s + 1)
    made.consumer("reader").poll(T0, list(enumerate("cdab")), at_s=9.0)
    found = made.check()
    assert [(one.kind, one.value, one.who) for one in found] == [
        (AnomalyKind.NONMONOTONIC_SEND, "c", "producer p")
    ]


def test_a_limit_keeps_reports_small() -> None:
    made = sent(10)
    found = made.check([Read(T0, [])], limit=3)
    assert kinds(found) == [AnomalyKind.LOST] * 4
    assert found[-1].value == 7


# -- groups (I10) ------------------------------------------------------------------


def grouped() -> History:
    """Return a history in which a member of the group g was given ten records and committed."""
    made = sent()
    member = made.consumer("m1", "g")
    member.assigned([T0], 1, at_s=20.0)
    member.poll(T0, records(*range(10)), at_s=21.0)
    made.group("g").committed(T0, Commit(10, 22.0, 23.0, "m1"))
    member.finished()
    return made


def test_a_group_that_commits_what_it_was_given_is_fine() -> None:
    assert grouped().check() == []


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lambda g: g.assigned("m2", 1, [T0], 24.0), AnomalyKind.TWO_OWNERS),
        (lambda g: g.assigned("m2", 2, [T0], 24.0), None),
        (
            lambda g: g.committed(T0, Commit(11, 24.0, 25.0, "m1")),
            AnomalyKind.COMMIT_BEYOND_DELIVERED,
        ),
        (
            lambda g: g.committed(T0, Commit(11, 24.0, 25.0, "m1", certain=False)),
            AnomalyKind.COMMIT_BEYOND_DELIVERED,
        ),
        (
            lambda g: g.committed(T0, Commit(10, 20.0, 20.5, "m1")),
            AnomalyKind.COMMIT_BEYOND_DELIVERED,
        ),
        (lambda g: g.committed(T0, Commit(5, 24.0, 25.0, "m2")), AnomalyKind.COMMIT_MOVED_BACK),
        (lambda g: g.committed(T0, Commit(5, 24.0, 25.0)), AnomalyKind.COMMIT_MOVED_BACK),
        (lambda g: g.committed(T0, Commit(5, 22.5, 25.0, "m2")), None),
        (lambda g: g.committed(T0, Commit(5, 24.0, 25.0, "m2", certain=False)), None),
    ],
)
def test_what_is_wrong_with_a_group_is_found(
    plant: Callable[[GroupHistory], None], kind: AnomalyKind | None
) -> None:
    made = grouped()
    plant(made.group("g"))
    assert kinds(made.check()) == ([] if kind is None else [kind])


def test_a_reset_moves_an_offset_back_and_another_commit_does_not() -> None:
    made = grouped()
    made.group("g").was_reset(T0, 3, at_s=24.0)
    made.group("g").committed(T0, Commit(3, 25.0, 26.0))
    assert made.check() == []


# -- advertised ends (I8) ----------------------------------------------------------


def test_a_latest_offset_that_falls_is_found() -> None:
    made = sent()
    made.ends.add(T0, 7, 1.0, 2.0, "one")
    made.ends.add(T0, 6, 1.5, 3.0, "two")
    assert made.check() == []
    made.ends.add(T0, 6, 2.5, 4.0, "two")
    found = made.check()
    assert [(o.kind, o.detail) for o in found] == [
        (AnomalyKind.LATEST_OFFSET_FELL, "two was told 6, after 7 to one")
    ]


# -- properties --------------------------------------------------------------------

BATCHES = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def honest(sizes: list[int], cuts: list[int]) -> tuple[History, list[str]]:
    """Return a history of batches in order, and the log that they make, polled in pieces."""
    made = History()
    log: list[str] = []
    for number, size in enumerate(sizes):
        values = [f"{number}.{place}" for place in range(size)]
        made.ack_batch(made.send_batch(values, T0, "p"), len(log))
        log += values
    reader = made.consumer("reader")
    bounds = sorted({0, len(log), *(cut % len(log) for cut in cuts)})
    for start, end in pairwise(bounds):
        reader.poll_run(T0, start, log[start:end])
    reader.finished()
    return made, log


@given(BATCHES, st.lists(st.integers(0, 100)))
def test_honest_batches_and_polls_have_no_anomaly(sizes: list[int], cuts: list[int]) -> None:
    made, log = honest(sizes, cuts)
    assert made.check([Read(T0, list(enumerate(log)))]) == []


@given(BATCHES, st.data())
def test_any_record_that_a_poll_skips_is_found(sizes: list[int], data: st.DataObject) -> None:
    made, log = honest([*sizes, 3], [])
    hole = data.draw(st.integers(1, len(log) - 2))
    other = made.consumer("other")
    split = data.draw(st.booleans())
    before, after = list(enumerate(log[:hole])), list(enumerate(log))[hole + 1 :]
    for poll in (before, after) if split else (before + after,):
        other.poll(T0, poll)
    found = made.check()
    expected = AnomalyKind.POLL_SKIP if split else AnomalyKind.INTERNAL_POLL_SKIP
    assert [(one.kind, one.value) for one in found] == [(expected, log[hole])]


@given(BATCHES, st.data())
def test_any_two_values_that_change_places_are_found(sizes: list[int], data: st.DataObject) -> None:
    made, log = honest([*sizes, 2], [])
    one = data.draw(st.integers(0, len(log) - 2))
    log[one], log[one + 1] = log[one + 1], log[one]
    found = {anomaly.kind for anomaly in made.check([Read(T0, list(enumerate(log)))])}
    assert AnomalyKind.INCONSISTENT_OFFSETS in found

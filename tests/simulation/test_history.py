"""The black-box checker finds every anomaly that is planted, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.checks.history import Anomaly, AnomalyKind, History, Read

TOPIC = ("orders", 0)
GOOD = [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


def history() -> History:
    """Return a history in which `GOOD` is what was sent and acknowledged, one after the other."""
    made = History()
    for offset, value in GOOD:
        made.send(value, *TOPIC)
        made.ack(value, offset)
    return made


def kinds(anomalies: list[Anomaly]) -> set[AnomalyKind]:
    return {anomaly.kind for anomaly in anomalies}


def read(records: list[tuple[int, str]], source: str = "reader", *, complete: bool = True) -> Read:
    return Read(TOPIC, records, source, complete)


def test_a_good_history_has_none() -> None:
    assert history().check([read(GOOD), read(GOOD, "replica 2")]) == []


def test_lost() -> None:
    found = history().check([read(GOOD[:3])])

    assert [(a.kind, a.value) for a in found] == [(AnomalyKind.LOST, "d")]


def test_lost_on_one_replica() -> None:
    found = history().check([read(GOOD), read(GOOD[:3], "replica 2")])

    assert [(a.kind, "replica 2" in a.detail) for a in found] == [(AnomalyKind.LOST, True)]


def test_an_incomplete_read_loses_nothing() -> None:
    assert history().check([read(GOOD[:2], complete=False)]) == []


def test_lost_with_nothing_read_at_all() -> None:
    assert kinds(history().check([read([])])) == {AnomalyKind.LOST}


def test_duplicated() -> None:
    found = history().check([read([*GOOD, (4, "a")])])

    assert [(a.kind, a.value) for a in found] == [(AnomalyKind.DUPLICATE, "a")]


def test_misplaced() -> None:
    made = history()
    made.send("e", *TOPIC)
    made.ack("e", 4)

    found = made.check([read([*GOOD, (5, "e")])])

    assert [(a.kind, a.value) for a in found] == [(AnomalyKind.MISPLACED, "e")]


def test_misplaced_into_another_partition() -> None:
    other = Read(("orders", 1), [(0, "a")])

    found = history().check([read(GOOD), other])

    assert AnomalyKind.MISPLACED in kinds(found)


def test_reordered() -> None:
    made = History()
    for value in ("a", "b"):
        made.send(value, *TOPIC)
        made.ack(value)

    found = made.check([read([(0, "b"), (1, "a")])])

    assert [(a.kind, a.value) for a in found] == [(AnomalyKind.NONMONOTONIC_SEND, "b")]


def test_sends_that_overlap_may_stand_in_any_order() -> None:
    made = History()
    for value in ("a", "b"):
        made.send(value, *TOPIC)
    for value in ("a", "b"):
        made.ack(value)

    assert made.check([read([(0, "b"), (1, "a")])]) == []


def test_producers_are_ordered_each_by_itself() -> None:
    made = History()
    for number, value in enumerate(("a", "b")):
        made.send(value, *TOPIC, producer=number)
        made.ack(value)

    assert made.check([read([(0, "b"), (1, "a")])]) == []


def test_aborted_read() -> None:
    made = history()
    made.send("no", *TOPIC)
    made.refuse("no")

    assert made.check([read(GOOD)]) == []
    found = made.check([read([*GOOD, (4, "no")])])
    assert [(a.kind, a.value) for a in found] == [(AnomalyKind.ABORTED_READ, "no")]


@pytest.mark.parametrize("shown", [True, False])
def test_an_unknown_outcome_may_be_read_or_not(shown: bool) -> None:
    made = history()
    made.send("maybe", *TOPIC)
    made.give_up("maybe")

    assert made.check([read([*GOOD, (4, "maybe")] if shown else GOOD)]) == []


def test_unsent() -> None:
    found = history().check([read([*GOOD, (4, "never sent")])])

    assert [(a.kind, a.value) for a in found] == [(AnomalyKind.UNSENT, "never sent")]


def test_inconsistent() -> None:
    made = history()
    made.send("x", *TOPIC)
    made.give_up("x")

    found = made.check([read([*GOOD, (4, "x")]), read([*GOOD[:3], (3, "x")], "replica 2")])

    assert AnomalyKind.INCONSISTENT_OFFSETS in kinds(found)


@pytest.mark.parametrize("again", [(2, "c"), (3, "d")])
def test_non_monotonic(again: tuple[int, str]) -> None:
    found = history().check([read([*GOOD, again])])

    assert [(a.kind, a.value) for a in found] == [
        (AnomalyKind.INTERNAL_NONMONOTONIC_POLL, again[1])
    ]


def test_skipped() -> None:
    found = history().check([read(GOOD), read([GOOD[0], *GOOD[2:]], "reader 2", complete=False)])

    assert [(a.kind, a.value) for a in found] == [(AnomalyKind.INTERNAL_POLL_SKIP, "b")]


def test_offsets_that_nobody_has_are_no_skip() -> None:
    """Control records and aborted batches take offsets that no reader sees."""
    made = History()
    for value, offset in (("a", 0), ("b", 7)):
        made.send(value, *TOPIC)
        made.ack(value, offset)

    assert made.check([read([(0, "a"), (7, "b")])]) == []


def test_values_are_unique() -> None:
    with pytest.raises(ValueError, match="was sent before"):
        history().send("a", *TOPIC)


def test_outcomes_are_kept_apart() -> None:
    made = history()
    for value in ("no", "maybe"):
        made.send(value, *TOPIC)
    made.refuse("no")
    made.give_up("maybe")

    assert set(made.acked) == {"a", "b", "c", "d"}
    assert (set(made.refused), set(made.unknown)) == ({"no"}, {"maybe"})
    assert set(made.sent) == {"a", "b", "c", "d", "no", "maybe"}


def test_an_anomaly_reads_as_a_sentence() -> None:
    (found,) = history().check([read(GOOD[:3])])

    assert str(found) == "lost in orders-0: 'd', acknowledged at 3, not read by reader"


@given(st.lists(st.sampled_from(["ack", "refuse", "give up", "silent"]), max_size=30), st.data())
def test_what_an_honest_log_shows_is_no_anomaly(outcomes: list[str], data: st.DataObject) -> None:
    made = History()
    log: list[tuple[int, int]] = []
    for value, outcome in enumerate(outcomes):
        made.send(value, *TOPIC)
        if outcome == "ack" or (outcome != "refuse" and data.draw(st.booleans())):
            log.append((len(log), value))
        if outcome == "ack":
            made.ack(value, len(log) - 1)
        elif outcome == "refuse":
            made.refuse(value)
        elif outcome == "give up":
            made.give_up(value)

    assert made.check([Read(TOPIC, log), Read(TOPIC, log, "replica 2")]) == []


@given(st.integers(2, 20), st.data())
def test_any_acknowledged_record_that_is_missing_is_found(count: int, data: st.DataObject) -> None:
    made = History()
    for value in range(count):
        made.send(value, *TOPIC)
        made.ack(value, value)
    missing = data.draw(st.integers(0, count - 1))

    found = made.check([Read(TOPIC, [(v, v) for v in range(count) if v != missing])])

    assert [(a.kind, a.value) for a in found] == [(AnomalyKind.LOST, missing)]

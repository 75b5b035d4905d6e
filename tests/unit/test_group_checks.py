"""The checks of the group scenarios find each thing that they are to find, and nothing else."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tests.support.checks.anomalies import Anomalies, AnomalyKind
from tests.support.groups.log import (
    Event,
    EventReader,
    Freeze,
    Hold,
    consumed_without_holding,
    given_up,
    group_history,
    holds_of,
    two_owners,
    unconsumed,
)


def event(member: str, at_s: float, kind: str, first: int = 0, after: int = 0) -> Event:
    return Event(member, at_s, kind, (("t", 0, first, after),))


def hold(member: str, since_s: float, until_s: float) -> Hold:
    return Hold(member, ("t", 0), since_s, until_s)


def test_holds_end_by_revocation_close_and_death() -> None:
    events = [event("a", 1, "assigned"), event("a", 2, "revoked"), event("a", 3, "assigned")]

    assert holds_of(events) == [hold("a", 1, 2), hold("a", 3, math.inf)]
    assert holds_of([*events, Event("a", 5, "closed")]) == [hold("a", 1, 2), hold("a", 3, 5)]
    assert holds_of([*events, event("a", 6, "consumed")], killed=True) == [
        hold("a", 1, 2),
        hold("a", 3, 6),
    ]


def test_who_was_killed_has_held_until_its_last_use() -> None:
    """Its lease may have ended while it waited for a commit, which was then refused."""
    events = [event("a", 1, "assigned"), event("a", 2, "consumed"), event("a", 5, "refused")]

    assert holds_of(events, killed=True) == [hold("a", 1, 2)]
    assert holds_of(events) == [hold("a", 1, math.inf)]


def test_a_freeze_is_no_use_of_what_is_lost_on_waking() -> None:
    assigned, freeze = event("a", 1, "assigned"), Freeze("a", 2, 6)

    assert holds_of([assigned, event("a", 6.1, "lost")], freezes=[freeze]) == [hold("a", 1, 2)]
    # Who gives up in good order after waking up has believed in it all the time.
    assert holds_of([assigned, event("a", 6.1, "revoked")], freezes=[freeze]) == [hold("a", 1, 6.1)]
    # Before it fell asleep nothing tells how long its lease went on, if it had one.
    assert holds_of([assigned, event("a", 5, "lost")], freezes=[freeze]) == []
    # Who woke up in time goes on, and may lose it later all the same.
    awake = [assigned, event("a", 6.1, "consumed"), event("a", 8, "lost")]
    assert holds_of(awake, freezes=[freeze]) == [hold("a", 1, 6.1)]


def test_who_hears_late_of_a_loss_has_held_until_its_last_use() -> None:
    """Its lease ended before others got the partitions, while there was no coordinator."""
    alone = [event("a", 1, "assigned"), event("a", 4, "consumed"), event("a", 11, "lost")]
    assert holds_of(alone) == [hold("a", 1, 4)]
    late = [*alone[:2], event("a", 9, "consumed"), alone[2]]
    assert len(two_owners([*holds_of(late), hold("b", 8, 12)])) == 1


def test_who_is_told_of_what_is_lost_already_has_held_it_if_it_consumes() -> None:
    """What assigns a partition may arrive when the lease is over, and another one owns it."""
    told = [event("a", 5, "assigned"), event("a", 6, "lost")]
    consumed = [told[0], event("a", 5, "consumed"), told[1]]

    assert holds_of(told) == holds_of(told[:1], killed=True) == []
    assert two_owners([*holds_of(consumed), hold("b", 4, 7)])


def test_overlapping_holds_are_two_owners() -> None:
    assert not two_owners([hold("a", 1, 2), hold("b", 2, 3), Hold("b", ("t", 1), 0, 9)])
    assert len(two_owners([hold("a", 1, 2.01), hold("b", 2, 3)])) == 1
    assert len(two_owners([hold("a", 1, 9), hold("b", 2, 3), hold("c", 4, 5)])) == 2


def test_consuming_what_is_not_held_is_seen() -> None:
    holds = [hold("a", 1, 2)]

    assert not consumed_without_holding([event("a", 1.5, "consumed")], holds)
    assert consumed_without_holding([event("a", 2.5, "consumed")], holds)
    assert consumed_without_holding([event("b", 1.5, "consumed")], holds)


def wrong_with(*events: Event) -> list[AnomalyKind]:
    """Return the anomalies (I10) in what members wrote down."""
    anomalies = Anomalies()
    group_history("g", events).check(anomalies)
    return [one.kind for one in anomalies.all()]


def test_commits_beyond_the_consumed_are_seen() -> None:
    consumed, beyond = event("a", 1, "consumed", 0, 10), AnomalyKind.COMMIT_BEYOND_DELIVERED

    assert wrong_with(event("b", 2, "committed", 0, 10), consumed) == []
    assert wrong_with(consumed, event("b", 2, "committed", 0, 11)) == [beyond]
    assert wrong_with(consumed, event("a", 0.5, "committed", 0, 10)) == [beyond]


def test_a_commit_that_moved_back_is_seen_unless_it_was_sent_before() -> None:
    consumed, first = event("a", 1, "consumed", 0, 10), event("a", 3, "committed", 0, 10)
    late = Event("b", 5, "committed", (("t", 0, 0, 4),), detail="2.5")

    assert wrong_with(consumed, first, late) == []
    assert wrong_with(consumed, first, replace(late, detail="3.5")) == [
        AnomalyKind.COMMIT_MOVED_BACK
    ]


def test_two_owners_in_one_generation_are_seen() -> None:
    first = Event("a", 1, "assigned", (("t", 0, 0, 0),), detail="4")

    assert wrong_with(first, replace(first, member="b", detail="5")) == []
    again = replace(first, member="b")
    assert wrong_with(first, again) == [AnomalyKind.TWO_OWNERS]
    anomalies = Anomalies()
    group_history("g", [first, again], {"a": "static", "b": "static"}).check(anomalies)
    assert anomalies.all() == []


def test_offsets_that_nobody_consumed_are_seen() -> None:
    events = [event("a", 1, "consumed", 0, 10), event("b", 2, "consumed", 8, 20)]

    assert not unconsumed({("t", 0): range(20)}, events)
    assert unconsumed({("t", 0): range(21)}, events)
    assert unconsumed({("t", 1): [0]}, events)


def test_what_was_given_up_since_a_moment() -> None:
    events = [event("a", 1, "revoked"), event("b", 3, "lost"), event("b", 4, "assigned")]

    assert given_up(events, 2) == {("b", ("t", 0))}


def test_a_log_is_read_as_it_grows_without_a_line_cut_by_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = EventReader("a", path)
    assert reader.read() == []
    line = '{"at_s": 1.0, "kind": "consumed", "rows": [["t", 0, 0, 5]], "detail": ""}\n'

    path.write_text(line + line[:20])
    assert reader.read() == [event("a", 1, "consumed", 0, 5)]
    path.write_text(line + line)
    assert reader.read() == [event("a", 1, "consumed", 0, 5)] * 2

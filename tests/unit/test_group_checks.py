"""The checks of the group scenarios find each thing that they are to find, and nothing else."""

from __future__ import annotations

import math
from pathlib import Path

from tests.support.groups.log import (
    Event,
    EventReader,
    Freeze,
    Hold,
    committed_beyond,
    consumed_without_holding,
    given_up,
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


def test_a_freeze_is_no_use_of_what_is_lost_on_waking() -> None:
    assigned, freeze = event("a", 1, "assigned"), Freeze("a", 2, 6)

    assert holds_of([assigned, event("a", 6.1, "lost")], freezes=[freeze]) == [hold("a", 1, 2)]
    # Who gives up in good order after waking up has believed in it all the time.
    assert holds_of([assigned, event("a", 6.1, "revoked")], freezes=[freeze]) == [hold("a", 1, 6.1)]
    assert holds_of([assigned, event("a", 5, "lost")], freezes=[freeze]) == [hold("a", 1, 5)]
    # Who woke up in time goes on, and may lose it later all the same.
    awake = [assigned, event("a", 6.1, "consumed"), event("a", 8, "lost")]
    assert holds_of(awake, freezes=[freeze]) == [hold("a", 1, 6.1)]


def test_overlapping_holds_are_two_owners() -> None:
    assert not two_owners([hold("a", 1, 2), hold("b", 2, 3), Hold("b", ("t", 1), 0, 9)])
    assert len(two_owners([hold("a", 1, 2.01), hold("b", 2, 3)])) == 1
    assert len(two_owners([hold("a", 1, 9), hold("b", 2, 3), hold("c", 4, 5)])) == 2


def test_consuming_what_is_not_held_is_seen() -> None:
    holds = [hold("a", 1, 2)]

    assert not consumed_without_holding([event("a", 1.5, "consumed")], holds)
    assert consumed_without_holding([event("a", 2.5, "consumed")], holds)
    assert consumed_without_holding([event("b", 1.5, "consumed")], holds)


def test_commits_beyond_the_consumed_are_seen() -> None:
    consumed = event("a", 1, "consumed", 0, 10)

    assert not committed_beyond([event("b", 2, "committed", 0, 10), consumed])
    assert committed_beyond([consumed, event("b", 2, "committed", 0, 11)])
    assert committed_beyond([consumed, event("a", 0.5, "committed", 0, 10)])


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

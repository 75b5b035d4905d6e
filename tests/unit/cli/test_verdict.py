"""The demo's verdict detects each way in which the guarantee can be broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leadline_cli.demo.verdict import judge

LINES = [b"a", b"", b"b", b"", b"c", b"d"]
Rows = dict[int, list[tuple[int, bytes]]]


def whole() -> Rows:
    return {0: [(0, b"a"), (2, b"b"), (4, b"c")], 1: [(1, b""), (3, b""), (5, b"d")]}


def test_everything_there_once_in_order_holds() -> None:
    verdict = judge(LINES, range(6), whole())
    assert verdict.holds
    assert (verdict.sent, verdict.acknowledged) == (6, 6)


@pytest.mark.parametrize(
    ("broken", "counted"),
    [
        (lambda rows: rows[0].pop(), "lost"),
        (lambda rows: rows[1].append((3, b"")), "duplicated"),
        (lambda rows: rows[0].reverse(), "reordered"),
        (lambda rows: rows[0].__setitem__(1, (2, b"B")), "altered"),
        (lambda rows: rows[0].append(rows[1].pop()), "altered"),
        (lambda rows: rows[0].append((99, b"?")), "altered"),
    ],
)
def test_each_fault_is_counted(broken: Callable[[Rows], object], counted: str) -> None:
    rows = whole()
    broken(rows)
    verdict = judge(LINES, range(6), rows)
    assert getattr(verdict, counted) > 0
    assert not verdict.holds


def test_a_line_that_was_never_acknowledged_is_not_lost_but_does_not_hold() -> None:
    rows = whole()
    rows[1].pop()
    verdict = judge(LINES, range(5), rows)
    assert (verdict.lost, verdict.acknowledged) == (0, 5)
    assert not verdict.holds

"""Times are read as tables show them, and mean UTC unless they name a zone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from leadline_cli.arguments import shown, unix_ms

NOON = 1_769_860_800_000


@pytest.fixture(autouse=True)
def _elsewhere() -> Iterator[None]:
    """Be where the local time is not UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00", NOON),
        ("2026-01-31 12:00:00.250", NOON + 250),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T13:00:00+01:00", NOON),
        ("2026-01-31", NOON - 12 * 3_600_000),
        (str(NOON), NOON),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999", 0),
        ("0001-01-01T00:00:00+14:00", 0),
    ],
)
def test_a_time_is_read_in_each_form(text: str, expected: int) -> None:
    assert unix_ms(text) == expected


@given(st.integers(0, 4_000_000_000_000))
def test_what_is_shown_can_be_given_back(moment: int) -> None:
    assert unix_ms(shown(moment, timespec="milliseconds")) == moment
    assert unix_ms(shown(moment)) == moment // 1000 * 1000


def test_what_is_no_time_is_refused_with_examples() -> None:
    with pytest.raises(typer.BadParameter, match="'yesterday' is no time: give ISO 8601 "):
        unix_ms("yesterday")

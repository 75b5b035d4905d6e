"""How the routes of records read numbers in paths and queries."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from leadline_broker.api.parameters import INT64_MAX, Query, number_of
from leadline_client.errors import InvalidRequest

NO_NUMBERS = ["", " 1", "1 ", "+1", "1_0", "1e3", "1.0", "0x1", "\u0663", "--1", "9" * 5_000]


def query(text: str) -> Query:
    return Query({"type": "http", "query_string": text.encode()}, ["offset", "wait_ms"])


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), (str(INT64_MAX), INT64_MAX)])
def test_a_number_is_digits(text: str, number: int) -> None:
    assert query(f"offset={text}").integer("offset", None) == number
    assert number_of(text) == number


@pytest.mark.parametrize("text", [*NO_NUMBERS, "-1"])
def test_what_python_alone_would_take_for_a_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"query\.offset"):
        query(f"offset={quote(text)}").integer("offset", None)
    with pytest.raises(InvalidRequest, match=r"path\.partition"):
        number_of(text)


def test_a_repeated_parameter_is_refused() -> None:
    """One of two offsets would be read from, and nobody would say which."""
    with pytest.raises(InvalidRequest, match=r"query\.offset: must be given once"):
        query("offset=5&wait_ms=1&offset=7")

"""How a cluster is reached, as options say it: addresses, and a token that nothing shows."""

from __future__ import annotations

import pytest

from leadline_spark.cluster.cluster_client import Connection
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options


def connection(**given: str) -> Connection:
    return Connection.of(Options(OPTIONS, {"bootstrap": "b:1", **given}))


def test_addresses_are_urls_and_may_be_written_as_kafka_has_them() -> None:
    assert connection(bootstrap="b:1, https://c:2/").bootstrap == ("http://b:1", "https://c:2")


@pytest.mark.parametrize(
    ("given", "kept"), [("abc.DEF-123", "abc.DEF-123"), ("abc\n", "abc"), ("\n", None)]
)
def test_a_token_is_kept_without_its_line_end_and_not_shown(given: str, kept: str | None) -> None:
    made = connection(token=given)
    assert made.token == kept
    assert "abc" not in repr(made)


@pytest.mark.parametrize("token", ["two words", "two\r\nX-Lines: 1", "caf\xe9"])
def test_a_token_that_no_header_carries_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_OPTION_INVALID") as refused:
        connection(token=token)
    assert token not in str(refused.value)

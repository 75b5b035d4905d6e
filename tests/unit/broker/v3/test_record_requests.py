"""What requests say of records, and the records that they mean."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.api.v3.errors import INVALID_BATCH, INVALID_PAYLOAD, MALFORMED, Code, V3Error
from leadline_broker.api.v3.records.batch import entries_of
from leadline_broker.api.v3.records.requests import ParsedRecord, Part, parse_entry, parse_record
from leadline_broker.api.v3.removal import rfc3339

NOW = 1_790_000_000_000


def parsed(**request: Any) -> ParsedRecord:
    return parse_record(json.dumps(request).encode(), NOW)


def value_of(text: str) -> bytes | None:
    return parse_record(b'{"value": %s}' % text.encode(), NOW).value


def test_an_empty_request_is_a_record_without_key_and_value() -> None:
    assert parsed() == ParsedRecord(None, NOW, None, None, ())


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ('{"type": "STRING", "data": "é\\n"}', "é\n".encode()),
        ('{"type": "BINARY", "data": "AAEC"}', b"\x00\x01\x02"),
        ('{"type": "BINARY", "data": ""}', b""),
        ('{"type": "JSON", "data": {"b": 1, "a": [1.50, 1e30, 123456789012345678901234567890]}}',
         b'{"b":1,"a":[1.50,1e30,123456789012345678901234567890]}'),
        ('{"type": "JSON", "data": " a "}', b'" a "'),
        ('{"type": "JSON", "data": false}', b"false"),
        ('{"type": "JSON", "data": null}', None),
        ('{"type": "STRING", "data": null}', None),
        ('{"type": "STRING"}', None),
        ("null", None),
    ],
)  # fmt: skip
def test_data_is_stored_by_its_type(text: str, stored: bytes | None) -> None:
    assert value_of(text) == stored


def test_a_part_that_is_given_is_told_from_one_that_is_not() -> None:
    record = parsed(key={"type": "STRING", "data": None})
    assert (record.key_part, record.value_part) == (Part("STRING", None), None)


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        ("2021-02-05T19:14:42Z", 1612552482000),
        ("2021-02-05T19:14:42.123456789Z", 1612552482123),
        ("2021-02-05T21:14:42.5+02:00", 1612552482500),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_times_are_rfc_3339(time: str, milliseconds: int) -> None:
    assert parsed(timestamp=time).timestamp == milliseconds


@pytest.mark.parametrize(
    "time",
    [
        "2021-02-05T19:14:42",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59-00:01",
        "soon",
        "",
    ],
)
def test_a_time_without_an_offset_or_that_no_report_can_show_is_refused(time: str) -> None:
    with pytest.raises(V3Error) as raised:
        parsed(timestamp=time)
    assert raised.value.code == MALFORMED


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_a_time_that_is_accepted_can_be_reported(moment: datetime) -> None:
    """A record is appended before its report is made: a report that fails hides the append."""
    try:
        accepted = parsed(timestamp=moment.isoformat()).timestamp
    except V3Error:
        return
    assert parsed(timestamp=rfc3339(accepted)).timestamp == accepted


def test_headers_keep_their_order_and_repeat() -> None:
    given = [{"name": "b", "value": "AQ=="}, {"name": "a"}, {"name": "b", "value": ""}]
    assert parsed(headers=given).headers == (("b", b"\x01"), ("a", None), ("b", b""))


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"data": "x"}, INVALID_PAYLOAD),
        ({"type": "AVRO", "data": "x"}, INVALID_PAYLOAD),
        ({"type": "string", "data": "x"}, INVALID_PAYLOAD),
        ({"type": "STRING", "data": 1}, MALFORMED),
        ({"type": "BINARY", "data": "a"}, MALFORMED),
        ({"type": "BINARY", "data": "é"}, MALFORMED),
        ({"type": "JSON", "data": 1, "schema": "{}"}, MALFORMED),
        ({"type": "AVRO", "subject": "s", "subject_name_strategy": "RECORD_NAME"}, MALFORMED),
        ({"type": "AVRO", "schema_version": 1, "schema_id": 1}, MALFORMED),
        ({"type": "AVRO", "schema_version": 1, "schema": "{}"}, MALFORMED),
        ({"type": "STRING", "data": "x", "colour": 1}, MALFORMED),
    ],
)
def test_bad_data_is_refused_for_keys_and_values(value: dict[str, Any], code: Code) -> None:
    for member in ("key", "value"):
        with pytest.raises(V3Error) as raised:
            parsed(**{member: value})
        assert raised.value.code == code


def test_an_entry_of_a_batch_may_have_an_id_and_a_record_may_not() -> None:
    document = b'{"id": "1", "partition_id": 3}'
    assert parse_entry(document, NOW).partition == 3
    with pytest.raises(V3Error):
        parse_record(document, NOW)


def test_the_entries_of_a_batch_are_told_apart() -> None:
    body = b'{"entries": [{"id": "a", "x": 1}, {"id": "b"}]}'
    assert entries_of(body) == [("a", b'{"id": "a", "x": 1}'), ("b", b'{"id": "b"}')]
    ten = [{"id": f"{number}"} for number in range(10)]
    assert len(entries_of(json.dumps({"entries": ten}).encode())) == 10


@pytest.mark.parametrize("ids", [[], ["a", "a"], [""], ["x" * 81], [None], list("0123456789a")])
def test_a_batch_that_cannot_be_answered_entry_by_entry_is_refused(ids: list[Any]) -> None:
    body = json.dumps({"entries": [{"id": one} for one in ids]}).encode()
    with pytest.raises(V3Error) as raised:
        entries_of(body)
    assert raised.value.code == INVALID_BATCH

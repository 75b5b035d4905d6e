"""Records as JSON: what is refused before anything is appended."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from leadline_broker.api.json_records import (
    JsonRecord,
    ProduceBody,
    encodable_records,
    parse_body,
    render,
)
from leadline_broker.api.topic_records import TopicProduceBody, parse_topic_body
from leadline_client.errors import InvalidRequest
from leadline_client.wire import Record


@pytest.mark.parametrize("text", ["?", "YQ", "YQ==\n", "YQ=é", "é"])
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"body.records\[0\].key: is not base64"):
        encodable_records([JsonRecord(value=None, key=text)], "base64")


SENT = [
    b"0.1234567890123456789",
    b"100000000000000000000000.5",
    b"1.10",
    b"1e2",
    b"-0.0",
    b"1E-500",
    b"123456789012345678901234567890",
    b'{"price":1234567890.12345678901,"of":[0.30]}',
]


@pytest.mark.parametrize("parse", [parse_body, parse_topic_body])
@pytest.mark.parametrize("sent", SENT)
def test_numbers_are_stored_and_read_with_the_digits_that_were_sent(
    sent: bytes, parse: Callable[[bytes], ProduceBody | TopicProduceBody]
) -> None:
    body = parse(b'{"format":"json","records":[{"key":%b,"value":%b}]}' % (sent, sent))
    (stored,) = encodable_records(body.records, body.format)
    assert (stored.key, stored.value) == (sent, sent)
    shown = msgspec.json.encode(render(Record(0, 0, stored.key, stored.value), "json"))
    assert b'"key":%b,"value":%b' % (sent, sent) in shown


@pytest.mark.parametrize(
    "sent", [b"1.", b".5", b"01.5", b"NaN", b"1e", b"0x1p3", b"1e400", b"-1e400"]
)
def test_what_is_no_number_that_every_parser_takes_is_refused(sent: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_body(b'{"format":"json","records":[{"value":%b}]}' % sent)


def test_a_number_is_no_text() -> None:
    body = parse_body(b'{"format":"string","records":[{"value":1.5}]}')
    with pytest.raises(InvalidRequest, match="must be text or null"):
        encodable_records(body.records, body.format)

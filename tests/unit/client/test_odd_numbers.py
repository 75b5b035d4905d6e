"""Numbers of records in other spellings than the shortest: what a broker accepts, all can read."""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from leadline_client import batches, plain_codec
from leadline_client.errors import LeadlineError
from leadline_client.plain_codec import put_varint
from leadline_client.record_checks import check_batches, finish
from leadline_client.unreadable import MOST_DECOMPRESSED_BYTES
from leadline_client.wire import Record
from tests.support.bad_input.batches import forged
from tests.unit.client.test_columnar import by_column

_TIME = 1_790_000_000_000
_LIMIT = 1 << 20
_NULLS = st.sampled_from([-1, -1, -1, -2, -(2**31), -(2**40), -(2**63)])
_PARTS = st.none() | st.sampled_from([b"", b"k", b"v" * 70])


@st.composite
def spelled(draw: st.DrawFn, number: int) -> bytes:
    """Spell a number: the shortest way, with zeros behind it, or with bits above the 64th."""
    octets = bytearray()
    put_varint(octets, number)
    length = draw(st.just(0) | st.integers(len(octets), 10))
    if length > len(octets):
        octets[-1] |= 0x80
        octets += b"\x80" * (length - len(octets) - 1)
        octets.append(draw(st.sampled_from([0, 0x02, 0x7E])) if length == 10 else 0)
    return bytes(octets)


@st.composite
def part(draw: st.DrawFn, content: bytes | None) -> bytes:
    if content is None:
        return draw(spelled(draw(_NULLS)))
    return draw(spelled(len(content))) + content


@st.composite
def odd_record(draw: st.DrawFn, number: int) -> bytes:
    """Return a record with the time of its batch, whose numbers are spelled oddly."""
    body = b"\0" + draw(spelled(0)) + draw(spelled(number))
    body += draw(part(draw(_PARTS))) + draw(part(draw(_PARTS)))
    headers = draw(st.lists(_PARTS, max_size=2))
    body += draw(spelled(len(headers)))
    for content in headers:
        body += draw(part(b"n")) + draw(part(content))
    return draw(spelled(len(body))) + body


@st.composite
def odd_batch(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(1, 4))
    section = b"".join(draw(odd_record(number)) for number in range(count))
    return forged(section, count, times=(_TIME, _TIME))


def by_plain_codec(data: bytes) -> list[Record]:
    chunks = plain_codec.record_chunks(data, MOST_DECOMPRESSED_BYTES, _as_record)
    return [one for chunk in chunks for one in chunk]


def _as_record(record: Record) -> Record:
    return record


@settings(max_examples=400)
@given(odd_batch())
def test_what_a_broker_accepts_is_read_alike_by_all(data: bytes) -> None:
    try:
        finish(check_batches(data, _LIMIT, _LIMIT))
    except LeadlineError:
        event("refused")
        return
    event("accepted")
    expected = list(batches.decode(data))
    assert by_column(data, 0, 9) == expected
    assert by_plain_codec(data) == expected

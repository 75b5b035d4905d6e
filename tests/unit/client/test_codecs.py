"""The codec without packages writes and reads what the compiled one does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import compiled_codec, plain_codec
from leadline_client.batches import CODECS
from leadline_client.extras import MissingExtra
from leadline_client.payloads import OutgoingRecord

LIMIT = 1 << 20
DATA = st.none() | st.binary(max_size=40)
TIMES = st.none() | st.integers(0, 2**45)
RECORDS = st.lists(
    st.builds(
        OutgoingRecord,
        value=DATA,
        key=DATA,
        headers=st.lists(st.tuples(st.text(max_size=9), DATA), max_size=3).map(tuple),
        timestamp=TIMES,
    ),
    min_size=1,
    max_size=5,
)
IDENTITY = {"now_ms": 1_790_000_000_000, "producer_id": 7, "producer_epoch": 2, "base_sequence": 9}
SOME = [OutgoingRecord(b"v" * 300, b"k", (("h", None),), 5), OutgoingRecord(None)]


@given(RECORDS)
def test_defect_21_both_codecs_write_the_same_bytes(records: list[OutgoingRecord]) -> None:
    plain = plain_codec.encode_batch(records, compression=CODECS["none"], **IDENTITY)
    assert plain == compiled_codec.encode_batch(records, compression=CODECS["none"], **IDENTITY)
    assert list(plain_codec.decode_chunks(plain, LIMIT)) == list(
        compiled_codec.decode_chunks(plain, LIMIT)
    )


@given(st.binary(max_size=200))
def test_both_codecs_have_the_same_checksum(data: bytes) -> None:
    assert plain_codec.crc32c(data) == compiled_codec.crc32c(data)


def test_gzip_needs_no_package() -> None:
    gzip = CODECS["gzip"]
    plain = plain_codec.encode_batch(SOME, compression=gzip, **IDENTITY)
    compiled = compiled_codec.encode_batch(SOME, compression=gzip, **IDENTITY)
    assert list(plain_codec.decode_chunks(compiled, LIMIT)) == list(
        compiled_codec.decode_chunks(plain, LIMIT)
    )
    assert len(plain) < 200


@pytest.mark.parametrize("name", ["snappy", "lz4", "zstd"])
def test_defect_21_another_compression_names_the_extra(name: str) -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'leadline-client\[records\]'"):
        plain_codec.encode_batch(SOME, compression=CODECS[name], **IDENTITY)
    compiled = compiled_codec.encode_batch(SOME, compression=CODECS[name], **IDENTITY)
    with pytest.raises(MissingExtra):
        list(plain_codec.decode_chunks(compiled, LIMIT))


@given(st.data())
def test_a_damaged_batch_is_an_error_and_never_a_record_that_was_not_sent(
    data: st.DataObject,
) -> None:
    """The caller checks the CRC first; this is about what comes after a matching one."""
    batch = bytearray(plain_codec.encode_batch(SOME, compression=CODECS["none"], **IDENTITY))
    cut = data.draw(st.integers(62, len(batch) - 1))
    with pytest.raises((ValueError, IndexError)):
        list(plain_codec.decode_chunks(bytes(batch[:cut]), LIMIT))

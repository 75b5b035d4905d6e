"""The fuzz targets hold for their seeds and for changed ones; `tests.fuzz` runs them longer."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.batch_header import HEADER_BYTES
from tests.fuzz.targets import TARGETS, Target, check_and_decode, compare_codecs
from tests.support.bad_input.batches import good


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_no_findings(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_changed_seeds_are_no_findings(name: str, data: st.DataObject) -> None:
    seed = bytearray(data.draw(st.sampled_from(TARGETS[name].seeds)))
    for _ in range(data.draw(st.integers(0, 4)) if seed else 0):
        seed[data.draw(st.integers(0, len(seed) - 1))] = data.draw(st.integers(0, 255))
    TARGETS[name](bytes(seed) + data.draw(st.binary(max_size=9)))


def test_a_good_batch_gets_through_to_the_records() -> None:
    check_and_decode(good("lz4"))


@pytest.mark.parametrize("last", [0x00, 0x01, 0x02, 0x03, 0x7E, 0x7F, 0x80])
def test_a_number_of_more_than_64_bits_is_the_same_to_both_codecs(last: int) -> None:
    """Here as the length of a header's value: its last byte has one bit left."""
    record = b"\x00\x00\x00\x01\x02v\x02\x02n" + b"\x80" * 9 + bytes([last])
    head = bytearray(HEADER_BYTES)
    struct.pack_into(">i", head, HEADER_BYTES - 4, 1)
    compare_codecs(bytes(head) + bytes([len(record) << 1]) + record)


def test_another_error_is_a_finding() -> None:
    with pytest.raises(ZeroDivisionError):
        Target(lambda _: 1 / 0, (ValueError,), ())(b"")

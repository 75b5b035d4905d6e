"""Keys go where Kafka's clients send them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.murmur2 import murmur2, partition_for_key
from tests.support.kafka_hashes import MURMUR2


@pytest.mark.parametrize(("key", "hashed"), MURMUR2)
def test_murmur2_of_the_keys_in_kafkas_own_test(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@given(st.binary(), st.integers(1, 1000))
def test_a_key_has_one_partition(key: bytes, count: int) -> None:
    assert 0 <= partition_for_key(key, count) < count

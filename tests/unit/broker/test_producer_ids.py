"""Producer ids and their owners."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from leadline_broker.domain.producer_ids import (
    KEY_BYTES,
    MAX_NUMBER,
    belongs_to,
    has_owner,
    number_of,
    owned_id,
)
from leadline_broker.domain.publishes import FIRST_PUBLISHER_ID

numbers = st.integers(0, MAX_NUMBER)
owners = st.text(min_size=1, max_size=140)
keys = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
OTHERS = 4_000
"""Enough that a hash of a few bits would let some of them in; the values are always the same."""


@given(numbers, owners, keys)
def test_an_id_belongs_to_its_owner(number: int, owner: str, key: bytes) -> None:
    found = owned_id(number, owner, key)
    assert number_of(found) == number
    assert has_owner(found)
    assert belongs_to(found, owner, key)
    assert 0 < found < FIRST_PUBLISHER_ID


@given(numbers, numbers, owners, owners, keys)
def test_ids_are_unique_whoever_owns_them(
    one: int, other: int, first: str, second: str, key: bytes
) -> None:
    assume(one != other)
    assert owned_id(one, first, key) != owned_id(other, second, key)
    assert owned_id(one, first, key) not in (other, owned_id(other, "", None)), "earlier releases"


def test_an_id_belongs_to_nobody_else() -> None:
    key = bytes(range(KEY_BYTES))
    found = owned_id(7, "user:ann", key)
    assert not any(belongs_to(found, f"user:{place}", key) for place in range(OTHERS))
    assert not any(belongs_to(found + number, "user:ann", key) for number in range(1, OTHERS))
    assert not belongs_to(found, "user:ann", bytes(KEY_BYTES))


@given(numbers, owners, keys)
def test_without_users_or_a_key_an_id_is_anybodys(number: int, owner: str, key: bytes) -> None:
    for found in (owned_id(number, "", key), owned_id(number, owner, None)):
        assert not has_owner(found)
        assert number_of(found) == number


def test_ids_of_earlier_releases_are_anybodys() -> None:
    for found in (0, 4_000, 2**24 - 1):
        assert not has_owner(found)
        assert number_of(found) == found

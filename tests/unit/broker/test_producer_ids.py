"""Producer ids and their owners."""

from __future__ import annotations

import pytest
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
from leadline_broker.runtime.serving.producer_ids import ProducerIds
from leadline_client.errors import BrokerFenced, ForeignProducerId
from leadline_common.access.caller import Caller, caller_scope
from leadline_common.access.principals import Principal
from leadline_common.access.rights import UNLIMITED
from leadline_common.zk.errors import ConnectionLoss

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


class KeyStore:
    """What `ProducerIds` asks a store for. `key` may be an error."""

    def __init__(self, key: bytes | Exception | None) -> None:
        self.key = key
        self.claimed = 0

    async def claim_producer_ids(self, count: int) -> int:
        self.claimed += count
        return self.claimed - count

    async def producer_id_key(self) -> bytes | None:
        if isinstance(self.key, Exception):
            raise self.key
        return self.key


KEY = bytes(range(KEY_BYTES))
ANN, BOB = (Caller(Principal.user(name), UNLIMITED) for name in ("ann", "bob"))


def ids_with(key: bytes | Exception | None) -> ProducerIds:
    return ProducerIds(KeyStore(key))  # type: ignore[arg-type]  # only these two are called


async def allocated(ids: ProducerIds, caller: Caller) -> int:
    with caller_scope(caller):
        return (await ids.allocate())[0]


async def test_every_broker_with_the_key_knows_the_owner() -> None:
    found = await allocated(ids_with(KEY), ANN)
    another = ids_with(KEY)  # It has allocated nothing, and so has not read the key yet.
    with caller_scope(ANN):
        await another.require_own(found)
    with caller_scope(BOB), pytest.raises(ForeignProducerId, match="user:bob"):
        await another.require_own(found)


async def test_without_the_key_an_owned_id_is_nobodys() -> None:
    found = await allocated(ids_with(KEY), ANN)
    with caller_scope(ANN), pytest.raises(ForeignProducerId):
        await ids_with(None).require_own(found)
    with caller_scope(ANN), pytest.raises(BrokerFenced):
        await ids_with(ConnectionLoss()).require_own(found)


async def test_what_was_allocated_without_a_key_or_a_user_is_anybodys() -> None:
    ids = ids_with(KEY)
    for found in (await allocated(ids_with(None), ANN), (await ids.allocate())[0]):
        with caller_scope(BOB):
            await ids.require_own(found)
    await ids.require_own(await allocated(ids, ANN))  # authentication was switched off

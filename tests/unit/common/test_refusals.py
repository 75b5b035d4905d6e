"""Audit entries about anything, and the sampling of refused requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_common.plain_json import encodable
from leadline_common.refusals import (
    FULL_IN_ALL,
    FULL_PER_KEY,
    INTERVAL_MS,
    MAX_KEYS,
    CountedRefusals,
    RefusalKey,
    RefusalSampler,
)
from leadline_common.znodes import AuditEntry, decode_audit, encode_audit

_TEXT = st.text(st.characters(exclude_categories=()))
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner) | st.sets(_TEXT),
)
KEY = RefusalKey("create_topic", "refused", 40050)


@given(_ANYTHING)
def test_anything_can_be_made_encodable(value: Any) -> None:
    msgspec.json.decode(msgspec.json.encode(encodable(value)))


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "text",
    ["\ud800x", {"\udc00": "\udfff"}, 2**70, -(2**80), 10**5000, _nested(100_000), float("nan")],
    ids=["surrogate", "surrogate name", "huge", "negative", "5,000 digits", "deep", "NaN"],
)
def test_an_audit_entry_about_anything_is_encodable(text: Any) -> None:
    entry = AuditEntry(1, "cause", "operator", "create_topic", resource={"topic": text})
    stored = decode_audit(encode_audit(entry))
    assert (stored.kind, stored.cause) == ("create_topic", "cause")


def test_a_surrogate_is_recorded_as_its_escape() -> None:
    entry = AuditEntry(1, "", "", "k", resource={"topic": "\ud800x"}, reason="\udfff?")
    stored = decode_audit(encode_audit(entry))
    assert (stored.resource, stored.reason) == ({"topic": "\\ud800x"}, "\\udfff?")


def test_the_first_refusals_of_a_kind_are_recorded_and_the_rest_is_counted() -> None:
    sampler = RefusalSampler()
    admitted = [sampler.admit(KEY, 1_000_000) for _ in range(120)]
    assert admitted == [True] * FULL_PER_KEY + [False] * (120 - FULL_PER_KEY)
    assert sampler.take(1_000_500) == [CountedRefusals(KEY, 120 - FULL_PER_KEY, 1_000_000)]
    assert sampler.admit(KEY, 1_000_500), "a new interval has begun"
    assert sampler.take(1_000_600) == []


def test_an_interval_in_which_nothing_was_counted_ends_by_itself() -> None:
    sampler = RefusalSampler()
    for number in range(50):
        assert all(sampler.admit(KEY, number * INTERVAL_MS) for _ in range(FULL_PER_KEY))


def test_kinds_are_counted_apart_and_a_flood_of_one_leaves_room_for_another() -> None:
    sampler = RefusalSampler()
    for _ in range(1_000):
        sampler.admit(KEY, 1_000_000)
    other = KEY._replace(kind="elect")
    assert sampler.admit(other, 1_000_000)
    assert [counted.key for counted in sampler.take(1_000_000)] == [KEY]


@given(st.lists(st.integers(0, 500), max_size=600))
def test_the_writes_and_the_memory_of_an_interval_are_bounded(kinds: list[int]) -> None:
    sampler = RefusalSampler()
    admitted = sum(sampler.admit(KEY._replace(code=code), 10**6) for code in kinds)
    counted = sampler.take(10**6)
    assert admitted <= FULL_IN_ALL
    assert len(counted) <= MAX_KEYS + 1
    assert admitted + sum(one.number for one in counted) == len(kinds)

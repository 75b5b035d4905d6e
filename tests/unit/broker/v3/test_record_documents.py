"""Objects are found in a stream of bytes, however the bytes arrive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.api.v3.records.documents import ObjectSplitter

TEXTS = st.text(max_size=6) | st.sampled_from(['"', "\\", '\\"', "{", "}", "[}", "é\u2028"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
BLANKS = st.sampled_from(["", " ", "\n", "\r\n", "\t "])


@given(st.lists(st.tuples(BLANKS, OBJECTS)), BLANKS, st.data(), st.booleans())
def test_the_objects_of_a_stream_are_found_wherever_it_is_cut(
    parts: list[tuple[str, Any]], end: str, data: st.DataObject, plain: bool
) -> None:
    objects = [one for _, one in parts]
    text = "".join(blank + json.dumps(one, ensure_ascii=plain) for blank, one in parts) + end
    body = text.encode("utf-8", "surrogatepass")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    splitter = ObjectSplitter(10_000)
    found: list[bytes] = []
    for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += splitter.feed(body[start:stop])
    splitter.end()
    assert splitter.problem is None
    assert [json.loads(one.decode("utf-8", "surrogatepass")) for one in found] == objects


@pytest.mark.parametrize(
    ("body", "found", "problem"),
    [
        (b"[]", 0, "object"),
        (b"null", 0, "object"),
        (b"{} 5 {}", 1, "object"),
        (b"{}}{}", 1, "object"),
        (b'{"a"', 0, "ends within"),
        (b'{"a": "}', 0, "ends within"),
        (b'{"a": "\\', 0, "ends within"),
        (b"{}" + b'{"a": "' + b"x" * 90 + b'"}', 1, "larger than"),
        (b"{" + b" " * 200, 0, "larger than"),
    ],
)
def test_what_is_no_object_ends_the_stream(body: bytes, found: int, problem: str) -> None:
    for step in (1, 3, len(body)):
        splitter = ObjectSplitter(80)
        parts = [body[start : start + step] for start in range(0, len(body), step)]
        objects = [one for part in parts for one in splitter.feed(part)]
        splitter.end()
        assert len(objects) == found
        assert splitter.problem is not None
        assert problem in splitter.problem
        assert splitter.feed(b"{}") == []


def test_what_only_looks_like_an_object_is_found_for_the_parser_to_refuse() -> None:
    assert ObjectSplitter(80).feed(b'{]{"a" 1}') == [b"{]", b'{"a" 1}']


def test_each_byte_is_looked_at_once_however_small_the_pieces() -> None:
    """A splitter that began again with each piece would take minutes for a megabyte."""
    body = b'{"a": "' + b"x" * 1_000 + b'\\""}'
    splitter = ObjectSplitter(10_000)
    for place in range(len(body) - 1):
        assert splitter.feed(body[place : place + 1]) == []
        assert splitter._seen == place + 1
    assert splitter.feed(body[-1:]) == [body]

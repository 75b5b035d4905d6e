"""Requests that differ a little from an operation's example, drawn by Hypothesis.

Values that are valid but expensive (many partitions, long waits) are left out. A deletion never
names the topic of the examples.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from leadline_common.cause import HEADER as CAUSE
from tests.support.openapi.document import JSON, TOPIC, Call, Described

NUMBERS = (-(2**63) - 1, -1, 0, 1, 2, 7, 2**31, 2**63 - 1, 2**63, 10**40)
ODD_TEXTS = ("", " ", "0", "-1", "1e9", "NaN", "true", "null", "é", "\x00", "a" * 300, "../..", "%")
RAW_BODIES = (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"name": "\\ud800"}')
MEDIA_TYPES = (
    JSON,
    "application/json; charset=utf-8",
    "text/plain",
    "application/octet-stream",
    "",
)
CAUSES = ("mine-1", "a" * 64, "a" * 65, "white space", "<b>", "")
texts = st.sampled_from(ODD_TEXTS) | st.sampled_from(NUMBERS).map(str) | st.text(max_size=12)
leaves = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.floats() | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def spoiled(draw: st.DrawFn, operation: Described) -> Call:
    """Draw a request that differs a little from the example."""
    call = operation.example()
    for name in draw(st.sets(st.sampled_from(["path", "query", "headers", "body"]), min_size=1)):
        call = SPOILERS[name](draw, call)
    if operation.method == "delete":
        call = replace(
            call, path=dict.fromkeys(call.path, draw(texts.filter(lambda t: t != TOPIC)))
        )
    return call


def _spoil_path(draw: st.DrawFn, call: Call) -> Call:
    return replace(
        call, path={name: draw(texts | st.just(value)) for name, value in call.path.items()}
    )


def _spoil_query(draw: st.DrawFn, call: Call) -> Call:
    query: list[tuple[str, str]] = [
        (name, draw(texts | st.just(value))) for name, value in call.query
    ]
    kept = draw(st.integers(0, len(query)))
    added = draw(st.lists(st.tuples(texts, texts), max_size=1))
    return replace(call, query=[*query[:kept], *added])


def _spoil_headers(draw: st.DrawFn, call: Call) -> Call:
    headers = {
        CAUSE: draw(st.sampled_from(CAUSES)),
        "accept": draw(st.sampled_from([*MEDIA_TYPES, "*/*"])),
        "content-type": draw(st.sampled_from(MEDIA_TYPES)),
        "if-none-match": draw(st.sampled_from(["*", '"1"', "W/", ""])),
    }
    return replace(call, headers=call.headers | headers)


def _spoil_body(draw: st.DrawFn, call: Call) -> Call:
    if call.content is None or draw(st.integers(0, 4)) == 0:
        content = draw(st.sampled_from(RAW_BODIES) | st.binary(max_size=20))
        return replace(call, content=content, headers={"content-type": JSON} | call.headers)
    body = _spoil_value(draw, json.loads(call.content))
    return replace(call, content=json.dumps(body).encode())


def _spoil_value(draw: st.DrawFn, value: Any) -> Any:
    """Replace, drop or add something at some depth of a JSON value."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 3)) == 0:
        return draw(values)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = draw(st.sampled_from(list(keys)))
    kind = draw(st.sampled_from(["deeper", "drop", "add"]))
    if kind == "deeper":
        value[key] = _spoil_value(draw, value[key])
    elif kind == "drop":
        del value[key]
    elif isinstance(value, dict):
        value[draw(texts)] = draw(values)
    else:
        value.append(draw(values))
    return value


SPOILERS: dict[str, Callable[[st.DrawFn, Call], Call]] = {
    "path": _spoil_path,
    "query": _spoil_query,
    "headers": _spoil_headers,
    "body": _spoil_body,
}

"""The header of a trace: valid ones continue it, all others are as none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_common.tracing.traceparent import TraceParent, parsed, trace_parent_of, written

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01"
PARENT = TraceParent(int(TRACE, 16), int(SPAN, 16), sampled=True)


@given(st.builds(TraceParent, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans()))
def test_what_is_written_is_parsed_again(parent: TraceParent) -> None:
    assert parsed(written(parent).encode()) == parent


@pytest.mark.parametrize(
    ("value", "sampled"),
    [
        (VALID, True),
        (VALID[:-2] + "00", False),
        (VALID[:-2] + "fe", False),
        (VALID[:-2] + "03", True),
    ],
)
def test_the_last_bit_of_the_flags_says_whether_it_is_recorded(value: str, sampled: bool) -> None:
    assert parsed(value.encode()) == PARENT._replace(sampled=sampled)


def test_a_later_version_may_have_more_at_its_end() -> None:
    assert parsed(f"cc-{TRACE}-{SPAN}-01-more".encode()) == PARENT


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f" {VALID}",
        f"{VALID}\n",
        f"{VALID}, {VALID}",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * 300,
        f"00-{'٣' * 32}-{SPAN}-01",
    ],
    ids=range(17),
)
def test_an_invalid_header_is_ignored(value: str) -> None:
    assert parsed(value.encode()) is None


@given(st.binary(max_size=80))
def test_no_bytes_raise(value: bytes) -> None:
    parsed(value)


def test_only_one_header_counts() -> None:
    header = (b"traceparent", VALID.encode())
    assert trace_parent_of([(b"host", b"h"), header]) == PARENT
    assert trace_parent_of([header, header]) is None
    assert trace_parent_of([]) is None

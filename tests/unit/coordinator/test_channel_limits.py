"""The bounds of channels and frames, and the decoding of what strangers send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadline_client import channel
from leadline_client.errors import InvalidRequest, TooManyChannels
from leadline_coordinator.domain.channel_limits import ChannelCount, FrameRate

KINDS = [kind.type for kind in (*channel.FROM_CONSUMER, *channel.FROM_COORDINATOR)]
NAMES = sorted({name for kind in channel.FROM_CONSUMER for name in kind.__dataclass_fields__})
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(NAMES), values, max_size=6)


def decoded(text: str | bytes) -> channel.Frame | None:
    """Decode; whatever it is, the only error is that the frame is invalid, and it is short."""
    problem: InvalidRequest | None = None
    try:
        return channel.decode(text)
    except InvalidRequest as refusal:
        problem = refusal
    assert len(problem.message.encode()) < 1_000
    return None


@given(st.sampled_from(KINDS), objects)
def test_any_members_make_a_frame_or_an_invalid_request(kind: str, members: dict[str, Any]) -> None:
    frame = decoded(json.dumps(members | {"type": kind}))

    assert frame is None or frame.type == kind


@given(st.binary() | st.text(st.characters()))
@example(b'{"type":"hello","client_id":"\xff"}')
@example('{"type":"hello","topics":["\\ud800"]}')
@example('{"type":"\\ud800"}')
@example('{"type":"hello","threads":NaN}')
@example('{"type":"hello","threads":1e999}')
@example('{"type":"hello","threads":' + "9" * 5_000 + "}")
@example('{"type":"hello","threads":' + "9" * 4_000 + "}")
@example('{"type":"hello","threads":"' + "9" * 500_000 + '"}')
@example('{"type":"hello","topics":' + "[" * 100_000 + "]" * 100_000 + "}")
@example('{"type":"hello","topics":' + "[" * 900 + "]" * 900 + "}")
@example('{"type":"hello","assignor":' + "[" * 900 + "]" * 900 + "}")
@example('{"type":"' + "x" * 500_000 + '"}')
def test_any_message_makes_a_frame_or_an_invalid_request(text: str | bytes) -> None:
    decoded(text)


def test_at_no_depth_of_nesting_does_anything_but_an_invalid_request_come() -> None:
    """Just below the depth that the JSON reader refuses, showing the value may fail, too."""
    for depth in range(1, 1_200):
        nested = "[" * depth + "]" * depth
        decoded(f'{{"type":"hello","assignor":{nested}}}')
        decoded(f'{{"type":"hello","owned":[["t",[{nested}]]]}}')


def test_channels_are_counted_in_total_and_by_address() -> None:
    count = ChannelCount(most=3, most_per_address=2)
    count.open("a")
    count.open("a")
    with pytest.raises(TooManyChannels, match="from a"):
        count.open("a")
    count.open("b")
    with pytest.raises(TooManyChannels, match="3 channels"):
        count.open("c")
    count.close("a")
    count.open("a")
    assert count.total == 3


def test_a_channel_may_send_as_many_frames_in_a_second_as_allowed() -> None:
    rate = FrameRate(10, 0)
    for _ in range(10):
        rate.on_frame(0)
    for now_ms in range(100, 2_000, 100):
        rate.on_frame(now_ms)
    with pytest.raises(InvalidRequest, match="at most 10"):
        rate.on_frame(1_900)

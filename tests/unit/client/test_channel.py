"""The frames of the consumer's channel: encoding, decoding, and invalid frames."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadline_client import channel
from leadline_client.client import Client
from leadline_client.errors import (
    FencedInstance,
    InvalidRequest,
    LeadlineError,
    StaleGeneration,
)
from leadline_client.groups import group_in_path

PARTS: channel.Partitions = (("orders", (0, 3)), ("returns", (1,)))
NUMBERS: dict[str, Any] = {"coordinator_epoch": 2, "generation": 7}
FRAMES: list[channel.Frame] = [
    channel.Hello(topics=("orders",), client_id="c"),
    channel.Hello(
        pattern="ord.*",
        member="m",
        instance_id="i",
        owned=PARTS,
        protocol="cooperative",
        coordinator_epoch=2,
        generation=7,
    ),
    channel.Welcome(member="m", ping_interval_ms=1000, stop_limit_ms=3000, **NUMBERS),
    channel.Welcome(member="m", ping_interval_ms=1, stop_limit_ms=2, **(NUMBERS | {"secret": "x"})),
    channel.Ping(id=4, acknowledged=3, **NUMBERS),
    channel.Pong(id=4, **NUMBERS),
    channel.Stop(id=5, attempt=1, partitions=PARTS, reason="m2 joined", **NUMBERS),
    channel.Stopped(id=5, attempt=1, partitions=PARTS, **NUMBERS),
    channel.Start(
        id=6,
        attempt=1,
        assignment=PARTS,
        offsets=(("orders", 0, 42, 3), ("orders", 3, None, None)),
        threads=((("orders", (0,)),), (("orders", (3,)), ("returns", (1,)))),
        topic_ids=(("orders", "id-1"), ("returns", "id-2")),
        **NUMBERS,
    ),
    channel.Started(id=6, attempt=1, **NUMBERS),
    channel.Error(error_code=40973, message="taken", retriable=False),
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.type)
def test_a_frame_comes_back_as_it_went(frame: channel.Frame) -> None:
    assert channel.decode(channel.encode(frame)) == frame


def test_partitions_are_lists_of_numbers_by_topic_on_the_wire() -> None:
    frame = json.loads(channel.encode(FRAMES[6]))

    assert frame["partitions"] == [["orders", [0, 3]], ["returns", [1]]]


def test_members_of_a_later_release_are_passed_over() -> None:
    text = '{"type":"pong","id":1,"coordinator_epoch":1,"generation":0,"mood":"good"}'

    assert channel.decode(text) == channel.Pong(id=1, coordinator_epoch=1, generation=0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "type"),
        ('{"type":["ping"]}', "type"),
        ('{"type":"shrug"}', "shrug"),
        ('{"type":"pong","id":1,"generation":0}', "coordinator_epoch"),
        ('{"type":"pong","id":"1","coordinator_epoch":1,"generation":0}', "id"),
        ('{"type":"pong","id":true,"coordinator_epoch":1,"generation":0}', "id"),
        ('{"type":"hello","topics":"orders"}', "topics"),
        ('{"type":"hello","topics":[1]}', "topics"),
        ('{"type":"hello","owned":[["orders"]]}', "owned"),
        ('{"type":"hello","assignor":"dice"}', "assignor"),
        ('{"type":"hello","assignor":["range"]}', "assignor"),
    ],
)
def test_what_is_no_frame_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        channel.decode(text)


def test_partitions_are_grouped_in_order_and_taken_apart_again() -> None:
    pairs = [("b", 1), ("a", 2), ("a", 0), ("b", 0)]

    grouped = channel.group_partitions(pairs)

    assert grouped == (("a", (0, 2)), ("b", (0, 1)))
    assert list(channel.partition_pairs(grouped)) == sorted(pairs)


@pytest.mark.parametrize("error", [FencedInstance("taken"), StaleGeneration("old")])
def test_an_error_frame_carries_an_error_of_the_tree(error: LeadlineError) -> None:
    rebuilt = channel.Error.of(error).to_exception()

    assert type(rebuilt) is type(error)
    assert rebuilt.message == error.message


def test_an_error_of_a_later_release_keeps_its_number() -> None:
    rebuilt = channel.Error(error_code=40999, message="new").to_exception()

    assert rebuilt.details["server_code"] == 40999


@pytest.mark.parametrize("name", ["", "team/orders"])
def test_a_group_that_no_path_can_name_is_refused_before_anybody_is_asked(name: str) -> None:
    """The answer was that the user has no right to join it."""
    nobody = Client(["http://127.0.0.1:1"])
    with pytest.raises(InvalidRequest, match="group: "):
        nobody.describe_group(name)
    with pytest.raises(InvalidRequest, match="group: "):
        group_in_path(name)
    assert group_in_path("caf\u00e9 #1") == "caf%C3%A9%20%231"

"""Znode values: what operators may write by hand is checked member by member."""

from __future__ import annotations

import msgspec
import pytest

from leadline_common import znodes
from leadline_common.znodes import BrokerRegistration, PartitionState, TopicAssignment

STATE = b'{"leader": %s, "leader_epoch": %s, "isr": %s, "controller_epoch": 1}'


def test_members_that_are_not_known_are_kept() -> None:
    topic = TopicAssignment("id-1", {0: (1, 2), 1: ()}, adding={0: (3,)}, extra={"note": "kept"})
    assert znodes.decode_topic(znodes.encode_topic(topic)) == topic
    state = PartitionState(1, 5, (1, 2), 7, (3,), extra={"extra": [1], "note": "kept"})
    assert znodes.decode_state(znodes.encode_state(state)) == state
    broker = BrokerRegistration(1, "host", 9092, "http://host:9092", None, 4)
    assert znodes.decode_broker(znodes.encode_value(broker)) == broker


def test_a_topic_by_hand_needs_no_more_than_its_partitions() -> None:
    assert znodes.decode_topic(b'{"partitions": {"0": [2, 3]}}') == TopicAssignment("", {0: (2, 3)})


def test_defect_14_the_bare_value_of_a_topic_is_read() -> None:
    """Replication V3 has {part1: [broker1, broker2], part2: [broker2, broker3]} as the value."""
    bare = znodes.decode_topic(b'{"0": [2, 3], "1": [3, 1]}')
    assert bare == TopicAssignment("", {0: (2, 3), 1: (3, 1)})
    assert znodes.decode_topic(b'{"version": 1, "0": [2, 3]}') == TopicAssignment("", {0: (2, 3)})
    for mixed in (b"{}", b'{"version": 1}', b'{"0": [2], "topic_id": "id"}', b'{"zero": [2]}'):
        with pytest.raises(msgspec.MsgspecError):
            znodes.decode_topic(mixed)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        b'{"partitions": {"0": ["a"]}}',
        b'{"partitions": {"0": [[1]]}}',
        b'{"partitions": {"0": null}}',
        b'{"partitions": {"zero": [1]}}',
        b'{"partitions": {"0": [1, 1]}}',
        b'{"partitions": {"0": [1]}, "topic_id": 5}',
    ],
)
def test_what_is_no_topic(value: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        znodes.decode_topic(value)


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        STATE % (b'"1"', b"3", b"[1]"),
        STATE % (b"1", b"null", b"[1]"),
        STATE % (b"1", b"3", b'"12"'),
        STATE % (b"1", b"3", b"[[1]]"),
    ],
)
def test_what_is_no_state(value: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        znodes.decode_state(value)


def test_what_is_no_broker() -> None:
    with pytest.raises(msgspec.MsgspecError):
        znodes.decode_broker(
            b'{"id": "1", "host": "h", "port": 1, "url": "u", "rack": null, "incarnation": 1}'
        )

"""The codecs of znodes: any bytes raise one type of error, or give what can be encoded again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_common import consumer_znodes, failed_brokers, partition_intents, tasks, znodes
from leadline_common.cluster_id import UnreadableNode, decode_cluster_id
from leadline_common.unreadable import UnreadableNodes
from leadline_common.znode_json import MAX_DEPTH, decode_json, node_number
from leadline_controller.domain.idempotency import decode_record
from tests.support.garbage import GARBAGE

_KINDS: tuple[type[msgspec.Struct], ...] = (
    consumer_znodes.CoordinatorRegistration,
    consumer_znodes.GroupNode,
    consumer_znodes.MemberNode,
    consumer_znodes.OwnersNode,
    consumer_znodes.OffsetNode,
)
CODECS: dict[str, Callable[[bytes], Any]] = {
    "state": znodes.decode_state,
    "topic": znodes.decode_topic,
    "broker": znodes.decode_broker,
    "broker epoch": znodes.decode_broker_epoch,
    "controller": znodes.decode_controller,
    "configs": znodes.decode_configs,
    "audit": znodes.decode_audit,
    "task": tasks.decode_task,
    "intent": tasks.decode_intent,
    "addition": partition_intents.decode_addition,
    "removal": partition_intents.decode_removal,
    "preferred election": partition_intents.decode_preferred,
    "failed broker": failed_brokers.decode_failed_broker,
    "dead broker": failed_brokers.decode_dead_broker,
    "idempotency": decode_record,
    **{kind.__name__: partial(consumer_znodes.decode, kind=kind) for kind in _KINDS},
}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
_NAMES = (
    "version leader isr leader_epoch controller_epoch partitions topic_id id adding removing "
    "first_epochs configs target replicas start offset time port incarnation directories "
    "directory_epochs eligible changes state members owners"
)
_FIELDS = st.sampled_from(_NAMES.split(" "))


def encodable_or_refused(decode: Callable[[bytes], Any], data: bytes) -> None:
    try:
        value = decode(data)
    except msgspec.MsgspecError:
        return
    msgspec.json.encode(value)
    if isinstance(value, msgspec.Struct) and not isinstance(value, znodes.AuditEntry):
        msgspec.json.encode(msgspec.to_builtins(value, str_keys=True))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", GARBAGE)
def test_a_codec_raises_only_its_own_error(codec: str, kind: str) -> None:
    encodable_or_refused(CODECS[codec], GARBAGE[kind])


@given(st.sampled_from(sorted(CODECS)), st.binary() | _JSON.map(msgspec.json.encode))
def test_any_bytes_and_any_json(codec: str, data: bytes) -> None:
    encodable_or_refused(CODECS[codec], data)


@given(st.sampled_from(sorted(CODECS)), st.dictionaries(_FIELDS, _JSON))
def test_known_fields_with_any_value(codec: str, fields: dict[str, Any]) -> None:
    encodable_or_refused(CODECS[codec], msgspec.json.encode(fields))


def state(**changes: Any) -> bytes:
    known = {"leader": 1, "leader_epoch": 3, "isr": [1], "controller_epoch": 2}
    return msgspec.json.encode(known | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"leader": -2},
        {"leader_epoch": -1},
        {"leader_epoch": 2**31 - 1},
        {"controller_epoch": 2**40},
        {"isr": [-1]},
        {"eligible": [2**31]},
    ],
)
def test_numbers_that_no_state_can_have_are_refused(changes: dict[str, Any]) -> None:
    assert znodes.decode_state(state()).leader_epoch == 3
    with pytest.raises(msgspec.ValidationError):
        znodes.decode_state(state(**changes))


def test_unknown_fields_are_kept_unless_they_could_not_be_written_again() -> None:
    kept = znodes.decode_state(state(later=[{"a": 1}]))
    assert kept.extra == {"later": [{"a": 1}]}
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    with pytest.raises(msgspec.ValidationError):
        znodes.decode_state(state(later=deep))


def nested(levels: int) -> Any:
    """Return a value within this many lists and objects, in turn."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("place", ["resource", "before", "after"])
def test_only_what_could_be_written_again_may_be_nested(place: str) -> None:
    entry = {"time": 1, "cause": "c", "actor": "a", "kind": "k"}
    kept = nested(MAX_DEPTH - 1)
    assert getattr(znodes.decode_audit(msgspec.json.encode(entry | {place: kept})), place) == kept
    with pytest.raises(msgspec.ValidationError, match="nested deeper than"):
        znodes.decode_audit(msgspec.json.encode(entry | {place: nested(MAX_DEPTH + 1)}))


@pytest.mark.parametrize("levels", [0, 1, MAX_DEPTH, MAX_DEPTH + 1])
def test_the_depth_of_any_value_is_limited(levels: int) -> None:
    data = msgspec.json.encode(nested(levels))
    if levels <= MAX_DEPTH:
        assert decode_json(data) == nested(levels)
    else:
        with pytest.raises(msgspec.ValidationError, match="nested deeper than"):
            decode_json(data)


@given(st.text() | st.integers().map(str))
def test_only_numbers_as_they_are_written_name_brokers_and_partitions(name: str) -> None:
    number = node_number(name)
    assert number is None or (str(number) == name and 0 <= number < 2**31)


@pytest.mark.parametrize("name", ["", "01", "٣", "²", "-1", "+1", " 1", "9" * 5_000, "2147483648"])
def test_odd_names_are_no_numbers(name: str) -> None:
    assert node_number(name) is None
    assert not partition_intents.is_partition(name)


@pytest.mark.parametrize("data", [b"", b"\xff", b"x" * 300, b"a\nb", "\u200b".encode()])
def test_a_cluster_id_without_a_valid_value_is_no_id(data: bytes) -> None:
    assert decode_cluster_id(b"c0ffee") == "c0ffee"
    with pytest.raises(UnreadableNode, match="/cluster/id"):
        decode_cluster_id(data)


def test_the_limit_of_the_interpreter_is_no_limit_of_the_codec() -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(msgspec.MsgspecError):
        decode_json(b"[" * (limit - 50) + b"]" * (limit - 50))


def test_unreadable_nodes_are_kept_until_they_are_readable_or_gone() -> None:
    nodes = UnreadableNodes()
    assert nodes.summary() == ""
    for name in ("a", "b", "c/partitions/0/state", "d"):
        nodes.add(f"/brokers/topics/{name}", "no JSON")
    assert len(nodes) == 4
    assert "/brokers/topics/a (no JSON)" in nodes.summary()
    assert nodes.summary().endswith("and 1 more")
    nodes.discard("/brokers/topics/a")
    nodes.retain("/brokers/topics", ["c"])
    assert len(nodes) == 1
    nodes.retain("/brokers/ids", [])
    assert len(nodes) == 1
    nodes.retain("/brokers/topics", [])
    assert nodes.summary() == ""

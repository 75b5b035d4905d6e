"""The wire format, against kazoo's own serialisation as an independent witness."""

from __future__ import annotations

from struct import pack
from typing import Any

import kazoo.protocol.serialization as witness
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_common.election_epochs import decode_epoch
from leadline_common.zk import codec
from leadline_common.zk.errors import (
    BadVersion,
    MultiFailed,
    NodeExists,
    NoNode,
    NotPermitted,
    OtherNodeError,
)
from leadline_common.zk.ops import CheckOp, CreateOp, DeleteOp, Op, SetOp, Stat
from leadline_common.znode_json import NO_DATA

ANYONE: list[Any] = [
    type("Acl", (), {"perms": 31, "id": type("Id", (), {"scheme": "world", "id": "anyone"})})
]
STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
STAT_BYTES = pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)

paths = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map("/".__add__)
versions = st.integers(min_value=-1, max_value=2**31 - 1)
operations = st.one_of(
    st.builds(CreateOp, paths, st.binary(), st.booleans(), st.booleans()),
    st.builds(SetOp, paths, st.binary(), versions),
    st.builds(DeleteOp, paths, versions),
    st.builds(CheckOp, paths, versions),
)


def as_kazoo(op: Op, root: str) -> Any:
    """Return kazoo's request for the operation."""
    kazoo: Any = witness
    path = root + op.path
    match op:
        case CreateOp():
            return kazoo.Create(path, op.data, ANYONE, op.ephemeral + 2 * op.sequence)
        case SetOp():
            return kazoo.SetData(path, op.data, op.version)
        case DeleteOp():
            return kazoo.Delete(path, op.version)
        case CheckOp():
            return kazoo.CheckVersion(path, op.version)


def ok(kind: int, body: bytes = b"") -> bytes:
    """Return one result of a multi's answer."""
    return pack("!iBi", kind, 0, 0) + body


def failed(code: int) -> bytes:
    """Return one failure of a multi's answer."""
    return pack("!iBi", -1, 0, code) + pack("!i", code)


END = pack("!iBi", -1, 1, -1)


@given(st.lists(operations), st.sampled_from(["", "/root"]))
def test_a_multi_is_encoded_as_kazoo_encodes_a_transaction(ops: list[Op], root: str) -> None:
    kazoo: Any = witness
    expected = kazoo.Transaction([as_kazoo(op, root) for op in ops]).serialize()
    assert codec.encode_multi(ops, root) == pack("!i", 14) + expected


@given(operations, st.sampled_from(["", "/root"]))
def test_an_operation_alone_is_encoded_as_kazoo_encodes_it(op: Op, root: str) -> None:
    request = as_kazoo(op, root)
    opcode = 13 if isinstance(op, CheckOp) else request.type
    assert codec.encode_op(op, root) == pack("!i", opcode) + request.serialize()


def test_every_kind_of_result_is_read_at_its_place() -> None:
    ops: list[Op] = [
        CreateOp("/a"),
        SetOp("/a", b"", 0),
        DeleteOp("/b", 1),
        CheckOp("/c", 2),
        CreateOp("/d"),
    ]
    answer = (
        ok(1, pack("!i", 7) + b"/root/a")
        + ok(5, STAT_BYTES)
        + ok(2)
        + ok(13)
        + ok(1, pack("!i", 7) + b"/root/d")
        + END
    )
    results = codec.decode_multi(b"head" + answer, 4, ops, "/root")
    assert results == ["/a", STAT, None, None, "/d"]


@pytest.mark.parametrize(
    ("codes", "index", "error"),
    [
        ([0, -103, -2], 1, BadVersion),
        ([-110, -2, -2], 0, NodeExists),
        ([0, 0, -101], 2, NoNode),
        ([0, -102, -2], 1, NotPermitted),
        ([-2, -2, -2], 0, OtherNodeError),
    ],
)
def test_the_operation_that_failed_is_named(codes: list[int], index: int, error: type) -> None:
    ops = [CheckOp("/0", 0), CheckOp("/1", 0), CheckOp("/2", 0)]
    with pytest.raises(MultiFailed) as caught:
        codec.decode_multi(b"".join(map(failed, codes)) + END, 0, ops, "")
    assert caught.value.index == index
    assert type(caught.value.error) is error
    assert caught.value.error.path == f"/{index}"


def test_bulk_data_with_missing_and_empty_nodes() -> None:
    answer = (
        ok(4, pack("!i", 2) + b"xy" + STAT_BYTES)
        + failed(-101)
        + ok(4, pack("!i", -1) + STAT_BYTES)
        + END
    )
    expected = [(b"xy", STAT), None, (b"", STAT)]
    assert codec.decode_nodes(answer, 0, ["/a", "/b", "/c"]) == expected


def test_bulk_children_with_a_missing_node() -> None:
    names = pack("!i", 2) + pack("!i", 1) + b"x" + pack("!i", 2) + "é".encode()
    answer = ok(8, names) + failed(-101) + ok(8, pack("!i", 0)) + END
    expected = [["x", "é"], None, []]
    assert codec.decode_children_lists(answer, 0, ["/a", "/b", "/c"]) == expected


def test_a_node_that_may_not_be_read_is_not_taken_for_missing() -> None:
    """Its data is no value, and no conditional write would pass."""
    (node,) = codec.decode_nodes(failed(-102) + END, 0, ["/secret"])
    assert node == (NO_DATA, codec.UNKNOWN_STAT)
    assert node[1].version == 2**31 - 1
    (names,) = codec.decode_children_lists(failed(-102) + END, 0, ["/secret"])
    assert isinstance(names, NotPermitted)
    assert names.path == "/secret"


def test_an_epoch_that_may_not_be_read_is_no_number() -> None:
    (node,) = codec.decode_nodes(failed(-102) + END, 0, ["/epoch"])
    assert node is not None
    with pytest.raises(NotPermitted, match="/epoch"):
        decode_epoch("/epoch", *node)

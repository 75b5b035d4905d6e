"""ZooKeeper's wire format: encodes requests and decodes replies. Pure.

A request is one `bytes`: its opcode and its body (kazoo adds length and xid). A decoder gets the
buffer of the reply and the offset after its header. A controller writes and reads tens of
thousands of small nodes: for multi (opcode 14) this codec is 2-3 times as fast as kazoo's objects,
and kazoo has no multiRead (opcode 22; ZooKeeper 3.6+).

The layouts are those of zookeeper.jute: big-endian, strings and buffers with a 32-bit length in
front, -1 for null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Final

from leadline_common.zk.errors import MultiFailed, NodeError, NoNode, NotPermitted, node_error
from leadline_common.zk.ops import CheckOp, CreateOp, DeleteOp, MultiResults, Op, SetOp, Stat
from leadline_common.znode_json import NO_DATA

CREATE: Final = 1
DELETE: Final = 2
EXISTS: Final = 3
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_ACL: Final = 6
SET_ACL: Final = 7
GET_CHILDREN: Final = 8
SYNC: Final = 9
CHECK: Final = 13
MULTI: Final = 14
MULTI_READ: Final = 22

_ERROR: Final = -1
_ROLLED_BACK: Final = 0
_NOT_TRIED: Final = -2
"""ZooKeeper's RuntimeInconsistency: the code of an operation after the failed one."""

_INT = Struct("!i")
_HEADER = Struct("!iBi")
_STAT = Struct("!qqqqiiiqiiq")
_pack_int = _INT.pack
_unpack_int = _INT.unpack_from
_unpack_stat = _STAT.unpack_from
_unpack_zxid = Struct("!q").unpack_from
_ZXID_BEFORE_BODY: Final = 12
"""A reply header is xid (32 bits), zxid (64), error (32); decoders start after it."""

_NO_WATCH: Final = b"\0"
_END: Final = _HEADER.pack(-1, 1, -1)
_HEADERS: Final = {
    opcode: _HEADER.pack(opcode, 0, -1)
    for opcode in (CREATE, DELETE, SET_DATA, CHECK, GET_DATA, GET_CHILDREN)
}
_HEADER_SIZE: Final = _HEADER.size
_STAT_SIZE: Final = _STAT.size

_ALL: Final = 31
_EPHEMERAL: Final = 1
_SEQUENCE: Final = 2

UNKNOWN_STAT: Final = Stat(0, 0, 0, 0, 2**31 - 1, 0, 0, 0, 0, 0, 0)
"""Its version makes every conditional write fail; -1 would let every one pass."""


def encode_acl(permissions: Mapping[str, int]) -> bytes:
    """Encode an ACL: permissions by `scheme:user`."""
    parts = [_pack_int(len(permissions))]
    for entry, allowed in permissions.items():
        scheme, _, user = entry.partition(":")
        parts += (_pack_int(allowed), _string(scheme), _string(user))
    return b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _pack_int(len(encoded)) + encoded


OPEN_ACL: Final = encode_acl({"world:anyone": _ALL})
"""Everybody may do everything."""


def open_acl(_: str) -> bytes:
    """Return the ACL of every node of a session without credentials."""
    return OPEN_ACL


def absolute(root: str, path: str) -> str:
    """Return the server's path for a caller's `path` below `root` (empty without a chroot)."""
    return root + path if path != "/" else root or "/"


def _op_parts(op: Op, path: bytes, acl: bytes) -> tuple[bytes, ...]:
    """Return the header and body of one operation of a multi."""
    size = _pack_int(len(path))
    match op:
        case SetOp():
            data = op.data
            return (
                _HEADERS[SET_DATA],
                size,
                path,
                _pack_int(len(data)),
                data,
                _pack_int(op.version),
            )
        case CreateOp():
            return (_HEADERS[CREATE], size, path, create_tail(op, acl))
        case DeleteOp():
            return (_HEADERS[DELETE], size, path, _pack_int(op.version))
        case CheckOp():
            return (_HEADERS[CHECK], size, path, _pack_int(op.version))


def create_tail(op: CreateOp, acl: bytes) -> bytes:
    """Encode what follows the path of a create: data, ACL, flags."""
    flags = (_EPHEMERAL if op.ephemeral else 0) | (_SEQUENCE if op.sequence else 0)
    return b"".join((_pack_int(len(op.data)), op.data, acl, _pack_int(flags)))


def encode_op(op: Op, root: str, acl: bytes = OPEN_ACL) -> bytes:
    """Encode one operation as a single request: the opcode of its header, then its body.

    A created node gets the `acl`.
    """
    header, *body = _op_parts(op, absolute(root, op.path).encode(), acl)
    return header[:4] + b"".join(body)


def encode_multi(ops: Iterable[Op], root: str, acl_of: Callable[[str], bytes] = open_acl) -> bytes:
    """Encode a multi; `root` is prepended to every path.

    Created nodes get the ACL that `acl_of` returns for their path without `root`.
    """
    parts = [_pack_int(MULTI)]
    for op in ops:
        acl = acl_of(op.path) if isinstance(op, CreateOp) else OPEN_ACL
        parts.extend(_op_parts(op, absolute(root, op.path).encode(), acl))
    parts.append(_END)
    return b"".join(parts)


def encode_path(opcode: int, path: str) -> bytes:
    """Encode a request whose body is only a path (sync)."""
    encoded = path.encode()
    return _pack_int(opcode) + _pack_int(len(encoded)) + encoded


def encode_set_acl(path: str, acl: bytes) -> bytes:
    """Encode the replacement of a node's ACL, whatever its version."""
    return encode_path(SET_ACL, path) + acl + _pack_int(-1)


def encode_read(opcode: int, path: str) -> bytes:
    """Encode a read (exists, get, get children) that sets no watch."""
    return encode_path(opcode, path) + _NO_WATCH


def encode_multi_read(opcode: int, paths: Iterable[str], root: str) -> bytes:
    """Encode a multiRead of one kind, `GET_DATA` or `GET_CHILDREN`, over `paths`."""
    header = _HEADERS[opcode]
    parts = [_pack_int(MULTI_READ)]
    for path in paths:
        encoded = absolute(root, path).encode()
        parts += (header, _pack_int(len(encoded)), encoded, _NO_WATCH)
    parts.append(_END)
    return b"".join(parts)


def decode_acl(buffer: bytes, offset: int) -> list[tuple[int, str]]:
    """Decode an ACL: permissions and user of each entry, without its Stat."""
    (count,) = _unpack_int(buffer, offset)
    offset += 4
    entries = []
    for _ in range(max(0, count)):
        (permissions,) = _unpack_int(buffer, offset)
        scheme = decode_string(buffer, offset + 4)
        offset += 8 + len(scheme.encode())
        user = decode_string(buffer, offset)
        offset += 4 + len(user.encode())
        entries.append((permissions, f"{scheme}:{user}"))
    return entries


def decode_stat(buffer: bytes, offset: int) -> Stat:
    """Decode the reply to exists or set."""
    return Stat(*_unpack_stat(buffer, offset))


def decode_string(buffer: bytes, offset: int) -> str:
    """Decode the reply to create or sync: a path."""
    start = offset + 4
    return buffer[start : start + _unpack_int(buffer, offset)[0]].decode()


def decode_node(buffer: bytes, offset: int) -> tuple[bytes, Stat]:
    """Decode the reply to get; the data of a node without data is empty."""
    size = max(_unpack_int(buffer, offset)[0], 0)
    start = offset + 4
    return buffer[start : start + size], Stat(*_unpack_stat(buffer, start + size))


def decode_children(buffer: bytes, offset: int) -> list[str]:
    """Decode the reply to get children, in the server's order."""
    return _children(buffer, offset)[0]


def _children(buffer: bytes, offset: int) -> tuple[list[str], int]:
    count = _unpack_int(buffer, offset)[0]
    offset += 4
    names = []
    for _ in range(count):
        start = offset + 4
        offset = start + _unpack_int(buffer, offset)[0]
        names.append(buffer[start:offset].decode())
    return names, offset


def decode_multi(buffer: bytes, offset: int, ops: Sequence[Op], root: str) -> MultiResults:
    """Decode the reply to the multi of `ops`, checking every result.

    Raises:
        MultiFailed: one operation was refused, so none was applied.

    """
    if _unpack_int(buffer, offset)[0] == _ERROR:
        raise _multi_failure(buffer, offset, ops)
    results = MultiResults((), _unpack_zxid(buffer, offset - _ZXID_BEFORE_BODY)[0])
    for op in ops:
        offset += _HEADER_SIZE
        if isinstance(op, SetOp):
            results.append(Stat(*_unpack_stat(buffer, offset)))
            offset += _STAT_SIZE
        elif isinstance(op, CreateOp):
            results.append(decode_string(buffer, offset)[len(root) :])
            offset += 4 + _unpack_int(buffer, offset)[0]
        else:
            results.append(None)
    return results


def _multi_failure(buffer: bytes, offset: int, ops: Sequence[Op]) -> MultiFailed:
    """Find the operation that failed: the others have the code rolled back, or not tried."""
    codes = [
        _unpack_int(buffer, offset + index * (_HEADER_SIZE + 4) + _HEADER_SIZE)[0]
        for index in range(len(ops))
    ]
    failed = (i for i, code in enumerate(codes) if code not in (_ROLLED_BACK, _NOT_TRIED))
    index = next(failed, 0)
    return MultiFailed(index, node_error(codes[index], ops[index].path))


def decode_nodes(
    buffer: bytes, offset: int, paths: Sequence[str]
) -> list[tuple[bytes, Stat] | None]:
    """Decode a multiRead of data: one entry per path, None for a missing node.

    A node that this session may not read has `NO_DATA`, which no decoder accepts, and a version
    that no write expects: whoever may write one node must not stop the reading of all others.
    """
    results: list[tuple[bytes, Stat] | None] = []
    for path in paths:
        kind = _unpack_int(buffer, offset)[0]
        offset += _HEADER_SIZE
        if kind == _ERROR:
            error = _raise_unless((NoNode, NotPermitted), _unpack_int(buffer, offset)[0], path)
            results.append(None if isinstance(error, NoNode) else (NO_DATA, UNKNOWN_STAT))
            offset += 4
            continue
        start = offset + 4
        end = start + max(_unpack_int(buffer, offset)[0], 0)
        results.append((buffer[start:end], Stat(*_unpack_stat(buffer, end))))
        offset = end + _STAT_SIZE
    return results


def decode_children_lists(
    buffer: bytes, offset: int, paths: Sequence[str]
) -> list[list[str] | NotPermitted | None]:
    """Decode a multiRead of children: one list per path, None for a missing node.

    A node that this session may not read has the error.
    """
    results: list[list[str] | NotPermitted | None] = []
    for path in paths:
        kind = _unpack_int(buffer, offset)[0]
        offset += _HEADER_SIZE
        if kind == _ERROR:
            error = _raise_unless((NoNode, NotPermitted), _unpack_int(buffer, offset)[0], path)
            results.append(error if isinstance(error, NotPermitted) else None)
            offset += 4
            continue
        names, offset = _children(buffer, offset)
        results.append(names)
    return results


def _raise_unless(
    expected: type[NodeError] | tuple[type[NodeError], ...], code: int, path: str
) -> NodeError:
    error: NodeError = node_error(code, path)
    if not isinstance(error, expected):
        raise error
    return error

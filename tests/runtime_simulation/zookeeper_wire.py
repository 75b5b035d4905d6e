"""ZooKeeper's wire format from the server's side: decodes requests and encodes replies.

The counterpart of `leadline_common.zk.codec`; the layouts are those of zookeeper.jute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct, pack
from typing import Any

from leadline_common.zk import codec
from leadline_common.zk.ops import Stat
from leadline_common.zk.requests import EncodedRequest, Request
from tests.runtime_simulation.zookeeper_tree import NO_NODE, Node, Refused, Transaction

READS = frozenset(
    {codec.EXISTS, codec.GET_DATA, codec.GET_ACL, codec.GET_CHILDREN, codec.MULTI_READ}
)
HEADER_BYTES = 16
"""xid, zxid and error of a reply."""

_INT = Struct("!i")
_HEADER = Struct("!iBi")
_REPLY = Struct("!iqi")
_STAT = Struct("!qqqqiiiqiiq")
_ERROR, _ROLLED_BACK, _NOT_TRIED = -1, 0, -2
_END = _HEADER.pack(-1, 1, -1)
_EPHEMERAL, _SEQUENCE = 1, 2


def opened(request: Request) -> tuple[int, bytes, Callable[[], None] | None]:
    """Return opcode, body and watcher of a request."""
    if isinstance(request, EncodedRequest):
        encoded = request.serialize()
        return _INT.unpack_from(encoded)[0], encoded[4:], None
    reading: Any = request  # kazoo's classes have no types
    return int(reading.type), bytes(reading.serialize()), reading.watcher


def framed(zxid: int, body: bytes) -> bytes:
    """Return a reply with its header."""
    return _REPLY.pack(0, zxid, 0) + body


def string(text: str) -> bytes:
    """Encode a string."""
    encoded = text.encode()
    return _INT.pack(len(encoded)) + encoded


def path_of(body: bytes) -> str:
    """Return the path that a request begins with."""
    return _Reader(body).string()


def read_one(opcode: int, node: Node) -> bytes:
    """Encode the reply to a read of an existing node."""
    if opcode == codec.EXISTS:
        return _stat(node.stat())
    if opcode == codec.GET_DATA:
        return _INT.pack(len(node.data)) + node.data + _stat(node.stat())
    if opcode == codec.GET_CHILDREN:
        return _names(node.children)
    return codec.OPEN_ACL + _stat(node.stat())


def read_many(find: Callable[[str], Node | None], body: bytes) -> bytes:
    """Encode the reply to a multiRead."""
    reader, parts = _Reader(body), []
    while (opcode := reader.header()) is not None:
        path = reader.string()
        reader.skip(1)  # the watch flag
        node = find(path)
        if node is None:
            parts += [_HEADER.pack(_ERROR, 0, NO_NODE), _INT.pack(NO_NODE)]
        elif opcode == codec.GET_DATA:
            parts += [_HEADER.pack(opcode, 0, 0), read_one(opcode, node)]
        else:
            parts += [_HEADER.pack(opcode, 0, 0), _names(node.children)]
    return b"".join(parts) + _END


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of a reply, and whether the transaction must not take effect."""

    body: bytes
    refused: bool = False


def apply(transaction: Transaction, opcode: int, body: bytes, owner: int, now_ms: int) -> Answer:
    """Apply a write to a transaction, and encode its reply.

    Raises:
        Refused: a single write is refused; a refused multi has a reply instead.

    """
    reader = _Reader(body)
    if opcode != codec.MULTI:
        return Answer(_apply_one(transaction, opcode, reader, owner, now_ms))
    parts: list[bytes] = []
    failed, code, count = None, _ROLLED_BACK, 0
    while (each := reader.header()) is not None:
        if failed is not None:
            _skip(each, reader)
        else:
            try:
                part = _apply_one(transaction, each, reader, owner, now_ms)
                parts.append(_HEADER.pack(each, 0, 0) + part)
            except Refused as refusal:
                failed, code = count, refusal.code
        count += 1
    if failed is None:
        return Answer(b"".join(parts) + _END)
    codes = [_ROLLED_BACK] * failed + [code] + [_NOT_TRIED] * (count - failed - 1)
    errors = [_HEADER.pack(_ERROR, 0, error) + _INT.pack(error) for error in codes]
    return Answer(b"".join(errors) + _END, refused=True)


def _apply_one(
    transaction: Transaction, opcode: int, reader: _Reader, owner: int, now_ms: int
) -> bytes:
    path = reader.string()
    if opcode == codec.CREATE:
        data = reader.buffer()
        reader.acl()
        flags = reader.integer()
        created = transaction.create(
            path,
            data,
            owner if flags & _EPHEMERAL else 0,
            now_ms,
            sequence=bool(flags & _SEQUENCE),
        )
        return string(created)
    if opcode == codec.SET_DATA:
        data = reader.buffer()
        return _stat(transaction.set(path, data, reader.integer(), now_ms))
    if opcode == codec.DELETE:
        transaction.delete(path, reader.integer())
        return b""
    if opcode == codec.CHECK:
        transaction.check(path, reader.integer())
        return b""
    if opcode == codec.SET_ACL:
        return _stat(transaction.check(path, -1).stat())
    raise AssertionError(f"opcode {opcode} is not simulated")


def _skip(opcode: int, reader: _Reader) -> None:
    reader.string()
    if opcode in {codec.CREATE, codec.SET_DATA}:
        reader.buffer()
    if opcode == codec.CREATE:
        reader.acl()
    reader.integer()


def _stat(stat: Stat) -> bytes:
    return _STAT.pack(
        stat.czxid,
        stat.mzxid,
        stat.ctime,
        stat.mtime,
        stat.version,
        stat.cversion,
        stat.aversion,
        stat.ephemeral_owner,
        stat.data_length,
        stat.num_children,
        stat.pzxid,
    )


def _names(names: Sequence[str]) -> bytes:
    return pack("!i", len(names)) + b"".join(map(string, names))


class _Reader:
    """Reads the parts of a request in turn."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def integer(self) -> int:
        (value,) = _INT.unpack_from(self._body, self._at)
        self._at += 4
        return int(value)

    def buffer(self) -> bytes:
        size = max(0, self.integer())
        self._at += size
        return self._body[self._at - size : self._at]

    def string(self) -> str:
        return self.buffer().decode()

    def skip(self, size: int) -> None:
        self._at += size

    def acl(self) -> None:
        for _ in range(max(0, self.integer())):
            self.integer()
            self.string()
            self.string()

    def header(self) -> int | None:
        """Return the opcode of the next operation; None at the end."""
        opcode, done, _ = _HEADER.unpack_from(self._body, self._at)
        self._at += _HEADER.size
        return None if done else int(opcode)

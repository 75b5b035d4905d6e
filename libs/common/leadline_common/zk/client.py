"""Reads, versioned writes, multis and bulk reads over one ZooKeeper session.

`ZkSession` adds the life cycle of the session.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, TypeVar

from leadline_common.tracing import spans
from leadline_common.zk import codec
from leadline_common.zk.errors import NodeExists, NoNode, NotPermitted, RequestTooLarge
from leadline_common.zk.ops import CreateOp, DeleteOp, MultiResults, Op, SetOp, Stat
from leadline_common.zk.ports import Transport
from leadline_common.zk.requests import (
    EncodedRequest,
    ExistsWatch,
    GetChildrenWatch,
    GetDataWatch,
    Reply,
    Request,
)
from leadline_common.zk.tracing import operation_of, trace_request

MAX_REQUEST_BYTES: Final = 900 * 1024
"""The largest request to send. A server closes the connection above jute.maxbuffer (1 MiB)."""

READ_BATCH: Final = 1000
"""Nodes in one multiRead."""

_T = TypeVar("_T")
Callback = Callable[[], None]


class ZkClient(ABC):
    """The operations of one ZooKeeper session.

    Besides the errors that it names, every operation may raise ConnectionLoss (its outcome is
    unknown), the subclass NotConnected (it was not sent) and SessionExpired.
    """

    _acl_of: Callable[[str], bytes] = staticmethod(codec.open_acl)
    """The ACL of a node that it creates, by the node's path."""

    @abstractmethod
    def _open_transport(self) -> Transport:
        """Return the connection, or raise SessionExpired."""

    # -- one node --------------------------------------------------------------

    async def get(self, path: str, *, watch: Callback | None = None) -> tuple[bytes, Stat]:
        """Return data and Stat; `watch` is called once, at the next write or delete.

        Raises:
            NoNode: the node does not exist (and no watch was set).

        """
        return await self._read(
            "get", codec.GET_DATA, GetDataWatch, path, watch, _decoder(codec.decode_node)
        )

    async def exists(self, path: str, *, watch: Callback | None = None) -> Stat | None:
        """Return the Stat, or None; `watch` is called once, at the next create, write or delete.

        A node that may not be read has `codec.UNKNOWN_STAT`, and is not watched.
        """
        try:
            return await self._read(
                "exists", codec.EXISTS, ExistsWatch, path, watch, _optional_stat
            )
        except NoNode:
            return None
        except NotPermitted:
            return codec.UNKNOWN_STAT

    async def get_children(self, path: str, *, watch: Callback | None = None) -> list[str]:
        """Return the sorted names of the children; `watch` is called once, when they change.

        Raises:
            NoNode: the node does not exist (and no watch was set).

        """
        decode = _decoder(codec.decode_children)
        names = await self._read(
            "get_children", codec.GET_CHILDREN, GetChildrenWatch, path, watch, decode
        )
        names.sort()
        return names

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a node and return its path.

        Raises:
            NodeExists: it exists already.
            NoNode: its parent does not exist.

        """
        op = CreateOp(path, data, ephemeral=ephemeral, sequence=sequence)
        root = self._open_transport().root
        created = await self._write(op, _decoder(codec.decode_string))
        return created[len(root) :]

    async def ensure_path(self, path: str) -> None:
        """Create `path` and its parents without data, unless they exist."""
        if await self.exists(path) is None:
            await self._create_path(path, self._open_transport().root)

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        """Replace the data if its version is `version` (or `ANY_VERSION`), and return the Stat.

        Raises:
            BadVersion: the node has another version.
            NoNode: the node does not exist.

        """
        return await self._write(SetOp(path, data, version), _decoder(codec.decode_stat))

    async def delete(self, path: str, version: int) -> None:
        """Delete a node if its version is `version` (or `ANY_VERSION`).

        Raises:
            BadVersion: the node has another version.
            NoNode: the node does not exist.
            NotEmpty: it has children.

        """
        await self._write(DeleteOp(path, version), no_body)

    async def sync(self, path: str = "/") -> None:
        """Wait until reads of this session see everything that the leader has committed."""
        transport = self._open_transport()
        encoded = codec.encode_path(codec.SYNC, codec.absolute(transport.root, path))
        await self._submit("sync", EncodedRequest(encoded), no_body, path)

    async def acl_users(self, path: str) -> dict[str, int]:
        """Return who may do what with a node: permissions by `scheme:user`.

        Raises:
            NoNode: the node does not exist.

        """
        absolute = codec.absolute(self._open_transport().root, path)
        request = EncodedRequest(codec.encode_path(codec.GET_ACL, absolute))
        entries = await self._submit("get_acl", request, _decoder(codec.decode_acl), path)
        return {user: permissions for permissions, user in entries}

    async def restrict(self, path: str) -> None:
        """Give a node the ACL that this session would create it with.

        Raises:
            NoNode: the node does not exist.

        """
        absolute = codec.absolute(self._open_transport().root, path)
        request = EncodedRequest(codec.encode_set_acl(absolute, self._acl_of(path)))
        await self._submit("set_acl", request, no_body, path)

    # -- many nodes ------------------------------------------------------------

    def submit_multi(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        """Send a multi now and return its future, so that multis can be pipelined.

        ZooKeeper applies the multis of one session in the order of submission. The future raises
        what `multi` raises; errors that are known before sending are raised at once.
        """
        transport = self._open_transport()
        if not ops:
            empty: asyncio.Future[MultiResults] = asyncio.get_running_loop().create_future()
            empty.set_result(MultiResults((), 0))
            return empty
        request = EncodedRequest(_checked(codec.encode_multi(ops, transport.root, self._acl_of)))
        decode = _decoder(codec.decode_multi, ops, transport.root)
        return self._submit("multi", request, decode, ops[0].path, ops)

    async def multi(self, ops: Sequence[Op]) -> MultiResults:
        """Apply all operations or none, and return one result per operation.

        A result is the created path, the new Stat of a set, or None.

        Raises:
            MultiFailed: the operation at its index was refused; nothing was changed.
            RequestTooLarge: over `MAX_REQUEST_BYTES`; nothing was sent.
            ConnectionLoss: the outcome is unknown (all or none).
            SessionExpired: the session is over.

        """
        return await self.submit_multi(ops)

    async def get_many(
        self, paths: Sequence[str], *, batch_size: int = READ_BATCH
    ) -> list[tuple[bytes, Stat] | None]:
        """Return data and Stat of each path, None for a missing node.

        One that may not be read has `znode_json.NO_DATA`, which no decoder accepts.

        Batches are pipelined. Each batch is a consistent snapshot; the whole result is not.
        """
        return await self._read_many(
            "get_many", codec.GET_DATA, codec.decode_nodes, paths, batch_size
        )

    async def get_children_many(
        self, paths: Sequence[str], *, batch_size: int = READ_BATCH
    ) -> list[list[str] | None]:
        """Return the names of each path's children, None for a missing node.

        Raises:
            NotPermitted: this session may not read one of them.

        """
        found: list[list[str] | None] = []
        for names in await self.get_permitted_children(paths, batch_size=batch_size):
            if isinstance(names, NotPermitted):
                raise names
            found.append(names)
        return found

    async def get_permitted_children(
        self, paths: Sequence[str], *, batch_size: int = READ_BATCH
    ) -> list[list[str] | NotPermitted | None]:
        """Return what `get_children_many` does, with the error of each path it may not read."""
        return await self._read_many(
            "get_children_many",
            codec.GET_CHILDREN,
            codec.decode_children_lists,
            paths,
            batch_size,
        )

    # -- internal --------------------------------------------------------------

    def _submit(
        self,
        operation: str,
        request: Request,
        decode: Callable[[Reply | None], _T],
        path: str,
        parts: Sequence[object] = (),
    ) -> asyncio.Future[_T]:
        """Send a request; `parts` are the operations of a multi or the paths of a bulk read."""
        future = self._open_transport().submit(request, decode, path)
        if spans.is_on():
            trace_request(future, operation, path, parts)
        return future

    async def _read(
        self,
        operation: str,
        opcode: int,
        with_watch: type[GetDataWatch] | type[ExistsWatch] | type[GetChildrenWatch],
        path: str,
        watch: Callback | None,
        decode: Callable[[Reply | None], _T],
    ) -> _T:
        transport = self._open_transport()
        absolute = codec.absolute(transport.root, path)
        request: Request
        if watch is None:
            request = EncodedRequest(codec.encode_read(opcode, absolute))
        else:
            request = with_watch(absolute, transport.watcher(watch))
        return await self._submit(operation, request, decode, path)

    async def _write(self, op: Op, decode: Callable[[Reply | None], _T]) -> _T:
        root = self._open_transport().root
        request = EncodedRequest(_checked(codec.encode_op(op, root, self._acl_of(op.path))))
        return await self._submit(operation_of(op), request, decode, op.path)

    async def _read_many(
        self,
        operation: str,
        opcode: int,
        decode: Callable[[bytes, int, Sequence[str]], list[_T]],
        paths: Sequence[str],
        batch_size: int,
    ) -> list[_T]:
        root = self._open_transport().root
        pending = []
        for start in range(0, len(paths), batch_size):
            most = paths[start : start + batch_size]
            for batch, encoded in _encoded_reads(opcode, most, root):
                request, decoder = EncodedRequest(encoded), _decoder(decode, batch)
                pending.append(self._submit(operation, request, decoder, batch[0], batch))
        results: list[_T] = []
        for answer in await asyncio.gather(*pending):
            results += answer
        return results

    async def _create_path(self, path: str, root: str) -> None:
        for node in accumulate(f"/{name}" for name in path.split("/") if name):
            # Without `root`, it is the chroot that is created.
            acl = self._acl_of(node if root == self._open_transport().root else "/")
            request = EncodedRequest(codec.encode_op(CreateOp(node), root, acl))
            try:
                await self._submit("create", request, no_body, node)
            except NodeExists:
                pass
            except NotPermitted:  # ZooKeeper says so as well if the node exists.
                if not await self._is_there(root + node):
                    raise

    async def _is_there(self, absolute: str) -> bool:
        request = EncodedRequest(codec.encode_read(codec.EXISTS, absolute))
        try:
            return await self._submit("exists", request, _optional_stat, absolute) is not None
        except NoNode:
            return False
        except NotPermitted:
            return True


def _decoder(decode: Callable[..., _T], *arguments: object) -> Callable[[Reply | None], _T]:
    """Adapt a decoder of the codec to the replies of the transport."""

    def decode_reply(reply: Reply | None) -> _T:
        if reply is None:
            raise ValueError("a reply without a body")
        return decode(*reply, *arguments)

    return decode_reply


def _optional_stat(reply: Reply | None) -> Stat | None:
    return None if reply is None else codec.decode_stat(*reply)


def no_body(_: Reply | None) -> None:
    """Decode a reply without a body."""


def _encoded_reads(
    opcode: int, paths: Sequence[str], root: str
) -> Iterator[tuple[Sequence[str], bytes]]:
    """Yield paths in order, with the multiRead of each part that fits into one request.

    Long paths are rare, such as those of a group with a name of 255 Chinese characters.
    """
    encoded = codec.encode_multi_read(opcode, paths, root)
    if len(encoded) <= MAX_REQUEST_BYTES or len(paths) == 1:
        yield paths, _checked(encoded)
        return
    middle = len(paths) // 2
    yield from _encoded_reads(opcode, paths[:middle], root)
    yield from _encoded_reads(opcode, paths[middle:], root)


def _checked(encoded: bytes) -> bytes:
    if len(encoded) > MAX_REQUEST_BYTES:
        raise RequestTooLarge(len(encoded), MAX_REQUEST_BYTES)
    return encoded

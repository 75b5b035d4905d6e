"""ZooKeeper's tree with its whole history, so that a member that lags can answer from the past.

Every committed transaction has a zxid. A node's states are kept with the zxid that made them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from leadline_common.zk.ops import Stat

NO_NODE, BAD_VERSION, NO_CHILDREN_FOR_EPHEMERALS = -101, -103, -108
NODE_EXISTS, NOT_EMPTY = -110, -111
ANY_VERSION = -1


class Refused(Exception):
    """The server refuses an operation, with ZooKeeper's error code."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


@dataclass(frozen=True, slots=True)
class Node:
    """One state of a node."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    version: int = 0
    cversion: int = 0
    owner: int = 0
    children: tuple[str, ...] = ()
    created_children: int = 0

    def stat(self) -> Stat:
        """Return the node's Stat."""
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.cversion,
            0,
            self.owner,
            len(self.data),
            len(self.children),
            self.pzxid,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction changed: the data of `path`, and maybe its parent's children."""

    path: str
    created: bool = False
    deleted: bool = False

    @property
    def parent(self) -> str:
        """The path of the parent."""
        return self.path.rpartition("/")[0] or "/"


@dataclass(slots=True)
class _States:
    zxids: list[int] = field(default_factory=list)
    nodes: list[Node | None] = field(default_factory=list)


class Tree:
    """All nodes, and how they came about. `zxid` is the last committed transaction."""

    def __init__(self) -> None:
        self.zxid = 0
        self.changes: dict[int, list[Change]] = {}
        self._states: dict[str, _States] = {}
        self._set("/", Node(b"", 0, 0, 0, 0, 0))

    def at(self, path: str, zxid: int) -> Node | None:
        """Return a node as of a transaction."""
        states = self._states.get(path)
        if states is None:
            return None
        index = bisect_right(states.zxids, zxid)
        return states.nodes[index - 1] if index else None

    def now(self, path: str) -> Node | None:
        """Return a node as it is."""
        states = self._states.get(path)
        return states.nodes[-1] if states is not None else None

    def history(self, path: str) -> Iterator[tuple[int, Node | None]]:
        """Yield the states of a node with their zxids, oldest first."""
        states = self._states.get(path, _States())
        yield from zip(states.zxids, states.nodes, strict=True)

    def _set(self, path: str, node: Node | None) -> None:
        states = self._states.setdefault(path, _States())
        if states.zxids and states.zxids[-1] == self.zxid:
            states.nodes[-1] = node
        else:
            states.zxids.append(self.zxid)
            states.nodes.append(node)

    def begin(self) -> Transaction:
        """Begin a transaction."""
        return Transaction(self)


class Transaction:
    """Operations that take effect together with `commit`, or not at all."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._zxid = tree.zxid + 1
        self._new: dict[str, Node | None] = {}
        self._changes: list[Change] = []

    def commit(self) -> int:
        """Commit, and return the zxid."""
        self._tree.zxid = self._zxid
        for path, node in self._new.items():
            self._tree._set(path, node)
        self._tree.changes[self._zxid] = self._changes
        return self._zxid

    def _get(self, path: str) -> Node | None:
        return self._new[path] if path in self._new else self._tree.now(path)

    def _existing(self, path: str) -> Node:
        node = self._get(path)
        if node is None:
            raise Refused(NO_NODE)
        return node

    def check(self, path: str, version: int) -> Node:
        """Refuse unless the node has this version."""
        node = self._existing(path)
        if version not in {ANY_VERSION, node.version}:
            raise Refused(BAD_VERSION)
        return node

    def create(self, path: str, data: bytes, owner: int, now_ms: int, *, sequence: bool) -> str:
        """Create a node and return its path."""
        parent_path = path.rpartition("/")[0] or "/"
        parent = self._existing(parent_path)
        if parent.owner:
            raise Refused(NO_CHILDREN_FOR_EPHEMERALS)
        if sequence:
            path = f"{path}{parent.created_children:010d}"
        if self._get(path) is not None:
            raise Refused(NODE_EXISTS)
        zxid = self._zxid
        self._new[path] = Node(data, zxid, zxid, zxid, now_ms, now_ms, owner=owner)
        self._change_children(parent_path, parent, (*parent.children, path.rpartition("/")[2]), 1)
        self._changes.append(Change(path, created=True))
        return path

    def set(self, path: str, data: bytes, version: int, now_ms: int) -> Stat:
        """Replace the data, and return the Stat."""
        node = self.check(path, version)
        written = replace(node, data=data, version=node.version + 1, mzxid=self._zxid, mtime=now_ms)
        self._new[path] = written
        self._changes.append(Change(path))
        return written.stat()

    def delete(self, path: str, version: int) -> None:
        """Delete a node."""
        node = self.check(path, version)
        if node.children:
            raise Refused(NOT_EMPTY)
        self._new[path] = None
        parent_path = path.rpartition("/")[0] or "/"
        name = path.rpartition("/")[2]
        parent = self._existing(parent_path)
        self._change_children(
            parent_path, parent, tuple(child for child in parent.children if child != name), 0
        )
        self._changes.append(Change(path, deleted=True))

    def _change_children(
        self, path: str, node: Node, children: Sequence[str], created: int
    ) -> None:
        self._new[path] = replace(
            node,
            children=tuple(children),
            cversion=node.cversion + 1,
            pzxid=self._zxid,
            created_children=node.created_children + created,
        )

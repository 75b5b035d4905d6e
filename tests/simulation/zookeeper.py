"""ZooKeeper as the services meet it: one linear history, seen late and through broken connections.

Writes are linear; a session's requests take effect in the order in which it made
them; its reads may lag, but never run backwards, and never behind its own
writes. A connection may break before a write takes effect or after it: the
client cannot tell which. Watches are hints, late or lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.simulation.world import Process, World

SESSION_TIMEOUT_MS = 150.0


@dataclass(frozen=True, slots=True)
class Znode:
    """A node: its value, data version, transactions of creation and last write, owner session."""

    value: Any
    version: int
    created: int
    modified: int
    owner: int = 0


class ZkError(Enum):
    """Why a request failed."""

    BAD_VERSION = "bad version"
    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    CONNECTION_LOSS = "connection loss"
    SESSION_EXPIRED = "session expired"


@dataclass(frozen=True, slots=True)
class Check:
    """Require that a node exists; with `version` >= 0, at that data version."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node."""

    path: str
    value: Any
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Write a node that is at `version`."""

    path: str
    value: Any
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the node that transaction `created` made."""

    path: str
    created: int


Op = Check | Create | Set | Delete


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a multi: nothing (`error`, at operation `failed`), or all of it at `zxid`."""

    error: ZkError | None = None
    failed: int = -1
    zxid: int = 0


Read = dict[str, Znode | None]


@dataclass(slots=True)
class Trouble:
    """How often connections break, per request, and how far servers lag."""

    lost_before: float = 0.0
    lost_after: float = 0.0
    slow_answer: float = 0.0
    slow_ms: float = 150.0
    lag_ms: float = 0.0
    watch_lost: float = 0.0
    watch_late_ms: float = 10.0


class ZooKeeper:
    """The tree with its whole history."""

    def __init__(self, world: World, trouble: Trouble) -> None:
        self.world = world
        self.trouble = trouble
        self.tree: dict[str, Znode] = {}
        self.zxid = 0
        self.sessions: list[Session] = []
        self.on_write: Callable[[str, Znode], None] = lambda _path, _node: None
        self._past: dict[str, list[tuple[int, Znode | None]]] = {}
        self._times: list[tuple[float, int]] = []

    def connect(self, process: Process) -> Session:
        """Open a session."""
        session = Session(self, process, len(self.sessions) + 1)
        self.sessions.append(session)
        return session

    def apply(self, ops: Iterable[Op], owner: int) -> Outcome:
        """Apply all operations or none."""
        staged: Read = {}
        zxid = self.zxid + 1
        for index, op in enumerate(ops):
            node = staged[op.path] if op.path in staged else self.tree.get(op.path)
            error = self._refusal(op, node)
            if error is not None:
                return Outcome(error, index, self.zxid)
            match op:
                case Create():
                    held = owner if op.ephemeral else 0
                    staged[op.path] = Znode(op.value, 0, zxid, zxid, held)
                case Set() if node is not None:
                    staged[op.path] = Znode(op.value, node.version + 1, node.created, zxid)
                case Delete():
                    staged[op.path] = None
        self.commit(staged)
        return Outcome(zxid=self.zxid)

    @staticmethod
    def _refusal(op: Op, node: Znode | None) -> ZkError | None:
        if isinstance(op, Create):
            return ZkError.NODE_EXISTS if node is not None else None
        if node is None:
            return ZkError.NO_NODE
        if isinstance(op, Delete):
            return ZkError.BAD_VERSION if node.created != op.created else None
        return ZkError.BAD_VERSION if op.version not in {-1, node.version} else None

    def commit(self, staged: Read) -> None:
        """Write nodes in one transaction; tell the checker and the watchers."""
        if not staged:
            return
        self.zxid += 1
        self._times.append((self.world.now, self.zxid))
        for path, node in staged.items():
            self._past.setdefault(path, []).append((self.zxid, node))
            if node is None:
                self.tree.pop(path, None)
            else:
                self.tree[path] = node
                self.on_write(path, node)
        for session in self.sessions:
            session.hint(staged)

    def zxid_at(self, time: float) -> int:
        """Return the last transaction at a time."""
        for moment, zxid in reversed(self._times):
            if moment <= time:
                return zxid
        return 0

    def node_at(self, path: str, zxid: int) -> Znode | None:
        """Return a node as it was after a transaction."""
        for moment, node in reversed(self._past.get(path, [])):
            if moment <= zxid:
                return node
        return None


class Session:
    """A client's session, and its connection."""

    def __init__(self, store: ZooKeeper, process: Process, number: int) -> None:
        self.number = number
        self.expired = False
        self.connected = True
        self.on_hint: Callable[[], None] | None = None
        self.on_expired: Callable[[], None] | None = None
        self.next_fate = ""
        self._store = store
        self._process = process
        self._seen = 0
        self._free_at = 0.0
        self._breaks = 0

    # -- requests ----------------------------------------------------------------

    def multi(self, ops: list[Op], answer: Callable[[Outcome], None]) -> None:
        """Write in one transaction, and answer what became of it."""
        trouble, world = self._store.trouble, self._store.world
        if self._unreachable() or world.chance(trouble.lost_before):
            self._reply(Outcome(self._broken()), answer, 5)
            return
        fate, self.next_fate = self.next_fate, ""
        lost = fate == "lost after" or world.chance(trouble.lost_after)
        if lost:
            # The client may notice the lost connection before the write takes effect.
            self._reply(Outcome(ZkError.CONNECTION_LOSS), answer, 0)
        slowly = 80.0 if fate == "slow answer" else 0.0
        world.schedule(self._slot(), None, self._write, ops, None if lost else answer, slowly)

    def read(self, paths: list[str], answer: Callable[[Read | None], None]) -> None:
        """Read nodes from one server, which may lag; answer None when the connection breaks."""
        self._ask(paths, answer, synced=False)

    def sync_and_read(self, paths: list[str], answer: Callable[[Read | None], None]) -> None:
        """Read nodes as they are now; answer None when the connection breaks."""
        self._ask(paths, answer, synced=True)

    def _ask(
        self, paths: list[str], answer: Callable[[Read | None], None], *, synced: bool
    ) -> None:
        trouble, world = self._store.trouble, self._store.world
        if self._unreachable() or world.chance(trouble.lost_before):
            self._reply(None, answer, 5)
            return
        world.schedule(self._slot(), None, self._look, paths, answer, synced)

    def _slot(self) -> float:
        """Return the delay after which the server handles a request: in order, per session."""
        world = self._store.world
        self._free_at = max(self._free_at, world.now + world.between(0.3, 2.5))
        return self._free_at - world.now

    def _write(
        self, ops: list[Op], answer: Callable[[Outcome], None] | None, slowly: float
    ) -> None:
        outcome = Outcome(ZkError.SESSION_EXPIRED)
        if not self.expired:
            outcome = self._store.apply(ops, self.number)
            self._seen = self._store.zxid
        if answer is not None:
            if not self.connected:
                outcome = Outcome(self._broken())
            self._reply(outcome, answer, 0.3 + slowly)

    def _look(
        self,
        paths: list[str],
        answer: Callable[[Read | None], None],
        synced: bool,
    ) -> None:
        if self._unreachable():
            self._reply(None, answer, 0.3)
            return
        store = self._store
        lag = store.trouble.lag_ms * store.world.random.random()
        view = store.zxid if synced else max(self._seen, store.zxid_at(store.world.now - lag))
        self._seen = view
        self._reply({path: store.node_at(path, view) for path in paths}, answer, 0.3)

    def _reply(self, value: Any, answer: Callable[[Any], None], least: float) -> None:
        world, trouble = self._store.world, self._store.trouble
        delay = least + world.between(0, 2)
        if world.chance(trouble.slow_answer):
            delay += world.between(0, trouble.slow_ms)
        self._process.after(delay, answer, value)

    def _unreachable(self) -> bool:
        return self.expired or not self.connected

    def _broken(self) -> ZkError:
        gone = self.expired and self.connected
        return ZkError.SESSION_EXPIRED if gone else ZkError.CONNECTION_LOSS

    # -- connection --------------------------------------------------------------

    def disconnect(self) -> None:
        """Lose the connection: the session lives on for its timeout."""
        if not self.connected:
            return
        self.connected = False
        self._breaks += 1
        self._store.world.schedule(SESSION_TIMEOUT_MS, None, self._time_out, self._breaks)

    def reconnect(self) -> None:
        """Find a server again; only now does the client learn of an expired session."""
        if not self.connected and self._process.alive:
            self.connected = True
            self._breaks += 1
            if self.expired:
                self._tell_expired()

    def _time_out(self, breaks: int) -> None:
        if breaks == self._breaks:
            self.expire()

    def expire(self) -> None:
        """End the session at the server: its ephemerals vanish."""
        if self.expired:
            return
        self.expired = True
        store = self._store
        store.commit({p: None for p, node in store.tree.items() if node.owner == self.number})
        if self.connected:
            self._tell_expired()

    def _tell_expired(self) -> None:
        """Notify the client once that its session has expired."""
        notify, self.on_expired = self.on_expired, None
        if notify is not None:
            self._process.after(self._store.world.between(0, 20), notify)

    def hint(self, changed: Read) -> None:
        """Run the watch for a change of the set of live processes, late, or never."""
        if self.on_hint is None or self._unreachable():
            return
        trouble, world = self._store.trouble, self._store.world
        if all(node is not None and node.version for node in changed.values()):
            return
        if not world.chance(trouble.watch_lost):
            self._process.after(1 + world.between(0, trouble.watch_late_ms), self.on_hint)

"""A simulated ZooKeeper ensemble: sessions, members that lag, watches, connections that break.

It speaks ZooKeeper's wire format (`zookeeper_wire`), so that the services' own session, client and
codec are part of the simulation. `zookeeper_transport` takes the place of kazoo's connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from leadline_common.zk import codec
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.ports import SessionState
from leadline_common.zk.requests import ExistsWatch, Request
from tests.runtime_simulation import zookeeper_wire as wire
from tests.runtime_simulation.event_loop import OWNER
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.world import World
from tests.runtime_simulation.zookeeper_transport import SimulatedTransport
from tests.runtime_simulation.zookeeper_tree import NO_NODE, Change, Node, Refused, Tree

_Watcher = Callable[[], None]
DATA, CHILDREN = "data", "children"


@dataclass(eq=False)
class Session:
    """A session on the server. `seen` is the zxid up to which its member has answered it."""

    number: int
    timeout_s: float
    transport: SimulatedTransport
    seen: int = 0
    over: bool = False
    watches: dict[tuple[str, str], dict[_Watcher, None]] = field(default_factory=dict)
    silent_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class ZooKeeperWeather:
    """How unreliable ZooKeeper is: probabilities, and times in seconds."""

    delay_s: float = 0.002
    slow: float = 0.0
    slow_s: float = 0.2
    break_before: float = 0.0
    break_after: float = 0.0
    lag_s: float = 0.0


class ZooKeeper:
    """The ensemble."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tree = Tree()
        self.weather = ZooKeeperWeather()
        self.sessions: dict[int, Session] = {}
        self.transports: list[SimulatedTransport] = []
        self.cut: set[str] = set()
        self.without_quorum = False
        self.on_commit: list[Callable[[list[Change]], bool]] = []
        self.on_read: list[Callable[[Process, str], bool]] = []
        self._committed: list[tuple[float, int]] = [(0.0, 0)]
        self._numbers = 0

    # -- for services ----------------------------------------------------------

    def transport(
        self,
        hosts: str,
        session_timeout_ms: int,
        on_state: Callable[[SessionState], None],
        credentials: ZkCredentials | None = None,
    ) -> SimulatedTransport:
        """Return the transport of a new session; an `OpenTransport`."""
        del hosts, credentials
        owner = OWNER.get()
        assert owner is not None
        transport = SimulatedTransport(self, owner, session_timeout_ms, on_state)
        self.transports.append(transport)
        return transport

    # -- for faults ------------------------------------------------------------

    def reachable(self, process: Process) -> bool:
        """Tell whether a process reaches a member that has a quorum."""
        return process.name not in self.cut and not self.without_quorum

    def is_alive(self, process: Process) -> bool:
        """Tell whether a process has a session that has not run out."""
        return any(session.transport.process is process for session in self.sessions.values())

    def disconnect(self, process: Process) -> None:
        """Break the connections of a process."""
        for session in list(self.sessions.values()):
            if session.transport.process is process:
                session.transport.lose_connection()

    def resumed(self, name: str) -> None:
        """Let a process that was frozen find out what became of its sessions."""
        for transport in self.transports:
            if transport.process.name == name:
                transport.resumed()
        self.lose_processes()

    def lose_processes(self) -> None:
        """Notice which processes are dead or frozen: their sessions run out."""
        for session in list(self.sessions.values()):
            process = session.transport.process
            silent = not process.alive or process.frozen or not session.transport.connected
            if silent and session.silent_since_s is None:
                session.silent_since_s = self.world.loop.now_s
                spare_s = session.timeout_s * self.world.between(0.7, 1.1)
                self.world.loop.after(spare_s, self._expire_if_silent, session)
            elif not silent:
                session.silent_since_s = None

    def regain_quorum(self) -> None:
        """Serve again; the new leader gives each session its whole timeout."""
        self.without_quorum = False
        for session in self.sessions.values():
            session.silent_since_s = None
        self.lose_processes()

    def _expire_if_silent(self, session: Session) -> None:
        since_s = session.silent_since_s
        if since_s is None or session.over:
            return
        if self.without_quorum:  # nobody can decide on it; it starts over with a new leader
            session.silent_since_s = None
        elif self.world.loop.now_s - since_s >= session.timeout_s * 0.69:
            self.world.reached("session expired")
            self.end(session)

    # -- sessions --------------------------------------------------------------

    def open(self, transport: SimulatedTransport, timeout_s: float) -> Session:
        """Open a session."""
        self._numbers += 1
        session = Session(self._numbers, timeout_s, transport, self.tree.zxid)
        self.sessions[session.number] = session
        return session

    def end(self, session: Session) -> None:
        """End a session: its ephemeral nodes go."""
        if session.over:
            return
        session.over = True
        del self.sessions[session.number]
        owned = [
            path
            for path, states in self.tree._states.items()
            if (node := states.nodes[-1]) is not None and node.owner == session.number
        ]
        if owned:
            transaction = self.tree.begin()
            for path in owned:
                transaction.delete(path, -1)
            self.committed(transaction.commit())

    def committed(self, zxid: int) -> None:
        """Note a transaction; each session's member learns of it some time later.

        A function in `on_commit` sees the changes, and is dropped when it returns True. So is one
        in `on_read`, which sees who reads which of many nodes.
        """
        self._committed.append((self.world.loop.now_s, zxid))
        changes = self.tree.changes[zxid]
        self.on_commit = [look for look in self.on_commit if not look(changes)]
        for session in self.sessions.values():
            lag_s = self.world.between(0, self.weather.lag_s)
            self.world.loop.after(lag_s, self._learn, session, zxid)

    def stall(self, process: Process, for_s: float) -> None:
        """Let nothing of what is answered to a process arrive for a while."""
        for session in self.sessions.values():
            if session.transport.process is process:
                session.transport.stall(for_s)

    def hold(self, process: Process, for_s: float) -> None:
        """Let nothing of what a process sends arrive for a while."""
        for session in self.sessions.values():
            if session.transport.process is process:
                session.transport.hold(for_s)

    def delete(self, path: str) -> None:
        """Delete a node if it exists, as an operator does."""
        if self.tree.now(path) is not None:
            transaction = self.tree.begin()
            transaction.delete(path, -1)
            self.committed(transaction.commit())

    def _learn(self, session: Session, zxid: int) -> None:
        if not session.over and session.transport.connected:
            self.advance(session, zxid)

    def advance(self, session: Session, zxid: int) -> None:
        """Let a session's member learn of all up to a zxid: watches fire."""
        for number in range(session.seen + 1, zxid + 1):
            for change in self.tree.changes.get(number, ()):
                self._fire(session, change)
        session.seen = max(session.seen, zxid)

    @staticmethod
    def _fire(session: Session, change: Change) -> None:
        keys = [(DATA, change.path)]
        if change.deleted:
            keys.append((CHILDREN, change.path))
        if change.created or change.deleted:
            keys.append((CHILDREN, change.parent))
        for key in keys:
            for watcher in session.watches.pop(key, {}):
                session.transport.deliver(watcher)

    def visible(self) -> int:
        """Return the newest transaction that a lagging member surely knows."""
        horizon_s = self.world.loop.now_s - self.world.between(0, self.weather.lag_s)
        return next((z for at_s, z in reversed(self._committed) if at_s <= horizon_s), 0)

    # -- requests --------------------------------------------------------------

    def serve(self, session: Session, request: Request) -> bytes:
        """Apply a request, and return the body of the reply with its header.

        Raises:
            Refused: ZooKeeper's error.

        """
        opcode, body, watcher = wire.opened(request)
        now_ms = int(self.world.loop.now_s * 1000)
        if opcode in wire.READS:
            self.advance(session, max(session.seen, self.visible()))
            return self._read(session, opcode, body, watcher, request)
        if opcode == codec.SYNC:
            self.advance(session, self.tree.zxid)
            return wire.framed(self.tree.zxid, wire.string("/"))
        transaction = self.tree.begin()
        answer = wire.apply(transaction, opcode, body, session.number, now_ms)
        if answer.refused:
            return wire.framed(self.tree.zxid, answer.body)
        zxid = transaction.commit()
        self.committed(zxid)
        self.advance(session, zxid)
        return wire.framed(zxid, answer.body)

    def _read(
        self,
        session: Session,
        opcode: int,
        body: bytes,
        watcher: _Watcher | None,
        request: Request,
    ) -> bytes:
        tree, seen = self.tree, session.seen
        if opcode == codec.MULTI_READ:
            return wire.framed(seen, wire.read_many(partial(self._look_up, session), body))
        path = wire.path_of(body)
        node = tree.at(path, seen)
        kind = CHILDREN if opcode == codec.GET_CHILDREN else DATA
        exists = isinstance(request, ExistsWatch)
        if watcher is not None and (node is not None or exists):
            session.watches.setdefault((kind, path), {})[watcher] = None
        if node is None:
            raise Refused(NO_NODE)
        return wire.framed(seen, wire.read_one(opcode, node))

    def _look_up(self, session: Session, path: str) -> Node | None:
        """Return a node as a session's member knows it, and show the read to `on_read`."""
        process = session.transport.process
        self.on_read = [look for look in self.on_read if not look(process, path)]
        return self.tree.at(path, session.seen)

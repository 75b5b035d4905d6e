"""The connection of one simulated ZooKeeper session, in place of kazoo's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from leadline_common.zk.errors import ConnectionLoss, NotConnected, SessionExpired, node_error
from leadline_common.zk.ports import SessionState
from leadline_common.zk.requests import ExistsWatch, Reply, Request
from tests.runtime_simulation import zookeeper_wire as wire
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.zookeeper_tree import NO_NODE, Refused

if TYPE_CHECKING:
    from tests.runtime_simulation.zookeeper import Session, ZooKeeper

_T = TypeVar("_T")
_Watcher = Callable[[], None]


class SimulatedTransport:
    """The connection of one session: a `leadline_common.zk.ports.Transport`."""

    root = ""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        process: Process,
        timeout_ms: int,
        on_state: Callable[[SessionState], None],
    ) -> None:
        self.process = process
        self.connected = False
        self.granted_timeout_ms = timeout_ms
        self._zookeeper = zookeeper
        self._world = zookeeper.world
        self._on_state = on_state
        self._session: Session | None = None
        self._closed = False
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._sent_s = self._received_s = 0.0
        self._connection = 0

    @property
    def session_id(self) -> int:
        return 0 if self._session is None else self._session.number

    # -- life cycle ------------------------------------------------------------

    def start(self) -> None:
        self._in_world(self._world.between(0.001, 0.02), self._connect)

    def watch_loop(self) -> None:
        """Do nothing: the simulated loop never stands still."""

    async def finish(self) -> None:
        await asyncio.sleep(self._world.between(0.001, 0.01))
        if self._session is not None and self._zookeeper.reachable(self.process):
            left_s = self._sent_s - self._world.loop.now_s
            if left_s > 0:  # it is closed after what was sent before has arrived
                self._in_world(left_s, self._zookeeper.end, self._session)
            else:
                self._zookeeper.end(self._session)
        self._closed = True
        self.connected = False

    def abandon(self) -> None:
        raise NotImplementedError("only the loop's watchdog abandons a session")

    def _connect(self) -> None:
        if self._closed or self.connected or not self.process.alive:
            return
        if self.process.frozen or not self._zookeeper.reachable(self.process):
            self._in_world(self._world.between(0.05, 0.2), self._connect)
            return
        if self._session is None:
            timeout_s = self.granted_timeout_ms / 1000
            self._session = self._zookeeper.open(self, timeout_s)
        if self._session.over:
            self._tell(SessionState.LOST)
            self._closed = True
            return
        self.connected = True
        self._connection += 1
        self._session.silent_since_s = None
        self._tell(SessionState.CONNECTED)

    def lose_connection(self) -> None:
        """Break the connection: the outcome of what is under way is unknown, watches are gone."""
        if not self.connected:
            return
        self.connected = False
        if self._session is not None:
            self._session.watches.clear()
        pending, self._pending = self._pending, {}
        for future in pending:
            self._fail(future, ConnectionLoss("the connection broke before the reply"))
        self._zookeeper.lose_processes()
        self._tell(SessionState.SUSPENDED)
        self._in_world(self._world.between(0.02, 0.3), self._connect)

    def stall(self, for_s: float) -> None:
        """Let nothing arrive for a while: what is answered meanwhile comes late, in its order."""
        self._received_s = max(self._received_s, self._world.loop.now_s + for_s)

    def hold(self, for_s: float) -> None:
        """Let nothing that is sent arrive for a while: it comes late, in its order."""
        self._sent_s = max(self._sent_s, self._world.loop.now_s + for_s)

    def resumed(self) -> None:
        """After a pause: the server has closed the connection of a session that is over."""
        if self._session is not None and self._session.over and not self._closed:
            self.lose_connection()

    def _tell(self, state: SessionState) -> None:
        self._in_process(0.0, self._on_state, state)

    # -- requests --------------------------------------------------------------

    def submit(
        self,
        request: Request,
        decode: Callable[[Reply | None], _T],
        path: str,
        *,
        urgent: bool = False,
    ) -> asyncio.Future[_T]:
        del urgent
        future: asyncio.Future[_T] = self._world.loop.create_future()
        if not self.connected:
            self._fail(future, NotConnected("no connection to ZooKeeper"))
            return future
        self._pending[future] = None
        self._sent_s = self._after(self._sent_s)
        connection = self._connection

        def arrive() -> None:  # what was sent before the session was closed, too
            if self._connection == connection and (self.connected or self._closed):
                self._serve(request, decode, path, future)

        self._in_world(self._sent_s - self._world.loop.now_s, arrive)
        return future

    def _serve(
        self,
        request: Request,
        decode: Callable[[Reply | None], _T],
        path: str,
        future: asyncio.Future[_T],
    ) -> None:
        session, weather = self._session, self._zookeeper.weather
        assert session is not None
        if session.over:
            self.connected = False
            self._fail_all(SessionExpired("the session has expired"))
            self._tell(SessionState.LOST)
            return
        if self._world.chance(weather.break_before):
            self.lose_connection()
            return
        reply: bytes | None = None
        refused: Exception | None = None
        try:
            reply = self._zookeeper.serve(session, request)
        except Refused as refusal:
            if refusal.code != NO_NODE or not isinstance(request, ExistsWatch):
                refused = node_error(refusal.code, path)
        if self._world.chance(weather.break_after):
            self._world.reached("ZooKeeper's answer was lost")
            self.lose_connection()
            return

        def answered() -> None:
            self._pending.pop(future, None)
            if future.done():
                return
            if refused is not None:
                future.set_exception(refused)
                return
            try:
                future.set_result(decode(None if reply is None else (reply, wire.HEADER_BYTES)))
            except Exception as failure:  # raised to the caller, as by the real transport
                future.set_exception(failure)

        self._deliver_at(answered)

    def deliver(self, watcher: _Watcher) -> None:
        """Send a watch event, before all later replies."""
        self._deliver_at(watcher)

    def _deliver_at(self, event: Callable[[], None]) -> None:
        self._received_s = self._after(self._received_s)
        connection = self._connection

        def arrive() -> None:
            if self._connection == connection and self.connected:
                event()

        self._in_process(self._received_s - self._world.loop.now_s, arrive)

    def _after(self, previous_s: float) -> float:
        """Return when what is sent now arrives: after all that was sent before."""
        weather = self._zookeeper.weather
        delay_s = self._world.between(0, weather.delay_s)
        if self._world.chance(weather.slow):
            delay_s += self._world.between(0, weather.slow_s)
        return max(previous_s, self._world.loop.now_s + delay_s)

    def watcher(self, callback: Callable[[], None]) -> _Watcher:
        """Return what is registered for a callback: equal callbacks have one watch."""
        return callback

    def _fail_all(self, error: Exception) -> None:
        pending, self._pending = self._pending, {}
        for future in pending:
            self._fail(future, error)

    def _fail(self, future: asyncio.Future[_T], error: Exception) -> None:
        def fail() -> None:
            if not future.done():
                future.set_exception(error)

        self._in_process(0.0, fail)

    def _in_world(self, delay_s: float, callback: Callable[..., object], *args: object) -> None:
        self._world.loop.after(max(0.0, delay_s), callback, *args)

    def _in_process(self, delay_s: float, callback: Callable[..., object], *args: object) -> None:
        self._world.loop.in_process_after(self.process, max(0.0, delay_s), callback, *args)

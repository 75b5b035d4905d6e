"""The bridge between kazoo's connection thread and the event loop.

kazoo manages the session, the socket and reconnects. It gets encoded requests and returns
undecoded replies, so that its thread runs no code of Leadline that could raise: an exception there
ends the connection thread, and no future would ever complete.

Completions, state changes and watch events go through one queue in the order of their occurrence,
and one wake-up of the loop drains it.

All use of kazoo's undocumented members is in this module, `connection` and
`polling_handler`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss as KazooConnectionLoss
from kazoo.exceptions import SessionExpiredError as KazooSessionExpired
from kazoo.exceptions import WriterNotClosedException, ZookeeperError
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from leadline_common.loop_watchdog import LoopWatchdog
from leadline_common.zk.connection import Connection
from leadline_common.zk.connection_record import ConnectionRecord
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import ConnectionLoss, NotConnected, SessionExpired, node_error
from leadline_common.zk.polling_handler import PollingHandler
from leadline_common.zk.ports import SessionState
from leadline_common.zk.requests import Reply, Request

logger = structlog.get_logger(__name__)

SEND_WINDOW: Final = 200
"""The most requests that kazoo has without a reply.

kazoo wakes its thread with one byte per request through a socket pair, whose send blocks the event
loop when about 270 bytes are unread.
"""

_T = TypeVar("_T")
Event: TypeAlias = Callable[[], None]
SessionIdentity: TypeAlias = tuple[int, bytes]
"""The id of a session, and its password."""

_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class _Client(KazooClient):
    """kazoo's client with `Connection`, limited to one session."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        credentials: ZkCredentials | None,
        resumed: SessionIdentity | None,
        record: ConnectionRecord,
    ) -> None:
        super().__init__(
            hosts,
            timeout=session_timeout_ms / 1000,
            client_id=resumed,
            auth_data=None if credentials is None else {("digest", credentials.login)},
            handler=PollingHandler(None if credentials is None else credentials.tls),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0),
        )
        self._connection: Connection = Connection(self, self._conn_retry.copy(), record)
        self.last_zxid = record.newest_zxid
        self._closing = threading.Lock()

    @property
    def granted_timeout_ms(self) -> int:
        return self._connection.granted_timeout_ms

    @property
    def session_id(self) -> int:
        return self.client_id[0] if self.client_id else 0

    def forbid_new_session(self) -> None:
        """Stop kazoo from starting another session after a lost one."""
        self._stopped.set()

    def submit(self, request: Request, completion: _Completion[_T]) -> None:
        self._call(request, completion)

    def close_session(self) -> None:
        """Close the session and free threads and sockets. Blocks; may be repeated."""
        with self._closing:  # kazoo does not expect two threads to stop it at once
            try:
                if self._stopped.is_set():
                    self._safe_close()
                else:
                    self.stop()
                self.close()
            except WriterNotClosedException:
                logger.warning("the connection thread did not end in time")


@dataclass(eq=False, slots=True)
class _Completion(Generic[_T]):
    """Takes the place of kazoo's future, and passes the outcome to the loop."""

    transport: KazooTransport
    decode: Callable[[Reply | None], _T]
    future: asyncio.Future[_T]
    path: str

    def set(self, reply: Reply | None) -> None:
        """Take the reply (kazoo's thread); None for the exists of a missing node."""
        self.transport.post(partial(self._complete, reply, None))

    def set_exception(self, error: Exception) -> None:
        """Take the error (either thread)."""
        self.transport.post(partial(self._complete, None, error))

    def _complete(self, reply: Reply | None, error: Exception | None) -> None:
        self.transport.completed(self)
        if self.future.done():
            return
        if error is not None:
            self.fail(_translated(error, self.path))
            return
        try:
            self.future.set_result(self.decode(reply))
        except Exception as failure:  # raised to the caller, not in the loop
            self.fail(failure)

    def fail(self, error: Exception) -> None:
        """Raise an error to the caller, if it still waits (the loop)."""
        if not self.future.done():
            self.future.set_exception(error)


def _translated(error: Exception, path: str) -> Exception:
    """Return the error of `zk.errors` for one of kazoo's."""
    if isinstance(error, KazooSessionExpired):
        return SessionExpired(str(error))
    if isinstance(error, KazooConnectionLoss):
        return ConnectionLoss("the connection broke before the reply")
    if isinstance(error, ZookeeperError):
        return node_error(error.code, path)
    return error


class KazooTransport:
    """The connection of one session: takes requests, and posts events to its event loop.

    Implements `zk.ports.Transport`.

    With `credentials`, each connection logs in by the digest scheme, over TLS if they have it.
    With `resumed`, it takes over that session, unless it is over. With the `record` of earlier
    sessions, it uses no server whose data is older than what these have seen.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        on_state: Callable[[SessionState], None],
        credentials: ZkCredentials | None = None,
        *,
        resumed: SessionIdentity | None = None,
        record: ConnectionRecord | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_state = on_state
        self._events: deque[Event] = deque()
        self._drain_scheduled = False
        self._backlog: deque[Event] = deque()
        self._in_flight = 0
        self._waiting: dict[_Completion[Any], None] = {}
        self._session_id = 0
        self._watchdog: LoopWatchdog | None = None
        self._client = _Client(
            hosts, session_timeout_ms, credentials, resumed, record or ConnectionRecord()
        )
        self._client.add_listener(self._state_changed)

    @property
    def root(self) -> str:
        """The chroot, which is prepended to every path; empty without one."""
        return self._client.chroot

    @property
    def session_id(self) -> int:
        """The id of the session; 0 before the first connection."""
        return self._session_id

    @property
    def identity(self) -> SessionIdentity | None:
        """What proves to ZooKeeper that a connection is of this session; None before the first."""
        return self._client.client_id

    @property
    def granted_timeout_ms(self) -> int:
        """The session timeout that the server granted."""
        return self._client.granted_timeout_ms

    def start(self) -> None:
        """Start to connect; the outcome is reported as a state."""
        self._client.start_async()

    def watch_loop(self) -> None:
        """From now on, close the session if the event loop is blocked for the session timeout."""
        self._watchdog = LoopWatchdog(self.granted_timeout_ms / 1000, self.abandon)
        self._watchdog.start()

    async def finish(self) -> None:
        """Close the session and free its resources; states and replies still arrive meanwhile.

        It has a thread of its own: all others may wait for a disk that hangs.
        """
        if self._watchdog is not None:
            self._watchdog.stop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="zookeeper-close")
        try:
            await self._loop.run_in_executor(thread, self._client.close_session)
        finally:
            thread.shutdown(wait=False)

    def abandon(self) -> None:
        """Close the session without the loop, which learns that it is lost when it runs again.

        For a thread that finds the loop blocked. Blocks until the session is closed.
        """
        self.post(partial(self._on_state, SessionState.LOST))
        self._client.close_session()

    def submit(
        self,
        request: Request,
        decode: Callable[[Reply | None], _T],
        path: str,
        *,
        urgent: bool = False,
    ) -> asyncio.Future[_T]:
        """Send a request, or queue it until the send window has room; `urgent` skips the queue."""
        future: asyncio.Future[_T] = self._loop.create_future()
        completion = _Completion(self, decode, future, path)
        self._waiting[completion] = None
        send = partial(self._send, request, completion)
        if urgent or self._in_flight < SEND_WINDOW:
            send()
        else:
            self._backlog.append(send)
        return future

    def _send(self, request: Request, completion: _Completion[_T]) -> None:
        self._in_flight += 1
        if self._client.connected:
            self._client.submit(request, completion)
        else:
            completion.set_exception(NotConnected("no connection to ZooKeeper"))

    def completed(self, completion: _Completion[Any]) -> None:
        """Count a completed request, and send the next one of the backlog."""
        self._waiting.pop(completion, None)
        self._in_flight -= 1
        if self._backlog and self._in_flight < SEND_WINDOW:
            self._backlog.popleft()()

    def post(self, event: Event) -> None:
        """Run `event` on the loop, in the order of posting. Thread-safe; never raises."""
        self._events.append(event)
        if not self._drain_scheduled:
            self._drain_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed
                self._events.clear()

    def _drain(self) -> None:
        self._drain_scheduled = False
        while self._events:
            try:
                self._events.popleft()()
            except Exception:  # the remaining events must still run
                logger.exception("a ZooKeeper callback failed")

    def _state_changed(self, state: str) -> bool:
        """Pass a state on (kazoo's thread); returning False keeps the listener registered."""
        new_state = _STATES[state]
        if new_state is SessionState.CONNECTED:
            self._session_id = self._client.session_id
            self._on_connected()
        if new_state is SessionState.LOST:
            self._client.forbid_new_session()
        self.post(partial(self._on_state, new_state))
        if new_state is SessionState.LOST:
            self.post(self._end_requests)
        return False

    def _end_requests(self) -> None:
        """End all requests of a session that is over.

        kazoo tells of those in its queue, but not of one that it takes just then: it looks at its
        state first, and its thread may empty the queue before the request is in it.
        """
        self._backlog.clear()
        for completion in self._waiting:
            completion.fail(SessionExpired("the session is over"))
        self._waiting.clear()

    def _on_connected(self) -> None:
        """Is called on kazoo's thread, before the loop can use the connection."""

    def watcher(self, callback: Event) -> Callable[[WatchedEvent], None]:
        """Return a one-shot watcher for kazoo that runs `callback` on the loop."""
        return _Watcher(self, callback)


@dataclass(frozen=True, slots=True)
class _Watcher:
    """A watcher that posts its callback. Watchers of equal callbacks are equal: kazoo keeps one."""

    transport: KazooTransport = field(compare=False)
    callback: Event

    def __call__(self, event: WatchedEvent) -> None:
        """Post the callback, except for changes of the connection, which are states."""
        if event.type != EventType.NONE:
            self.transport.post(self.callback)

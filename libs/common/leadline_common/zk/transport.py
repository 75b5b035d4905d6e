"""The bridge between kazoo's connection thread and the event loop.

kazoo keeps the session, the socket and the reconnecting; everything else is
done here and above. Requests are handed to it already encoded, answers are
taken from it undecoded, so that its thread runs none of our code that could
raise: an exception there kills the connection and hangs every future.

Completions, state changes and watch events are put in one queue, in the order
in which they happened, and one wake-up of the loop empties it.

All use of kazoo's undocumented members is in this module.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from select import POLLIN, POLLOUT, poll
from socket import socket
from typing import Final, Generic, TypeAlias, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss as KazooConnectionLoss
from kazoo.exceptions import SessionExpiredError as KazooSessionExpired
from kazoo.exceptions import WriterNotClosedException, ZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from leadline_common.zk.errors import ConnectionLoss, NotConnected, SessionExpired, node_error
from leadline_common.zk.requests import Answer, Request

_log = logging.getLogger(__name__)

SEND_WINDOW: Final = 200
"""Requests given to kazoo and not yet answered.

kazoo wakes its thread with one byte for each request, through a socket pair
whose send blocks (and with it the loop) when some 270 bytes are unread.
"""

_T = TypeVar("_T")
Event: TypeAlias = Callable[[], None]


class SessionState(enum.Enum):
    """What is known of the session: in touch, out of touch, or over for good."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class _Handler(SequentialThreadingHandler):
    """kazoo's threads, waiting for sockets by `poll`.

    Its own `select` makes and closes an epoll object for every read and write,
    which is near half of the cost of a small request.
    """

    def select(
        self,
        readers: Sequence[socket],
        writers: Sequence[socket],
        _: Sequence[socket],
        timeout: float | None = None,
    ) -> tuple[list[socket], list[socket], list[socket]]:
        poller = poll()
        for reader in readers:
            poller.register(reader, POLLIN)
        for writer in writers:
            poller.register(writer, POLLOUT)
        ready = {fd for fd, _ in poller.poll(None if timeout is None else timeout * 1000)}
        return (
            [reader for reader in readers if reader.fileno() in ready],
            [writer for writer in writers if writer.fileno() in ready],
            [],
        )


class _Connection(ConnectionHandler):
    """kazoo's connection, which also remembers what session timeout the server granted."""

    granted_timeout_ms: int = 0

    def _invoke(
        self, timeout: float, request: object, xid: int | None = None
    ) -> tuple[object, int | None] | int | None:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(answer, tuple) and isinstance(answer[0], Connect):
            self.granted_timeout_ms = answer[0].time_out
        return answer


class _Client(KazooClient):
    """kazoo's client with the connection above, and without a second session."""

    def __init__(self, hosts: str, session_timeout_ms: int) -> None:
        super().__init__(
            hosts,
            timeout=session_timeout_ms / 1000,
            handler=_Handler(),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0),
        )
        self._connection: _Connection = _Connection(self, self._conn_retry.copy())

    @property
    def granted_timeout_ms(self) -> int:
        return self._connection.granted_timeout_ms

    @property
    def session_id(self) -> int:
        return self.client_id[0] if self.client_id else 0

    def forbid_new_session(self) -> None:
        """Make kazoo give up instead of starting a session in the place of a lost one."""
        self._stopped.set()

    def submit(self, request: Request, completion: _Completion[_T]) -> None:
        self._call(request, completion)

    def finish(self) -> None:
        """Close the session if there is one, and free threads and sockets. Blocks."""
        try:
            if self._stopped.is_set():
                self._safe_close()
            else:
                self.stop()
            self.close()
        except WriterNotClosedException:
            _log.warning("the connection thread did not end in time; it is left behind")


class _Completion(Generic[_T]):
    """What kazoo takes for its own future: it passes the outcome on to the loop."""

    __slots__ = ("decode", "future", "path", "transport")

    def __init__(
        self,
        transport: KazooTransport,
        decode: Callable[[Answer | None], _T],
        future: asyncio.Future[_T],
        path: str,
    ) -> None:
        self.transport = transport
        self.decode = decode
        self.future = future
        self.path = path

    def set(self, answer: Answer | None) -> None:
        """Take the answer (kazoo's thread); None is what kazoo makes of a missing node."""
        self.transport.post(partial(self._finish, answer, None))

    def set_exception(self, error: Exception) -> None:
        """Take the failure (either thread)."""
        self.transport.post(partial(self._finish, None, error))

    def _finish(self, answer: Answer | None, error: Exception | None) -> None:
        self.transport.answered()
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(_translated(error, self.path))
            return
        try:
            self.future.set_result(self.decode(answer))
        except Exception as failure:  # the loop must go on, and the caller must hear of it
            self.future.set_exception(failure)


def _translated(error: Exception, path: str) -> Exception:
    """Return our own error for one of kazoo's."""
    if isinstance(error, KazooSessionExpired):
        return SessionExpired(str(error))
    if isinstance(error, KazooConnectionLoss):
        return ConnectionLoss("the connection broke before the answer")
    if isinstance(error, ZookeeperError):
        return node_error(error.code, path)
    return error


class KazooTransport:
    """One session's connection: requests in, events out, on the loop that made it."""

    def __init__(
        self, hosts: str, session_timeout_ms: int, on_state: Callable[[SessionState], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_state = on_state
        self._events: deque[Event] = deque()
        self._woken = False
        self._backlog: deque[Event] = deque()
        self._in_flight = 0
        self._session_id = 0
        self._client = _Client(hosts, session_timeout_ms)
        self._client.add_listener(self._state_changed)

    @property
    def root(self) -> str:
        """The path that is put before every path of the caller; empty without a chroot."""
        return self._client.chroot

    @property
    def session_id(self) -> int:
        """The id of the session; 0 before the first connection."""
        return self._session_id

    @property
    def granted_timeout_ms(self) -> int:
        """The session timeout that the server granted, which bounds what was asked for."""
        return self._client.granted_timeout_ms

    def start(self) -> None:
        """Begin to connect; the outcome comes as a state."""
        self._client.start_async()

    async def finish(self) -> None:
        """End the session and free everything; states and answers still come meanwhile."""
        await asyncio.to_thread(self._client.finish)

    def submit(
        self,
        request: Request,
        decode: Callable[[Answer | None], _T],
        path: str,
        *,
        urgent: bool = False,
    ) -> asyncio.Future[_T]:
        """Send a request, or queue it behind the send window; `urgent` goes at once."""
        future: asyncio.Future[_T] = self._loop.create_future()
        completion = _Completion(self, decode, future, path)
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

    def answered(self) -> None:
        """Let the next request of the backlog go."""
        self._in_flight -= 1
        if self._backlog and self._in_flight < SEND_WINDOW:
            self._backlog.popleft()()

    def post(self, event: Event) -> None:
        """Have `event` run on the loop, after those before it. Any thread; never raises."""
        self._events.append(event)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: nobody is left to be told
                self._events.clear()

    def _drain(self) -> None:
        self._woken = False
        while self._events:
            try:
                self._events.popleft()()
            except Exception:  # one listener's failure must not cost the others their events
                _log.exception("a ZooKeeper callback failed")

    def _state_changed(self, state: str) -> bool:
        """Note a state (kazoo's thread); the listener stays registered."""
        told = _STATES[state]
        if told is SessionState.CONNECTED:
            self._session_id = self._client.session_id
        if told is SessionState.LOST:
            self._client.forbid_new_session()
        self.post(partial(self._on_state, told))
        return False

    def watcher(self, callback: Event) -> Callable[[WatchedEvent], None]:
        """Wrap a callback of the loop as a one-shot watcher for kazoo."""
        return _Watcher(self, callback)


class _Watcher:
    """A watcher that only posts. Equal for equal callbacks, so that kazoo keeps one."""

    __slots__ = ("_callback", "_transport")

    def __init__(self, transport: KazooTransport, callback: Event) -> None:
        self._transport = transport
        self._callback = callback

    def __call__(self, event: WatchedEvent) -> None:
        """Pass a change on. That a connection broke is told as a state, not here."""
        if event.type != EventType.NONE:
            self._transport.post(self._callback)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Watcher) and other._callback == self._callback

    def __hash__(self) -> int:
        return hash(self._callback)

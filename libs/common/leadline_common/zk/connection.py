"""kazoo's connection to one server at a time, with what kazoo does not notice or say.

- kazoo pings only an idle connection. A server that is silent, but gets requests all the time,
  would never be left for another one.
- A server that has just failed is tried last, and no attempt may take the whole session timeout.
- A server with older data refuses a session without a word. Whether that is so is found out. The
  session is not given up: the service has seen newer data, and must not act on a past state. Nor
  must its next session, which begins with what the last one has seen (`ConnectionRecord`).
- Why there is no connection is logged in words, with the server's address, whenever it changes.
- A server whose jute.maxbuffer is smaller than a request closes the connection without a word. The
  same request is then sent again, for ever.

All runs on kazoo's thread.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect

from leadline_common.zk.connection_record import ConnectionRecord, too_large
from leadline_common.zk.requests import EncodedRequest

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from kazoo.retry import KazooRetry

    from leadline_common.zk.polling_handler import PollingHandler

logger = structlog.get_logger(__name__)

_SILENT_SHARE: Final = 3 / 4
"""The part of kazoo's read timeout (2/3 of the session's) in which a server has to answer."""

_SHARES: Final = 1 / 4, 1 / 2, 1
"""The parts of its time in which a server has to answer: at the first attempt, and so on."""

_REFUSALS: Final = 4
BROKEN_BY_REQUEST: Final = "a request breaks the connection to ZooKeeper"
_LARGE: Final = 16 * 1024
"""Bytes of a request that a server may find too large; no smaller jute.maxbuffer is in use."""

_NO_SESSION: Final = 1, bytes(16)
"""Id and password of a session that no server knows: asking with them makes none."""

CLOSED_AT_ONCE: Final = (
    "it closed the connection without an answer: it has no quorum, or has too many connections of "
    "this host (maxClientCnxns), or one side uses TLS and the other does not"
)
OLDER_DATA: Final = (
    "its data is older than what this service has seen: wait if it has yet to catch up with other "
    "servers; if data was lost or replaced by a copy, stop all services and restore a backup"
)


class _ZxidZeroAccepted(ConnectionDropped):
    """A server that refuses the session's own zxid accepts zxid 0: so its data is older."""


class Connection(ConnectionHandler):
    """The connection of a session; `granted_timeout_ms` is what the latest server granted."""

    handler: PollingHandler
    granted_timeout_ms: int = 0

    def __init__(
        self, client: KazooClient, retry_sleeper: KazooRetry, record: ConnectionRecord
    ) -> None:
        super().__init__(client, retry_sleeper)
        self._record = record
        self._unanswered_since_s: float | None = None
        self._unanswered_attempts = 0
        self._server: tuple[str, int] | None = None
        self._problems: dict[tuple[str, int], str] = {}
        self._refusals: Counter[tuple[str, int]] = Counter()
        self._with_older_data: set[tuple[str, int]] = set()
        self._states_zxid_zero = False
        self._broken_on = 0

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        """Return the addresses, as (name, address, port), with the latest server's as the last."""
        found = super()._expand_client_hosts()
        found.sort(key=lambda address: address[1:] == self._server)
        return found

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        timeout_s = (self.granted_timeout_ms or self.client._session_timeout) / 1000
        self.handler.connect_within_s = timeout_s / len(self.client.hosts)
        self._unanswered_since_s = None
        address = hostip, port
        try:
            with self._stated_zxid(address):
                timeouts = super()._connect(host, hostip, port)
        except _ZxidZeroAccepted:
            self._with_older_data.add(address)
            raise
        except (ConnectionDropped, KazooTimeoutError) as problem:
            self._log_problem(host, address, self._reason(address, problem))
            raise
        self._server = address
        self._unanswered_attempts = 0
        for known in (self._problems, self._refusals, self._with_older_data):
            known.clear()
        self._record.connected()
        return timeouts

    @contextmanager
    def _stated_zxid(self, address: tuple[str, int]) -> Iterator[None]:
        """State zxid 0 instead of the latest one seen, at every fourth attempt that was refused."""
        client, refusals = self.client, self._refusals[address]
        seen, identity = client.last_zxid, (client._session_id, client._session_passwd)
        self._states_zxid_zero = seen > 0 and refusals % _REFUSALS == _REFUSALS - 1
        if self._states_zxid_zero:
            self._refusals[address] += 1
            client.last_zxid, (client._session_id, client._session_passwd) = 0, _NO_SESSION
        try:
            yield
        finally:
            if self._states_zxid_zero:
                client.last_zxid, (client._session_id, client._session_passwd) = seen, identity

    def _reason(self, address: tuple[str, int], problem: Exception) -> str:
        if not isinstance(problem, ConnectionDropped):
            return "it accepts connections, but does not answer"
        if self._socket is None:
            return str(problem)
        self._refusals[address] += not self._states_zxid_zero
        return OLDER_DATA if address in self._with_older_data else CLOSED_AT_ONCE

    def _log_problem(self, host: str, address: tuple[str, int], reason: str) -> None:
        server = f"{host}:{address[1]}"
        self._record.failed(server, reason)
        if self._problems.get(address) != reason:
            self._problems[address] = reason
            logger.warning("no connection to a ZooKeeper server", server=server, reason=reason)

    def _invoke(
        self, timeout: float, request: object, xid: int | None = None
    ) -> tuple[object, int | None] | int | None:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        answer = self._ask_for_session(timeout, request)
        if isinstance(answer, tuple) and isinstance(answer[0], Connect):
            if self._states_zxid_zero:
                raise _ZxidZeroAccepted
            self.granted_timeout_ms = answer[0].time_out
        return answer

    def _ask_for_session(
        self, timeout_s: float, request: Connect
    ) -> tuple[object, int | None] | int | None:
        """Wait for the answer for longer from attempt to attempt.

        ZooKeeper 3.9 neither answers nor closes a connection that asks before the server has made
        its database. The session must outlive such an attempt.
        """
        share = _SHARES[min(self._unanswered_attempts, len(_SHARES) - 1)]
        within_s = self.handler.connect_within_s or timeout_s
        try:
            return super()._invoke(within_s * share, request)
        except KazooTimeoutError:
            self._unanswered_attempts += 1
            raise

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        now_s = time.monotonic()
        if self._unanswered_since_s is None:
            self._unanswered_since_s = now_s
        elif now_s - self._unanswered_since_s > read_timeout * _SILENT_SHARE:
            raise ConnectionDropped("the server does not answer")
        with self._noting_large_requests():
            super()._send_request(read_timeout, connect_timeout)

    @contextmanager
    def _noting_large_requests(self) -> Iterator[None]:
        """If the connection breaks twice on a request of the same size, say so."""
        try:
            yield
        except (ConnectionDropped, OSError):
            sent = [*self.client._pending, *list(self.client._queue)[:1]]
            size = max(map(_size_of, sent), default=0)
            if size >= _LARGE and size == self._broken_on != self._record.large_request:
                self._record.large_request = size
                logger.warning(BROKEN_BY_REQUEST, reason=too_large(size))
            self._broken_on = size
            raise

    def _read_socket(self, read_timeout: float) -> int | None:
        pending = self.client._pending
        first = pending[0] if pending else None
        with self._noting_large_requests():
            response = super()._read_socket(read_timeout)
        is_answered = first is not None and (not pending or pending[0] is not first)
        if is_answered and _size_of(first) >= self._record.large_request:
            self._record.large_request = 0
        self._unanswered_since_s = None
        self._record.saw(self.client.last_zxid)
        return response


def _size_of(queued: tuple[object, ...] | None) -> int:
    """Return the bytes of one of kazoo's queued requests; 0 if it is surely small, or none."""
    request = queued[0] if queued else None
    return request.size if isinstance(request, EncodedRequest) else 0

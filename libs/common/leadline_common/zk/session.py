"""One ZooKeeper session for one owner (a controller, a broker) on one event loop.

Rules for callers:

- A session is never replaced by another: after LOST every operation raises `SessionExpired`, and
  the owner decides whether to resign, exit, or start a new `ZkSession`.
- ConnectionLoss means that the outcome is unknown: read again before deciding (R7).
- Watches are hints (R8). They fire at most once, end silently with the connection, and may be
  missed around a reconnect. In `on_reconnected`, read everything again and set the watches again.
- A process that is cut off may never see LOST. The `lease`, not the state, limits how long it may
  act (R10).
- Callbacks run on the loop and must neither block nor raise. If the loop is blocked for the length
  of the session timeout, another thread closes the session (`leadline_common.loop_watchdog`).

Call all methods on the loop that ran `start`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from leadline_client.clock import monotonic_s
from leadline_common.zk import codec
from leadline_common.zk.client import Callback, ZkClient, no_body
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.encoded_acls import NodeAcls
from leadline_common.zk.errors import NotConnected, SessionExpired, ZkError
from leadline_common.zk.ports import OpenTransport, SessionState, Transport
from leadline_common.zk.requests import EncodedRequest
from leadline_common.zk.transport import KazooTransport

_REVOKED: Final = float("-inf")


def _monotonic_ms() -> float:
    return monotonic_s() * 1000


def _lease_ms(session_timeout_ms: int) -> float:
    return session_timeout_ms * 2 / 3


class SessionLease:
    """How long a process may act on a ZooKeeper session that it cannot renew (rule R10).

    Invariant: while `valid` returns True, the server has not expired the session, provided that
    both clocks run at the same rate within the third of the timeout that is kept in reserve.

    The lease counts from the moment when the last *answered* heartbeat was *sent*: the server
    renewed the session after it, and the reply may have waited in the socket buffer during a long
    pause of this process. Losing the connection does not extend the lease. Times are milliseconds
    of one monotonic clock that counts the time in which the machine is suspended.

    Each connection negotiates the session timeout again, and servers differ in their limits. A
    shorter one holds from the reconnection, and so for the heartbeats before it, too. A longer one
    may count for these as well: the server counts it from the reconnection, which is later.
    """

    __slots__ = ("_length_ms", "_sent_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self._length_ms = _lease_ms(session_timeout_ms)
        self._sent_ms = float("-inf")

    @property
    def valid_until_ms(self) -> float:
        """When the lease ends; minus infinity before the first renewal."""
        return self._sent_ms + self._length_ms

    def renew(self, sent_ms: float) -> None:
        """Renew the lease: a heartbeat sent at `sent_ms` was answered. It never gets shorter."""
        self._sent_ms = max(self._sent_ms, sent_ms)

    def follow(self, session_timeout_ms: int) -> None:
        """Take over the session timeout that the server of the latest connection granted."""
        if self._length_ms != _REVOKED:
            self._length_ms = _lease_ms(session_timeout_ms)

    def revoke(self) -> None:
        """End the lease for good, because the session is over."""
        self._length_ms = _REVOKED

    def valid(self, now_ms: float) -> bool:
        """Tell whether the process may act at `now_ms`."""
        return now_ms < self.valid_until_ms


class ZkSession(ZkClient):
    """A ZooKeeper session for asyncio.

    `on_state(state)` is called at every change after `start`, except for the end through `close`.
    `on_reconnected()` is called after each return from SUSPENDED. With `credentials`, it logs in,
    and the nodes that it creates get the ACL of `zk.node_acls` for the users of the credentials.
    `open_transport` makes its connection.
    """

    def __init__(
        self,
        *,
        on_state: Callable[[SessionState], None] = lambda _: None,
        on_reconnected: Callback = lambda: None,
        clock_ms: Callable[[], float] = _monotonic_ms,
        credentials: ZkCredentials | None = None,
        open_transport: OpenTransport = KazooTransport,
    ) -> None:
        self._credentials = credentials
        self._new_transport = open_transport
        if credentials is not None:
            self._acl_of = NodeAcls(credentials.users).encoded
        self._on_state = on_state
        self.on_reconnected = on_reconnected
        self._clock_ms = clock_ms
        self._state = SessionState.SUSPENDED
        self._closing = False
        self._connected = asyncio.Event()
        self._reconnected = asyncio.Event()
        self._lease = SessionLease(0)
        self._transport: Transport | None = None
        self._heartbeat: asyncio.Task[None] | None = None

    # -- life cycle ------------------------------------------------------------

    async def start(
        self, hosts: str, session_timeout_ms: int, *, connect_timeout_ms: int = 15_000
    ) -> None:
        """Connect, create the chroot if `hosts` names one, and take the lease.

        `hosts` is `host:port,host:port/chroot`. The server may grant another session timeout than
        the requested one; the property `session_timeout_ms` has the granted one.

        Raises:
            NotConnected: no server answered within `connect_timeout_ms`.
            ConnectionLoss: the connection broke at once. After either error, try again with a new
                object.

        """
        self._transport = self._new_transport(
            hosts,
            session_timeout_ms,
            self._state_changed,
            self._credentials,
        )
        self._transport.start()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await self._connected.wait()
                self._lease = SessionLease(self._transport.granted_timeout_ms)
                await self._create_path(self._transport.root, "")
                await self._send_heartbeat()
        except TimeoutError:
            await self.close()
            raise NotConnected(f"no answer from {hosts} in {connect_timeout_ms} ms") from None
        except BaseException:
            await self.close()
            raise
        self._heartbeat = asyncio.create_task(self._send_heartbeats(), name="zookeeper-heartbeat")
        self._transport.watch_loop()

    async def close(self) -> None:
        """Close the session; its ephemeral nodes are deleted when this returns. Idempotent."""
        self._closing = True
        self.lease.revoke()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)
            self._heartbeat = None
        transport, self._transport = self._transport, None
        self._state = SessionState.LOST
        if transport is not None:
            try:
                await transport.finish()
            except Exception:
                self._transport = transport  # the session may live on: let the caller try again
                raise

    @property
    def is_connected(self) -> bool:
        """Whether the session is connected, as far as is known."""
        return self._state is SessionState.CONNECTED

    @property
    def session_id(self) -> int:
        """The id of the session; 0 before it is connected."""
        return self._transport.session_id if self._transport else 0

    @property
    def credentials(self) -> ZkCredentials | None:
        """What the session logs in with, and whose users may use the nodes that it creates."""
        return self._credentials

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout that the server granted; 0 before it is connected."""
        return self._transport.granted_timeout_ms if self._transport else 0

    @property
    def lease(self) -> SessionLease:
        """The lease of the session (R10); read it after `start`, which replaces it.

        Its length is that of the connection of this moment, which the loop may not know of yet.
        """
        if self._transport is not None:
            self._lease.follow(self._transport.granted_timeout_ms)
        return self._lease

    def lease_valid(self) -> bool:
        """Tell whether the lease is valid now."""
        return self.lease.valid(self._clock_ms())

    # -- internal --------------------------------------------------------------

    def _open_transport(self) -> Transport:
        if self._transport is None or self._state is SessionState.LOST:
            raise SessionExpired("the session is over")
        return self._transport

    def _state_changed(self, state: SessionState) -> None:
        if self._closing or self._state is SessionState.LOST:
            return
        before, self._state = self._state, state
        if state is SessionState.LOST:
            self.lease.revoke()
        if not self._connected.is_set():
            self._connected.set()
            return
        self._on_state(state)
        if state is SessionState.CONNECTED and before is SessionState.SUSPENDED:
            self._reconnected.set()
            self.on_reconnected()

    # -- heartbeats ------------------------------------------------------------

    async def _send_heartbeat(self) -> None:
        """Renew the lease by one round trip, counted from the time of sending.

        `sync` goes through the ZooKeeper leader, which refuses it for an expired session. A read
        does not prove that the session is alive: a server that is cut off from its leader still
        answers reads for a while, during which the leader may expire the session.
        """
        transport = self._open_transport()
        sent_ms = self._clock_ms()
        request = EncodedRequest(codec.encode_path(codec.SYNC, codec.absolute(transport.root, "/")))
        await transport.submit(request, no_body, "/", urgent=True)
        self.lease.renew(sent_ms)

    async def _send_heartbeats(self) -> None:
        """Send a heartbeat every quarter of the session timeout, and at once after a reconnect."""
        while self._state is not SessionState.LOST:
            interval_s = self.session_timeout_ms / 4000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._reconnected.wait()
            self._reconnected.clear()
            # A failed heartbeat needs no handling: the lease expires by itself.
            with contextlib.suppress(ZkError):
                await self._send_heartbeat()

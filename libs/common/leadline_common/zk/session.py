"""One ZooKeeper session for one owner (a controller, a broker) on one event loop.

Rules that callers live by:

- A session is used until it is lost, and never replaced behind the owner's back:
  after LOST every operation raises `SessionExpired`, and the owner decides
  whether to resign, exit, or make a new `ZkSession`.
- ConnectionLoss means that the outcome is unknown: re-read before deciding (R7).
- Watches are hints (R8). They fire at most once, die silently with the
  connection, and may be missed around a reconnect; so re-read everything, and set
  the watches again, in `on_reconnected`.
- LOST may never be said to a process that is cut off. What may be *done* is
  bounded by `lease`, not by states (R10).
- All callbacks run on the loop and must not block or raise.

Methods must be called on the loop that ran `start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from leadline_common.zk import codec
from leadline_common.zk.errors import NotConnected, SessionExpired, ZkError
from leadline_common.zk.lease import SessionLease
from leadline_common.zk.operations import Callback, ZkOperations, nothing
from leadline_common.zk.requests import EncodedRequest
from leadline_common.zk.transport import KazooTransport, SessionState


def _ignore_state(_: SessionState) -> None:
    """Stand in for an absent state callback."""


def _ignore() -> None:
    """Stand in for an absent callback."""


def _monotonic_ms() -> float:
    return time.monotonic() * 1000


class ZkSession(ZkOperations):
    """An asyncio face of one ZooKeeper session.

    `on_state(state)` tells every change after `start`, but not the end that
    `close` brings; `on_reconnected()` follows each return from SUSPENDED.
    """

    def __init__(
        self,
        *,
        on_state: Callable[[SessionState], None] = _ignore_state,
        on_reconnected: Callback = _ignore,
        clock_ms: Callable[[], float] = _monotonic_ms,
    ) -> None:
        self._on_state = on_state
        self._on_reconnected = on_reconnected
        self._clock_ms = clock_ms
        self._state = SessionState.SUSPENDED
        self._closing = False
        self._connected = asyncio.Event()
        self._back_in_touch = asyncio.Event()
        self._lease = SessionLease(0)
        self._transport: KazooTransport | None = None
        self._heartbeat: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------

    async def start(
        self, hosts: str, session_timeout_ms: int, *, connect_timeout_ms: int = 15_000
    ) -> None:
        """Connect, create the chroot if `hosts` names one, and take the lease.

        `hosts` is `host:port,host:port/chroot`. The server may grant another
        timeout than `session_timeout_ms`; `session_timeout_ms` then tells it.

        Raises:
            NotConnected: no server answered within `connect_timeout_ms`.
            ConnectionLoss: the connection broke again at once. The object is of no
                more use after either; try again with a new one.

        """
        self._transport = KazooTransport(hosts, session_timeout_ms, self._state_changed)
        self._transport.start()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await self._connected.wait()
                self._lease = SessionLease(self._transport.granted_timeout_ms)
                await self._ensure_root()
                await self._beat()
        except TimeoutError:
            await self.close()
            raise NotConnected(f"no answer from {hosts} in {connect_timeout_ms} ms") from None
        except BaseException:
            await self.close()
            raise
        self._heartbeat = asyncio.create_task(self._beat_forever(), name="zookeeper-heartbeat")

    async def close(self) -> None:
        """End the session: its ephemeral nodes are gone when this returns. Idempotent."""
        self._closing = True
        self._lease.revoke()
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
    def state(self) -> SessionState:
        """The last state told."""
        return self._state

    @property
    def is_connected(self) -> bool:
        """Whether a server is in touch, as far as is known."""
        return self._state is SessionState.CONNECTED

    @property
    def session_id(self) -> int:
        """The id of the session; 0 before it is connected."""
        return self._transport.session_id if self._transport else 0

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout that the server granted; 0 before it is connected."""
        return self._transport.granted_timeout_ms if self._transport else 0

    @property
    def lease(self) -> SessionLease:
        """What this process may still do on this session (R10), by the monotonic clock.

        Ask after `start`: the length depends on what the server grants.
        """
        return self._lease

    def lease_valid(self) -> bool:
        """Tell whether the lease holds now."""
        return self._lease.valid(self._clock_ms())

    # -- within ----------------------------------------------------------------

    def _open_transport(self) -> KazooTransport:
        if self._transport is None or self._state is SessionState.LOST:
            raise SessionExpired("the session is over")
        return self._transport

    def _state_changed(self, state: SessionState) -> None:
        if self._closing or self._state is SessionState.LOST:
            return
        before, self._state = self._state, state
        if state is SessionState.LOST:
            self._lease.revoke()
        if not self._connected.is_set():
            self._connected.set()
            return
        self._on_state(state)
        if state is SessionState.CONNECTED and before is SessionState.SUSPENDED:
            self._back_in_touch.set()
            self._on_reconnected()

    # -- heartbeats ------------------------------------------------------------

    async def _beat(self) -> None:
        """Renew the lease: one round trip, counted from before it was sent.

        `sync` goes through the leader, which refuses it for an expired session.
        A plain read proves less: a server that is cut off from its leader goes on
        answering reads for a while, during which the leader may expire the session.
        """
        transport = self._open_transport()
        sent_ms = self._clock_ms()
        request = EncodedRequest(codec.encode_path(codec.SYNC, codec.absolute(transport.root, "/")))
        await transport.submit(request, nothing, "/", urgent=True)
        self._lease.answered(sent_ms)

    async def _beat_forever(self) -> None:
        """Beat every quarter of the session timeout, and at once when back in touch."""
        interval = self.session_timeout_ms / 4000
        while self._state is not SessionState.LOST:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._back_in_touch.wait(), interval)
            self._back_in_touch.clear()
            # A lost beat needs no handling: the lease runs out by itself.
            with contextlib.suppress(ZkError):
                await self._beat()

"""Rule R10: the lease counts from the send time of the last answered heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from leadline_common.zk.ports import SessionState
from leadline_common.zk.requests import Reply, Request
from leadline_common.zk.session import SessionLease, ZkSession

T = TypeVar("T")
TIMES = st.integers(min_value=0, max_value=10**9)


def test_no_lease_before_the_first_answer() -> None:
    assert not SessionLease(6000).valid(0)


def test_it_lasts_two_thirds_of_the_session_from_the_send_time() -> None:
    lease = SessionLease(6000)
    lease.renew(sent_ms=1000)
    assert lease.valid(4999)
    assert not lease.valid(5000)


def test_an_answer_that_sat_in_the_socket_through_a_pause_gives_nothing() -> None:
    lease = SessionLease(6000)
    lease.renew(sent_ms=1000)
    assert not lease.valid(60_000), "read after a long pause, the answer says nothing of now"


@given(st.lists(TIMES, min_size=1))
def test_answers_in_any_order_leave_what_the_latest_sent_gives(sent: list[int]) -> None:
    lease = SessionLease(6000)
    for moment in sent:
        lease.renew(moment)
    assert lease.valid_until_ms == max(sent) + 4000


def test_revoked_is_for_good() -> None:
    lease = SessionLease(6000)
    lease.renew(1000)
    lease.revoke()
    lease.renew(2000)
    assert not lease.valid(2001)


# -- the lease of a session -------------------------------------------------------------


class SlowTransport:
    """A connection on which every round trip takes a second of the session's clock."""

    root = ""
    session_id = 1
    granted_timeout_ms = 6000
    ROUND_TRIP_MS = 1000.0

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.report: Callable[[SessionState], None] = lambda _: None

    def open(
        self, _hosts: str, _ms: int, report: Callable[[SessionState], None], _: object
    ) -> SlowTransport:
        self.report = report
        return self

    def start(self) -> None:
        self.report(SessionState.CONNECTED)

    def watch_loop(self) -> None:
        pass

    async def finish(self) -> None:
        pass

    def submit(
        self,
        _request: Request,
        decode: Callable[[Reply | None], T],
        _path: str,
        *,
        urgent: bool = False,
    ) -> asyncio.Future[T]:
        del urgent
        self.now_ms += self.ROUND_TRIP_MS
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        answer.set_result(decode(None))
        return answer

    def watcher(self, callback: Callable[[], None]) -> Callable[..., None]:
        return callback


@asynccontextmanager
async def session_over(transport: SlowTransport) -> AsyncIterator[ZkSession]:
    session = ZkSession(clock_ms=lambda: transport.now_ms, open_transport=transport.open)
    await session.start("zk:2181", 6000)
    try:
        yield session
    finally:
        await session.close()


async def test_the_lease_of_a_session_counts_from_the_sending_of_its_heartbeat() -> None:
    """The server may have renewed the session at once, and the answer was a second on its way."""
    transport = SlowTransport()

    async with session_over(transport) as session:
        assert session.lease.valid_until_ms == 4000


async def test_the_lease_ends_with_the_session() -> None:
    transport = SlowTransport()
    async with session_over(transport) as session:
        assert session.lease_valid()

        transport.report(SessionState.LOST)

        assert not session.lease_valid()


async def test_a_reconnection_that_grants_less_shortens_the_lease() -> None:
    """The server expires the session after the new timeout, whatever the last one granted."""
    transport = SlowTransport()
    async with session_over(transport) as session:
        transport.report(SessionState.SUSPENDED)
        transport.granted_timeout_ms = 1500

        assert session.lease.valid_until_ms == 1000, "known before the loop is told"
        transport.report(SessionState.CONNECTED)
        assert not session.lease_valid()


async def test_a_reconnection_does_not_renew_what_was_revoked() -> None:
    transport = SlowTransport()
    async with session_over(transport) as session:
        transport.report(SessionState.LOST)
        transport.granted_timeout_ms = 60_000

        assert not session.lease_valid()

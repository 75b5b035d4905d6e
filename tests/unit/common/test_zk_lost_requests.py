"""A request to ZooKeeper ends with its session, also one that kazoo takes at that very moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from kazoo.protocol.states import KazooState

from leadline_common.zk import codec
from leadline_common.zk.client import no_body
from leadline_common.zk.errors import SessionExpired
from leadline_common.zk.ports import SessionState
from leadline_common.zk.requests import EncodedRequest
from leadline_common.zk.transport import SEND_WINDOW, KazooTransport

DEADLINE_S = 10


class Expiring:
    """A transport whose session expires between kazoo's look at its state and its queue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: list[SessionState] = []
        self.transport = KazooTransport("127.0.0.1:1", 2_000, self.states.append)
        self.client = cast("Any", self.transport._client)
        self.client._state = "CONNECTED"
        self.client.state = KazooState.CONNECTED
        self.client._live.set()
        monkeypatch.setattr(self.client._connection, "_write_sock", self)

    def send(self, _: bytes) -> None:
        """Take the byte that wakes kazoo's thread."""

    def submit(self) -> asyncio.Future[None]:
        """Send a request."""
        request = EncodedRequest(codec.encode_path(codec.SYNC, "/"))
        return self.transport.submit(request, no_body, "/")

    def expire(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Let the session expire; something happens after kazoo has told of it."""
        self.client._session_callback("EXPIRED_SESSION")
        meanwhile()


async def test_a_request_that_kazoo_has_not_told_of_ends_with_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expiring = Expiring(monkeypatch)
    known = expiring.submit()
    queue = expiring.client._queue
    late = expiring.submit()
    taken = queue.pop()  # as if it came when kazoo had emptied its queue
    expiring.expire(lambda: queue.append(taken))

    async with asyncio.timeout(DEADLINE_S):
        for future in (known, late):
            with pytest.raises(SessionExpired):
                await future
    assert expiring.states == [SessionState.LOST]


async def test_so_do_those_that_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    expiring = Expiring(monkeypatch)
    futures = [expiring.submit() for _ in range(3 * SEND_WINDOW)]
    queue = expiring.client._queue
    taken = [queue.pop() for _ in range(SEND_WINDOW)]
    expiring.expire(lambda: queue.extend(taken))

    async with asyncio.timeout(DEADLINE_S):
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {SessionExpired}

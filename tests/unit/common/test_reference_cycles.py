"""Requests and connections are freed as soon as they end, without the garbage collector.

Services collect seldom, because a collection walks all of a large cluster's state. The buffers of a
TLS connection take hundreds of kilobytes: what keeps one in a cycle keeps it for hours.
"""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator
from ssl import SSLObject

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from leadline_client.http_connection import HttpConnection
from leadline_common.http.internal_listener import InternalListener
from leadline_common.http.listeners import bind
from leadline_common.http.middleware import BoundedBody
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.service_calls import ServiceCalls
from leadline_common.identity import InternalAddress, ServiceIdentity
from leadline_common.rpc import JSON
from tests.support.freed import all_freed
from tests.support.services.controllers import served
from tests.support.services.identities import tls_of
from tests.unit.common.http_app import build

SERVER = ServiceIdentity("broker", 3)
REQUESTS = 60
CONNECTIONS = 20


@pytest.fixture
async def address() -> AsyncIterator[InternalAddress]:
    listener = InternalListener(bind("127.0.0.1", 0), tls_of("broker", 3))
    async with served(build(), listener.listener, listener.tls):
        yield InternalAddress(SERVER, listener.url)


HTTP = (RequestResponseCycle, BoundedBody, SSLProtocol, SSLObject, HttpConnection)
"""What belongs to requests and connections."""


async def call(calls: ServiceCalls, address: InternalAddress) -> None:
    body = b'{"rows": [[1, 2]]}'
    await calls.post_internal(address, "/v1/internal/countRows", body, JSON, 5_000)


async def test_requests_leave_nothing_behind(address: InternalAddress) -> None:
    calls = ServiceCalls(PeerConnections(tls_of("broker", 2)))
    try:
        await call(calls, address)
        async with all_freed(*HTTP):
            for _ in range(REQUESTS):
                await call(calls, address)
    finally:
        await calls.close()


async def test_ended_connections_leave_nothing_behind(address: InternalAddress) -> None:
    async with all_freed(*HTTP):
        for _ in range(CONNECTIONS):
            calls = ServiceCalls(PeerConnections(tls_of("broker", 2)))
            await call(calls, address)
            await calls.close()


async def test_connections_that_the_server_ends_leave_nothing_behind() -> None:
    calls = ServiceCalls(PeerConnections(tls_of("broker", 2)))
    try:
        async with all_freed(*HTTP):
            for _ in range(3):
                listener = InternalListener(bind("127.0.0.1", 0), tls_of("broker", 3))
                async with served(build(), listener.listener, listener.tls):
                    await call(calls, InternalAddress(SERVER, listener.url))
    finally:
        await calls.close()

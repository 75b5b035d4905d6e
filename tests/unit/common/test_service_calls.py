"""Calls between services over real sockets: to the service that is meant, or to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from leadline_client.errors import ConnectionLost
from leadline_common.http.internal import caller_of
from leadline_common.http.internal_listener import InternalListener
from leadline_common.http.listeners import bind
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.service_calls import NotSent, ServiceCalls
from leadline_common.identity import InternalAddress, ServiceIdentity
from leadline_common.rpc import JSON
from tests.support.services.controllers import served
from tests.support.services.identities import tls_of

THIRD = ServiceIdentity("broker", 3)


class Target:
    """The internal listener of broker 3, which notes who calls."""

    def __init__(self) -> None:
        self.callers: list[ServiceIdentity] = []
        self.listener = InternalListener(bind("127.0.0.1", 0), tls_of("broker", 3))
        self.app = Starlette(
            routes=[
                Route("/ask", self._ask, methods=["POST"]),
                Route("/elsewhere", self._elsewhere, methods=["POST"]),
            ]
        )

    async def _ask(self, request: Request) -> Response:
        self.callers.append(caller_of(request.scope))
        return Response(await request.body())

    async def _elsewhere(self, request: Request) -> Response:
        del request
        return RedirectResponse(f"{self.listener.url}/ask", status_code=307)


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    running = Target()
    async with served(running.app, running.listener.listener, running.listener.tls):
        yield running


@pytest.fixture
async def calls() -> AsyncIterator[ServiceCalls]:
    made = ServiceCalls(PeerConnections(tls_of("broker", 2)))
    yield made
    await made.close()


async def ask(calls: ServiceCalls, service: ServiceIdentity, url: str, path: str = "/ask") -> bytes:
    return await calls.post_internal(InternalAddress(service, url), path, b"{}", JSON, 5_000)


async def test_the_identity_of_the_caller_arrives(target: Target, calls: ServiceCalls) -> None:
    assert await ask(calls, THIRD, target.listener.url) == b"{}"
    assert target.callers == [ServiceIdentity("broker", 2)]


@pytest.mark.parametrize(
    "meant", [ServiceIdentity("broker", 4), ServiceIdentity("controller", 3)], ids=str
)
async def test_an_address_that_leads_to_another_service_gets_no_request(
    target: Target, calls: ServiceCalls, meant: ServiceIdentity
) -> None:
    with pytest.raises(ConnectionLost):
        await ask(calls, meant, target.listener.url)
    # Not over a connection that was opened for the right service, either.
    await ask(calls, THIRD, target.listener.url)
    with pytest.raises(ConnectionLost):
        await ask(calls, meant, target.listener.url)
    assert len(target.callers) == 1


async def test_an_address_without_tls_gets_not_a_byte(calls: ServiceCalls) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionLost):
            await ask(calls, THIRD, f"http://127.0.0.1:{port}")
    assert not heard


@pytest.mark.parametrize("address", ["https://", "https://127.0.0.1:port", "https://[::1"])
async def test_an_address_that_is_none_gets_no_request(calls: ServiceCalls, address: str) -> None:
    with pytest.raises(NotSent):
        await ask(calls, THIRD, address)


async def test_a_redirection_is_not_followed(target: Target, calls: ServiceCalls) -> None:
    with pytest.raises(Exception, match="307"):
        await ask(calls, THIRD, target.listener.url, "/elsewhere")
    assert not target.callers


async def test_without_a_certificate_nobody_is_called(target: Target) -> None:
    with pytest.raises(ConnectionLost):
        await ask(ServiceCalls(), THIRD, target.listener.url)
    assert not target.callers

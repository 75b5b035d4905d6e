"""For whom a service asks another one: for its own caller, or for itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from leadline_common.access.caller import Caller, caller_scope
from leadline_common.access.principals import Principal
from leadline_common.access.rights import NO_ACCESS, Grant, Role
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.http.access import PRINCIPAL_HEADER, Authentication
from leadline_common.http.app import create_app
from leadline_common.http.forward import EVENT_STREAM, Forwarder, OutgoingRequest
from leadline_common.http.peer_connections import Connection, PeerConnections
from leadline_common.identity import ServiceAddress, ServiceIdentity
from tests.support.services.http_service import running
from tests.unit.common.http_app import anybody

ALICE = Caller(Principal("user", "alice"), NO_ACCESS)


@dataclass(frozen=True, slots=True)
class OverPlainHttp(PeerConnections):
    """The connections of a cluster with authentication, without certificates."""

    authenticated: bool = True

    def to(self, address: ServiceAddress) -> Connection:
        return Connection(address.url, ssl=True, server_hostname=None)


@pytest.mark.parametrize(("names_caller", "principal"), [(True, "user:alice"), (False, None)])
async def test_a_forwarder_asks_for_the_caller_or_for_its_service(
    *, names_caller: bool, principal: str | None
) -> None:
    app = create_app(title="Echo", version="1", description="d", need_of=anybody)

    @app.get("/v1/headers")
    async def headers(request: Request) -> dict[str, str]:
        return dict(request.headers)

    forwarder = Forwarder(connections=OverPlainHttp(), names_caller=names_caller)
    async with running(app) as url:
        to = ServiceAddress(ServiceIdentity("broker", 2), url)
        try:
            with caller_scope(ALICE):
                asked = OutgoingRequest("GET", "/v1/headers")
                seen = json.loads(await forwarder.call(asked, to, timeout_s=10))
        finally:
            await forwarder.close()
    assert seen.get(PRINCIPAL_HEADER.lower()) == principal


@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_a_forwarded_stream_ends_with_the_token_that_began_it(end: str) -> None:
    token, now_ms = new_token(bytes(RANDOM_BYTES)), 1
    kept = KeptToken(token.id, hash_of(token), created_ms=0, expires_ms=2)
    viewer = User((Grant.of_all(Role.VIEWER),), (kept,))
    known = Users.of({"alice": viewer})
    go_on = asyncio.Event()
    source = create_app(title="Source", version="1", description="d", need_of=anybody)
    entry = create_app(title="Entry", version="1", description="d", need_of=anybody)
    entry.authentication = Authentication(required=True, users=lambda: known, now_ms=lambda: now_ms)
    forwarder = Forwarder(connections=OverPlainHttp())

    async def events() -> AsyncIterator[bytes]:
        yield b"data: first\n\n"
        await go_on.wait()
        yield b"data: second\n\n"

    @source.get("/v1/events")
    async def stream() -> StreamingResponse:
        return StreamingResponse(events(), media_type=EVENT_STREAM)

    async with running(source) as source_url:

        @entry.get("/v1/events")
        async def forwarded(request: Request) -> Response:
            to = ServiceAddress(ServiceIdentity("controller", 2), source_url)
            return await forwarder.forward(request, to, timeout_s=10)

        shown = {"Authorization": f"Bearer {token}"}
        try:
            async with (
                running(entry) as url,
                httpx.AsyncClient(trust_env=False, headers=shown) as http,
                http.stream("GET", f"{url}/v1/events") as answer,
            ):
                chunks = answer.aiter_text()
                assert await anext(chunks) == "data: first\n\n"
                # The user keeps its rights, which are all that the other service sees.
                if end == "revoked":
                    known = Users.of({"alice": viewer.without_token(token.id)})
                else:
                    now_ms = 2
                go_on.set()
                assert [chunk async for chunk in chunks] == []
        finally:
            await forwarder.close()

"""For whom a service asks another one: for its own caller, or for itself."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from fastapi import Request

from leadline_common.access.caller import Caller, caller_scope
from leadline_common.access.principals import Principal
from leadline_common.access.rights import NO_ACCESS
from leadline_common.http.access import PRINCIPAL_HEADER
from leadline_common.http.app import create_app
from leadline_common.http.forward import Forwarder, OutgoingRequest
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

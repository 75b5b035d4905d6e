"""What a broker forwards is forwarded before the framework looks for its route."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from starlette.requests import Request
from starlette.responses import Response

import leadline_broker.main
from leadline_broker.api import app, forwarding
from leadline_client.errors import CoordinatorNotAvailable, NoController, NotCoordinator
from leadline_common.api import administration, groups
from leadline_common.http.app import ServiceApp
from leadline_common.http.errors import error_response
from leadline_common.http.forward import Forwarder, ForwardingLayer
from leadline_common.identity import ServiceAddress, ServiceIdentity


def forwarded(service: ServiceApp) -> set[str]:
    """Return the operations that the application's layer forwards."""
    layers: list[Any] = list(service.user_middleware)
    [forwards] = [one.kwargs["forwards"] for one in layers if one.cls is ForwardingLayer]
    return set(forwards)


def test_every_operation_of_another_service_is_forwarded_before_routing() -> None:
    routers = administration.administration_routes(), groups.group_routes()
    operations = {one.name for router in routers for one in iter_route_contexts(router.routes)}
    assert len(operations) > 50
    assert forwarded(leadline_broker.main.openapi_app()) == operations


async def test_nothing_else_is_forwarded() -> None:
    service = leadline_broker.main.openapi_app()
    assert not forwarded(service) & {"healthz", "read_metadata", "produce", "fetch", "this_broker"}
    transport = httpx.ASGITransport(app=service)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        healthy = await client.get("/healthz")
        answers = [
            await client.get("/v1/topics/t"),
            await client.delete("/v1/topics/t"),
            await client.head("/v1/topics/t"),
            await client.get("/v1/groups/g"),
        ]
    assert healthy.status_code == httpx.codes.OK
    assert {answer.status_code for answer in answers} == {httpx.codes.SERVICE_UNAVAILABLE}
    codes = [answer.json()["error_code"] for answer in answers if answer.content]
    assert codes == [NoController.code, NoController.code, CoordinatorNotAvailable.code]


class ToFormerCoordinator(Forwarder):
    """Forwards to a coordinator that another one has just replaced."""

    async def forward(self, request: Request, to: ServiceAddress, *, timeout_s: float) -> Response:
        del request, to, timeout_s
        return error_response(NotCoordinator("another coordinator has been elected"))


@pytest.mark.parametrize("path", ["/v1/groups/g/rebalance", "/v1/groups/g/offsets"])
async def test_who_asks_a_broker_is_not_sent_to_look_for_another_coordinator(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 21125 of the runtime simulation."""
    coordinator = ServiceAddress(ServiceIdentity("coordinator", 1), "http://c", "https://c")
    monkeypatch.setattr(forwarding, "find_coordinator", lambda _: coordinator)
    monkeypatch.setattr(app, "Forwarder", ToFormerCoordinator)
    transport = httpx.ASGITransport(app=leadline_broker.main.openapi_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post(path, json={})

    assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert answer.json()["error_code"] == CoordinatorNotAvailable.code

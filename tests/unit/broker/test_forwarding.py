"""What a broker forwards is forwarded before the framework looks for its route."""

from __future__ import annotations

from typing import Any

import httpx
from fastapi.routing import iter_route_contexts

import leadline_broker.main
from leadline_client.errors import CoordinatorNotAvailable, NoController
from leadline_common.api import administration, groups
from leadline_common.http.app import ServiceApp
from leadline_common.http.forward import ForwardingLayer


def forwarded(app: ServiceApp) -> set[str]:
    """Return the operations that the application's layer forwards."""
    layers: list[Any] = list(app.user_middleware)
    [forwards] = [one.kwargs["forwards"] for one in layers if one.cls is ForwardingLayer]
    return set(forwards)


def test_every_operation_of_another_service_is_forwarded_before_routing() -> None:
    routers = administration.administration_routes(), groups.group_routes()
    operations = {one.name for router in routers for one in iter_route_contexts(router.routes)}
    assert len(operations) > 50
    assert forwarded(leadline_broker.main.openapi_app()) == operations


async def test_nothing_else_is_forwarded() -> None:
    app = leadline_broker.main.openapi_app()
    assert not forwarded(app) & {"healthz", "read_metadata", "produce", "fetch", "this_broker"}
    transport = httpx.ASGITransport(app=app)
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

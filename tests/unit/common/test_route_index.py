"""The index finds the route that the web framework finds, and refuses what it refuses."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Match

import leadline_broker.main
import leadline_controller.main
import leadline_coordinator.main
from leadline_common.http.app import ServiceApp
from leadline_common.http.route_index import is_plain

SERVICES = {
    "broker": leadline_broker.main.openapi_app,
    "controller": leadline_controller.main.openapi_app,
    "coordinator": leadline_coordinator.main.openapi_app,
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
OTHER_SEGMENTS = ("", "0", "x", "orders", "a b", "ä", "docs", "assets", "swagger-ui.css", "..")


@cache
def app_of(service: str) -> ServiceApp:
    return SERVICES[service]()


def paths() -> st.SearchStrategy[str]:
    """Return paths of the services, and others that are made of their segments."""
    known = sorted({path for service in SERVICES for path in app_of(service).openapi()["paths"]})
    segments = sorted({segment for path in known for segment in path.split("/")})
    made = st.lists(st.sampled_from([*segments, *OTHER_SEGMENTS]), max_size=8).map("/".join)
    return made | st.sampled_from(known)


# The documents take seconds: they are made where these tests run, not wherever they are collected.
PATHS = st.deferred(paths)


def found_by_framework(app: ServiceApp, path: str, method: str) -> bool:
    scope = {"type": "http", "path": path, "method": method, "headers": [], "root_path": ""}
    return any(route.matches(dict(scope))[0] is Match.FULL for route in app.router.routes)


@pytest.mark.parametrize("service", SERVICES)
@given(path=PATHS, end=st.sampled_from(["", "\n", "/", "?"]), method=st.sampled_from(METHODS))
def test_the_index_finds_what_the_framework_finds(
    service: str, path: str, end: str, method: str
) -> None:
    app, asked = app_of(service), f"/{path.lstrip('/')}{end}"
    is_found = app.route_index().find(asked, method) is not None
    assert is_found is found_by_framework(app, asked, method)


@pytest.mark.parametrize("service", SERVICES)
@given(path=PATHS, method=st.sampled_from(METHODS))
def test_a_plain_endpoint_gets_from_the_gate_what_the_framework_would_give_it(
    service: str, path: str, method: str
) -> None:
    app, asked = app_of(service), f"/{path.lstrip('/')}"
    found = app.route_index().find(asked, method)
    if found is None or not found.is_plain:
        return
    scope = {"type": "http", "path": asked, "method": method, "headers": [], "root_path": ""}
    matches = (route.matches(dict(scope)) for route in app.router.routes)
    by_framework = next(child for match, child in matches if match is Match.FULL)
    named = found.pattern.match(asked)
    assert named is not None
    assert by_framework["path_params"] == named.groupdict()
    assert by_framework["endpoint"] is found.endpoint


@pytest.mark.parametrize("service", SERVICES)
def test_no_plain_endpoint_is_one_that_is_forwarded(service: str) -> None:
    app = app_of(service)
    layers = [layer for layer in app.user_middleware if "forwards" in layer.kwargs]
    forwards = {name for layer in layers for name in cast("Any", layer.kwargs["forwards"])}
    assert bool(forwards) is (service == "broker")
    plain = {
        name
        for context in iter_route_contexts(app.routes)
        if (name := context.name) and is_plain(context.original_route)
    }
    assert plain
    assert plain.isdisjoint(forwards)


async def answer(method: str, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app_of("controller"))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.request(method, path)


async def test_a_refusal_names_the_methods_of_the_path() -> None:
    refused = await answer("PUT", "/v1/topics/orders")
    assert (refused.status_code, refused.json()["error_code"]) == (405, 405)
    assert refused.headers["allow"] == "GET, HEAD, DELETE, OPTIONS"
    asked = await answer("OPTIONS", "/v1/topics/orders")
    assert (asked.status_code, asked.headers["allow"]) == (204, refused.headers["allow"])
    assert (await answer("OPTIONS", "/v1/nothing")).status_code == 404


async def test_files_of_the_pages_name_their_methods_too() -> None:
    path = "/docs/assets/swagger-ui.css"
    refused = await answer("POST", path)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert (await answer("OPTIONS", path)).status_code == 204
    assert (await answer("GET", path)).status_code == 200


def test_a_channel_is_found_by_its_handshake_only() -> None:
    index, path = app_of("coordinator").route_index(), "/v1/groups/g/channel"
    assert index.find(path, "WEBSOCKET") is not None
    assert index.find(path, "GET") is None

"""Routes that a broker forwards: administration, and consumer groups.

Clients may know or reach brokers only. The routes have the documentation of the service that
handles the requests.
"""

from __future__ import annotations

import json
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from fastapi import Request
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leadline_broker.api.next_controller import with_next_controller
from leadline_broker.runtime.cluster.coordinator_finder import CoordinatorFinder
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_client.errors import CoordinatorNotAvailable, NoController, error_from_body
from leadline_common.api import administration, groups
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import DEFAULT_MAX_BULK_BYTES
from leadline_common.http.forward import FORWARDED, Forward, Forwarder
from leadline_common.http.middleware import limit_body
from leadline_common.http.router import ServiceRouter
from leadline_common.identity import Kind, ServiceAddress, ServiceIdentity
from leadline_common.rpc import ControllerRow

CONTROLLER_TIMEOUT_S: Final = 90.0
COORDINATOR_TIMEOUT_S: Final = 45.0
"""Longer than a standby coordinator waits for the active one."""


class _ForwardedRoute(APIRoute):
    """A route that only has the documentation of the other service.

    Requests are forwarded before the framework finds it (`ForwardingLayer`).
    """

    def get_route_handler(self) -> Forward:
        """Return what refuses a request that was not forwarded."""
        return _not_forwarded


async def _not_forwarded(request: Request) -> Response:
    raise NotImplementedError(f"{request.url.path} is forwarded before it is routed")


_ADMINISTRATION: Final = administration.administration_routes(_ForwardedRoute)
_GROUPS: Final = groups.group_routes(_ForwardedRoute)
"""Made on import, so that a fork server makes them once for all processes."""


def find_controller(metadata: ClusterMetadataCache) -> ServiceAddress:
    """Return where the active controller is.

    Raises:
        NoController: none is known.

    """
    controller = metadata.active_controller
    if controller is None:
        raise NoController("this broker does not know an active controller yet")
    return _address("controller", controller)


def find_coordinator(finder: CoordinatorFinder) -> ServiceAddress:
    """Return where the active coordinator is.

    Raises:
        CoordinatorNotAvailable: none is known.

    """
    coordinator = finder.current
    if coordinator is None:
        raise CoordinatorNotAvailable("no coordinator of consumer groups is active")
    return _address("coordinator", coordinator)


def add_administration(
    app: ServiceApp, metadata: ClusterMetadataCache, forwarder: Forwarder
) -> dict[str, Forward]:
    """Document the administration routes, which every broker forwards to the active controller.

    Returns what forwards each operation, for a `ForwardingLayer`.
    """

    async def forward(request: Request) -> Response:
        async def send() -> Response:
            to = find_controller(metadata)
            response = await forwarder.forward(request, to, timeout_s=CONTROLLER_TIMEOUT_S)
            _raise_for_no_controller(response)
            return response

        if FORWARDED in request.headers:  # It is never forwarded again, whoever comes next.
            return await send()
        return await with_next_controller(metadata, send)

    app.add_routes_of(_ADMINISTRATION)
    return _operations_of(_ADMINISTRATION, forward)


def add_groups(
    app: ServiceApp, finder: CoordinatorFinder, forwarder: Forwarder
) -> dict[str, Forward]:
    """Document the routes about groups, which every broker forwards to the active coordinator.

    Returns what forwards each operation but commits, for a `ForwardingLayer`.
    """

    async def forward(request: Request) -> Response:
        to = find_coordinator(finder)
        response = await forwarder.forward(request, to, timeout_s=COORDINATOR_TIMEOUT_S)
        if response.status_code == HTTPStatus.MISDIRECTED_REQUEST:
            # NotCoordinator. Who asks a broker has no better way to the next coordinator than it.
            raise CoordinatorNotAvailable("another coordinator is being elected")
        return response

    app.add_routes_of(_GROUPS)
    app.add_asgi_route(groups.COMMIT, _ForwardedCommit(forward))
    return _operations_of(_GROUPS, forward)


def _raise_for_no_controller(response: Response) -> None:
    """Raise NoController if that is what the response says."""
    if response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
        return
    with suppress(ValueError):  # to HEAD, there is no body
        error = error_from_body(response.status_code, json.loads(bytes(response.body)))
        if isinstance(error, NoController):
            raise error


def _address(kind: Kind, found: ControllerRow) -> ServiceAddress:
    return ServiceAddress(ServiceIdentity(kind, found.id), found.url, found.internal_url)


def _operations_of(router: ServiceRouter, forward: Forward) -> dict[str, Forward]:
    return {route.name: forward for route in iter_route_contexts(router.routes) if route.name}


class _ForwardedCommit:
    """The endpoint of commits, which are larger than other requests."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit_body(scope, DEFAULT_MAX_BULK_BYTES)
        response = await self._forward(Request(scope, receive))
        await response(scope, receive, send)

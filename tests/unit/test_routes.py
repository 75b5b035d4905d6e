"""What holds for each route of a service: it is built once, and runs in no other thread.

The framework runs what is no coroutine in its thread pool. That costs more than all checks of a
refused request, and whoever asks much would fill the pool.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

import leadline_broker.main
import leadline_controller.main
import leadline_coordinator.main
from leadline_common.api.audit import AuditFilter

APPS: Final = {
    "broker": leadline_broker.main.openapi_app,
    "controller": leadline_controller.main.openapi_app,
    "coordinator": leadline_coordinator.main.openapi_app,
}
IN_THREADS: Final = {AuditFilter.__name__}
"""A class whose constructor checks parameters; the database is read after it, for much longer."""


def called_by(dependant: Dependant) -> Iterator[str]:
    """Return the names of what the framework calls in a thread for one request."""
    call = dependant.call
    if call is not None and not inspect.iscoroutinefunction(call):
        yield getattr(call, "__name__", repr(call))
    for inner in dependant.dependencies:
        yield from called_by(inner)


@pytest.mark.parametrize("service", APPS)
def test_nothing_that_a_request_calls_runs_in_a_thread(service: str) -> None:
    routes = [
        found.original_route
        for found in iter_route_contexts(APPS[service]().routes)
        if isinstance(found.original_route, APIRoute)
    ]
    assert len(routes) > 3
    in_threads = {
        f"{route.path}: {name}"
        for route in routes
        for name in called_by(route.dependant)
        if name not in IN_THREADS
    }
    assert not in_threads


@pytest.mark.parametrize("service", APPS)
def test_every_route_is_built_once(service: str) -> None:
    routes = APPS[service]().routes
    assert [found.original_route for found in iter_route_contexts(routes)] == routes

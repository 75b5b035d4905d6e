"""The application that every service starts from, in the house style.

It brings the error bodies, cause ids, body limits, request metrics, health,
the documentation pages, and a document of all routes in OpenAPI 3.1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from leadline_common.http import errors
from leadline_common.http.docs import add_docs
from leadline_common.http.document import apply_error_format, share_error_responses
from leadline_common.http.forward import Forwarder
from leadline_common.http.health import OPERATIONS, Check, health_routes
from leadline_common.http.middleware import Edge
from leadline_common.http.operation import INTERNAL, Operation, add_operation
from leadline_common.metrics import Metrics

DEFAULT_MAX_BODY_BYTES = 1024 * 1024
_UNMATCHED = "unmatched"

Lifespan = Callable[["ServiceApp"], AbstractAsyncContextManager[None]]


class ServiceApp(FastAPI):
    """A FastAPI application that also documents routes which FastAPI does not parse.

    `metrics` are the service's own; `forwarder` passes requests on to another
    service.
    """

    metrics: Metrics
    forwarder: Forwarder

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._operations: list[Operation] = []
        self._parsed: dict[str, Any] | None = None
        self._document: dict[str, Any] = {}
        self._templates: dict[Any, str] = {}

    def add_asgi_route(self, operation: Operation, endpoint: ASGIApp) -> None:
        """Serve `operation` by a plain ASGI endpoint, and document it.

        The endpoint is spared the framework's parsing, but not its error
        handling. It must be a callable object, not a function: the framework
        takes a function to expect a parsed request.
        """
        # Before the framework's own: these are the busy ones, and routes are tried in order.
        route = Route(operation.path, endpoint, methods=[operation.method])
        self.router.routes.insert(0, route)
        self.document(operation)

    def document(self, operation: Operation) -> None:
        """Document a route that was added by other means."""
        self._operations.append(operation)
        self._parsed = None

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of all routes."""
        parsed = super().openapi()
        if self._parsed is not parsed:
            document = deepcopy(parsed)
            apply_error_format(document)
            for operation in self._operations:
                add_operation(document, operation)
            share_error_responses(document)
            document["paths"] = dict(sorted(document["paths"].items()))
            self._parsed, self._document = parsed, document
        return self._document

    def route_of(self, scope: Scope) -> str:
        """Return the path template that served a request, for metrics."""
        endpoint = scope.get("endpoint")
        if endpoint is None:
            return _UNMATCHED
        found = self._templates.get(endpoint)
        if found is None:
            self._templates = {
                context.endpoint: context.path_format or _UNMATCHED
                for context in iter_route_contexts(self.routes)
                if getattr(context, "endpoint", None) is not None
            }
            found = self._templates.setdefault(endpoint, _UNMATCHED)
        return found


def create_app(
    *,
    title: str,
    version: str,
    description: str,
    tags: Sequence[Mapping[str, str]] = (),
    metrics: Metrics | None = None,
    checks: Sequence[Check] = (),
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    lifespan: Lifespan | None = None,
) -> ServiceApp:
    """Return an application without routes of its own yet.

    `checks` say whether the service is ready (see `leadline_common.http.health`);
    `tags` group the operations in the documentation ({"name", "description"});
    `max_body_bytes` bounds request bodies unless a route says otherwise
    (`limit_body`). Building it does no IO.
    """
    app = ServiceApp(
        title=title,
        version=version,
        description=description,
        openapi_tags=_all_tags(tags),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=errors.HANDLERS,
        lifespan=_with_forwarder(lifespan),
        generate_unique_id_function=_operation_id,
    )
    app.metrics = metrics or Metrics()
    app.forwarder = Forwarder()
    app.add_middleware(
        Edge, metrics=app.metrics, max_body_bytes=max_body_bytes, route_of=app.route_of
    )
    app.include_router(health_routes(checks, app.metrics))
    add_docs(app)
    return app


_TAGS = (
    {"name": OPERATIONS, "description": "Health, readiness and metrics of this process."},
    {"name": INTERNAL, "description": "What services say to one another; not for clients."},
)


def _all_tags(tags: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    named = {tag["name"] for tag in tags}
    common = (tag for tag in _TAGS if tag["name"] not in named)
    return [dict(tag) for tag in (*tags, *common)]


def _operation_id(route: APIRoute) -> str:
    return route.name


def _with_forwarder(
    inner: Lifespan | None,
) -> Callable[[ServiceApp], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        try:
            if inner is None:
                yield
            else:
                async with inner(app):
                    yield
        finally:
            await app.forwarder.close()

    return lifespan

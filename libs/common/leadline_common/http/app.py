"""The application that every service starts from.

It provides Leadline's error format, cause ids, body limits, request metrics, health routes,
the documentation pages, and the OpenAPI 3.1 document of all routes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import deepcopy
from operator import attrgetter
from typing import Any

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from leadline_common.access.operations import need_of
from leadline_common.http import errors
from leadline_common.http.access import AccessLayer, Authentication, NeedOf, check_rights
from leadline_common.http.caller_routes import caller_routes
from leadline_common.http.docs import DOCUMENTATION, PAGES, add_docs
from leadline_common.http.document import (
    apply_error_format,
    share_error_responses,
    split_by_tag,
    with_authentication,
    with_cluster_id,
)
from leadline_common.http.forward import Forwarder
from leadline_common.http.health import OPERATIONS, Check, health_routes
from leadline_common.http.internal import ListenerGate
from leadline_common.http.middleware import RequestMiddleware
from leadline_common.http.operation import INTERNAL, Operation, add_operation
from leadline_common.http.origins import AllowedNames
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.quotas import QuotaLayer
from leadline_common.http.route_gate import RouteGate
from leadline_common.http.route_index import RouteIndex, index_of
from leadline_common.http.router import ServiceRouter
from leadline_common.metrics import Metrics
from leadline_common.quotas.gate import QuotaGate

DEFAULT_MAX_BODY_BYTES = 1024 * 1024
_UNMATCHED = "unmatched"

Lifespan = Callable[["ServiceApp"], AbstractAsyncContextManager[None]]


class ServiceApp(FastAPI):
    """A FastAPI application that also documents routes which FastAPI does not parse.

    `metrics` are the service's own; `forwarder` forwards requests to another service.
    `page_links` are the links at the top of the documentation pages: paths by name. `home` is the
    path that / redirects to.
    `internal_paths` are the paths of the routes between services. `authentication` finds the
    callers of requests; it may be set until the first request. `quotas` limit what they use.
    `cluster_id` returns the id of the service's cluster, "" while it is not known.
    """

    metrics: Metrics
    forwarder: Forwarder
    page_links: dict[str, str]
    home: str
    checks: list[Check]
    authentication: Authentication
    need_of: NeedOf
    quotas: QuotaGate
    cluster_id: Callable[[], str]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._operations: list[Operation] = []
        self._encoded: dict[tuple[str, str], bytes] = {}
        self._encoding = asyncio.Lock()
        self._parsed: dict[str, Any] | None = None
        self._public: dict[str, Any] = {}
        self._internal: dict[str, Any] = {}
        self._templates: dict[Any, str] = {}
        self._index: RouteIndex | None = None
        self.internal_paths: set[str] = set()
        self.checks = []
        self.authentication = Authentication()

    def add_asgi_route(self, operation: Operation, endpoint: ASGIApp) -> None:
        """Serve `operation` by a plain ASGI endpoint, and document it.

        The framework handles the endpoint's errors, but does not parse its requests. The
        endpoint must be a callable object, not a function: the framework would call a
        function with a parsed request.
        """
        # First, because routes are tried in order and these are the busy ones.
        route = Route(operation.path, endpoint, methods=[operation.method], name=operation.name)
        self.router.routes.insert(0, route)
        self.document(operation)

    def add_routes_of(self, router: ServiceRouter) -> None:
        """Serve the routes of `router` as they are.

        `include_router` would build each of them again, with what the application adds: nothing
        here, and half of the time that a service takes to be built.
        """
        self.router.routes.extend(router.routes)

    def document(self, operation: Operation) -> None:
        """Document a route that was added elsewhere."""
        self._operations.append(operation)
        if INTERNAL in operation.tags:
            self.internal_paths.add(operation.path)
        self._parsed = None
        self._encoded.clear()

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document for clients, which the service serves.

        It has no internal operations, and no component that only those use. Operations that
        were documented (`document`) come first, in their order, then the others by path.
        """
        self._describe()
        return self._public

    def internal_openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of the requests between services; it is not served."""
        self._describe()
        return self._internal

    def _describe(self) -> None:
        parsed = super().openapi()
        if self._parsed is parsed:
            return
        document = deepcopy(parsed)
        apply_error_format(document)
        others = dict(sorted(document["paths"].items()))
        document["paths"] = {}
        for operation in self._operations:
            add_operation(document, operation)
        for path, item in others.items():
            document["paths"].setdefault(path, {}).update(item)
        share_error_responses(document)
        self._internal, public = split_by_tag(document, INTERNAL)
        self._public = with_authentication(public)
        self._parsed = parsed

    def setup(self) -> None:
        """Add the route of the document; the framework calls this at its construction."""
        self.add_route(
            PAGES["OpenAPI"], self._serve_document, include_in_schema=False, name=DOCUMENTATION
        )

    async def _serve_document(self, request: Request) -> Response:
        """Answer with the document, which is made in a thread, and encoded once.

        Making it takes about a second, and encoding it 10 ms: on the event loop, whoever asks for
        it repeatedly would delay everybody else.
        """
        shown = request.scope.get("root_path", "").rstrip("/"), self.cluster_id()
        async with self._encoding:
            found = self._encoded.get(shown)
            if found is None:
                found = self._encoded[shown] = await asyncio.to_thread(self._encode, *shown)
        return Response(found, media_type="application/json")

    def _encode(self, root: str, cluster_id: str) -> bytes:
        document = self.openapi()
        if cluster_id:
            document = with_cluster_id(document, cluster_id)
        if root:  # A proxy serves this application below a path of its own.
            document = {**document, "servers": [{"url": root}]}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    def route_index(self) -> RouteIndex:
        """Return the index of the routes, which are complete at the first call.

        Raises:
            ValueError: no right is stated for one of them.

        """
        if self._index is None:
            self._index = index_of(self.router.routes)
            check_rights(self._index.operations, self.need_of)
        return self._index

    def route_of(self, scope: Scope) -> str:
        """Return the path template of the route that served a request, for metrics."""
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
    cluster_id: Callable[[], str] = str,
    names: AllowedNames | None = None,
    connections: PeerConnections | None = None,
    need_of: NeedOf = need_of,
    quotas: QuotaGate | None = None,
) -> ServiceApp:
    """Return an application with health, metrics and documentation routes; does no IO.

    `checks` decide whether the service is ready (see `leadline_common.http.health`).
    `tags` ({"name", "description"}) group the operations in the documentation.
    `max_body_bytes` limits request bodies, unless a route sets its own limit (`limit_body`).
    `cluster_id` returns the id of the service's cluster, "" while it is not known: requests that
    name another one are refused. `names` are the host names and the origins to accept; None,
    for use within a process, accepts any. `connections` reach the services to which
    requests are forwarded. `need_of` returns the right that an operation needs. `quotas` limit
    what users may use; None limits nothing until it is told users and settings.
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
        # The framework's own spans would take their parents, and what is recorded, from anybody.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=_with_forwarder(lifespan),
        generate_unique_id_function=attrgetter("name"),
    )
    app.metrics = metrics or Metrics()
    app.need_of, app.cluster_id = need_of, cluster_id
    app.quotas = quotas or QuotaGate(app.metrics)
    app.forwarder = Forwarder(connections=connections or PeerConnections())
    app.page_links, app.home = dict(PAGES), PAGES["Swagger UI"]
    _add_layers(app)
    app.add_middleware(
        RequestMiddleware,
        metrics=app.metrics,
        max_body_bytes=max_body_bytes,
        route_of=app.route_of,
        cluster_id=cluster_id,
        names=names,
    )
    app.checks = list(checks)
    app.add_routes_of(health_routes(app.checks, app.metrics))
    app.add_routes_of(caller_routes())
    add_docs(app, app.page_links, lambda: app.home)
    return app


def _add_layers(app: ServiceApp) -> None:
    """Add what decides whether a route sees a request, the innermost layer first."""
    app.add_middleware(RouteGate, index=app.route_index)
    app.add_middleware(
        ListenerGate,
        internal_paths=lambda: app.internal_paths,
        serves_all=lambda: app.authentication.required,
    )
    app.add_middleware(QuotaLayer, gate=lambda: app.quotas)
    app.add_middleware(
        AccessLayer,
        authentication=lambda: app.authentication,
        index=app.route_index,
        metrics=app.metrics,
        need_of=app.need_of,
    )


_TAGS = (
    {"name": OPERATIONS, "description": "Health, readiness and metrics of this process."},
    {"name": INTERNAL, "description": "Requests between services; not for clients."},
)


def _all_tags(tags: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    named = {tag["name"] for tag in tags}
    common = (tag for tag in _TAGS if tag["name"] not in named)
    return [dict(tag) for tag in (*tags, *common)]


def _with_forwarder(
    inner: Lifespan | None,
) -> Callable[[ServiceApp], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        try:
            async with nullcontext() if inner is None else inner(app):
                yield
        finally:
            await app.forwarder.close()

    return lifespan

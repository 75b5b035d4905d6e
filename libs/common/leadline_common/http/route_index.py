"""Which route serves a path, found without asking every route.

The index has the web framework's own patterns, in its order, so both find the same route. It tries
only those with as many slashes as the path has.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

WEBSOCKET: Final = "WEBSOCKET"
"""Stands for a method in the handshake of a WebSocket."""
ROUTE_KEY: Final = "leadline.route"
"""The key of the ASGI scope with the route (`IndexedRoute`) of the request, None if it has none."""
_ANY_DEPTH: Final = -1


@dataclass(frozen=True, slots=True)
class IndexedRoute:
    """One route: its pattern, the methods that it serves (None: any), and its operation id.

    `endpoint` is what the framework calls for it; `is_plain`: it is an ASGI application, which
    needs nothing of the framework.
    """

    pattern: re.Pattern[str]
    methods: frozenset[str] | None
    operation: str = ""
    endpoint: Any = None
    is_plain: bool = False

    def serves(self, method: str) -> bool:
        """Tell whether the route serves a method, WEBSOCKET for a handshake."""
        return self.methods is None or method in self.methods


class RouteIndex:
    """The routes of an application, by the number of slashes in their paths.

    `operations` are the ids of their operations.
    """

    def __init__(self, routes: Iterable[IndexedRoute]) -> None:
        routes = tuple(routes)
        self.operations = frozenset(route.operation for route in routes)
        found = [(_depth(route), route) for route in routes]
        depths = {depth for depth, _ in found} | {_ANY_DEPTH}
        self._by_depth = {
            depth: [route for own, route in found if own in (depth, _ANY_DEPTH)] for depth in depths
        }

    def find(self, path: str, method: str) -> IndexedRoute | None:
        """Return the route of a path that serves a method, None if there is none."""
        return next((route for route in self._at(path) if route.serves(method)), None)

    def methods_at(self, path: str) -> frozenset[str]:
        """Return the methods that the routes at a path serve; those that serve any do not count."""
        return frozenset().union(*(route.methods or () for route in self._at(path)))

    def _at(self, path: str) -> Iterator[IndexedRoute]:
        routes = self._by_depth.get(path.count("/"), self._by_depth[_ANY_DEPTH])
        return (route for route in routes if route.pattern.match(path))


def index_of(routes: Iterable[BaseRoute]) -> RouteIndex:
    """Return the index of an application's routes."""
    return RouteIndex(map(_indexed, iter_route_contexts(list(routes))))


def _indexed(route: RouteContext) -> IndexedRoute:
    pattern: re.Pattern[str] = route.path_regex
    name = route.name or ""
    if isinstance(route.original_route, WebSocketRoute):
        return IndexedRoute(pattern, frozenset({WEBSOCKET}), name)
    if isinstance(route.original_route, Mount):
        return IndexedRoute(pattern, None, name)
    return IndexedRoute(
        pattern,
        frozenset(route.methods or ()),
        name,
        route.endpoint,
        is_plain=is_plain(route.original_route),
    )


def is_plain(route: BaseRoute) -> bool:
    """Tell whether the framework hands requests on as they are: it parses those of functions."""
    if not isinstance(route, Route) or isinstance(route, APIRoute):
        return False
    return not inspect.isroutine(route.endpoint)


def _depth(route: IndexedRoute) -> int:
    """Return the number of slashes in each path that a pattern matches."""
    pattern = route.pattern.pattern
    return _ANY_DEPTH if ".*" in pattern else pattern.replace("[^/]", "").count("/")

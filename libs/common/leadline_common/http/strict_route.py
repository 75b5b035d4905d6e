"""Routes that refuse what the framework would ignore, or would read as something else.

A misspelt parameter must not widen what a request does: a deletion of offsets that names no topic
deletes all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final, TypeAlias, get_args

from fastapi import params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from leadline_common.http.errors import invalid_field

WHOLE: Final = re.compile(r"-?[0-9]{1,100}")
"""Python reads "1_0", " 1" and digits of other scripts, too, and refuses thousands of digits."""

Serve: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """A route that refuses unknown and repeated parameters, and numbers that are no plain ones.

    The framework ignores a parameter that it does not know, takes the last one of several, and
    reads `+1`, `1_0` and `1.0` as numbers.
    """

    def get_route_handler(self) -> Serve:
        """Return what serves a request once its parameters are checked."""
        serve = super().get_route_handler()
        in_query, in_path = self._parameters(params.Query), self._parameters(params.Path)

        async def checked(request: Request) -> Response:
            check_names(request.query_params, in_query)
            for name, value in request.query_params.items():
                _check_number("query", name, value, is_number=in_query[name])
            for name, value in request.path_params.items():
                _check_number("path", name, value, is_number=in_path.get(name, False))
            return await serve(request)

        return checked

    def _parameters(self, place: type[params.Param]) -> dict[str, bool]:
        """Return the parameters in the query or in the path, and which are whole numbers."""
        fields = [f for f in get_flat_params(self.dependant) if isinstance(f.field_info, place)]
        return {field.alias: _is_number(field.field_info.annotation) for field in fields}


def _is_number(annotation: Any) -> bool:
    return annotation is int or int in get_args(annotation)


def check_names(query: QueryParams, known: Collection[str]) -> None:
    """Check the names of the parameters in a query string.

    Raises:
        InvalidRequest: one is not known, or given more than once.

    """
    for name in query:
        if name not in known:
            raise invalid_field(f"query.{name}", "unknown parameter")
        if len(query.getlist(name)) > 1:
            raise invalid_field(f"query.{name}", "must be given once")


def _check_number(place: str, name: str, value: Any, *, is_number: bool) -> None:
    if is_number and not WHOLE.fullmatch(str(value)):
        raise invalid_field(f"{place}.{name}", "must be a whole number")

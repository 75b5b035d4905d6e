"""The router of a service's routes: they are served as they are declared, and strictly."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from fastapi import APIRouter

from leadline_common.http.strict_route import StrictRoute


class ServiceRouter(APIRouter):
    """A router whose routes have their names as operation ids, as a `ServiceApp` shows them.

    They refuse unknown parameters, unless `route_class` is of another kind.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("route_class", StrictRoute)
        super().__init__(generate_unique_id_function=attrgetter("name"), **options)

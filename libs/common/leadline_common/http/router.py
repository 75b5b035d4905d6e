"""The router of a service's routes: they are served as they are declared."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from fastapi import APIRouter


class ServiceRouter(APIRouter):
    """A router whose routes have their names as operation ids, as a `ServiceApp` shows them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(generate_unique_id_function=attrgetter("name"), **options)

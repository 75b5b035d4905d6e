"""Path and query parameters of the ASGI endpoints, parsed with errors that name the field."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.datastructures import QueryParams
from starlette.types import Scope

from leadline_common.http.errors import invalid_field
from leadline_common.http.strict_route import WHOLE, check_names

INT64_MAX = 2**63 - 1
ROUTES: Final = ("leader", "any")
ROUTE_DESCRIPTION: Final = (
    "`any`: a broker that does not lead the partition asks the leader, and returns its response, "
    "instead of 421"
)


def topic_partition(scope: Scope) -> tuple[str, int]:
    """Return topic and partition from the path.

    Raises:
        InvalidRequest: the partition is not a number.

    """
    return scope["path_params"]["topic"], number_of(scope["path_params"]["partition"])


def number_of(partition: str) -> int:
    """Parse the partition number in a path.

    Raises:
        InvalidRequest: it is not a number.

    """
    if not WHOLE.fullmatch(partition) or int(partition) < 0:
        raise invalid_field("path.partition", "must be a whole number, 0 or more")
    return int(partition)


class Query:
    """The query string of one request; unknown and repeated parameters are refused."""

    def __init__(self, scope: Scope, known: Collection[str]) -> None:
        self._values = QueryParams(scope["query_string"])
        check_names(self._values, known)

    def integer(
        self, name: str, default: int | None, *, least: int = 0, most: int = INT64_MAX
    ) -> int:
        """Return an integer within bounds; without a default it is required."""
        stated = self._values.get(name)
        if stated is None:
            if default is None:
                raise invalid_field(f"query.{name}", "is required")
            return default
        if not WHOLE.fullmatch(stated):
            raise invalid_field(f"query.{name}", "must be a whole number")
        value = int(stated)
        if not least <= value <= most:
            raise invalid_field(f"query.{name}", f"must be from {least} to {most}")
        return value

    def optional_integer(self, name: str) -> int | None:
        """Return an integer, or None if it is not given."""
        return self.integer(name, None) if name in self._values else None

    def choice(self, name: str, default: str, choices: Collection[str]) -> str:
        """Return one of `choices`."""
        stated = self._values.get(name, default)
        if stated not in choices:
            raise invalid_field(f"query.{name}", f"must be one of {', '.join(sorted(choices))}")
        return stated

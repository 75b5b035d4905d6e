"""Path and query parameters of the thin routes, parsed with errors that name the field."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import QueryParams
from starlette.types import Scope

from leadline_client.errors import InvalidRequest

INT64_MAX = 2**63 - 1


def refuse(field: str, message: str) -> InvalidRequest:
    """Return the refusal of one field, in the house format."""
    return InvalidRequest(f"{field}: {message}", fields=[{"field": field, "message": message}])


def topic_partition(scope: Scope) -> tuple[str, int]:
    """Return topic and partition of the path.

    Raises:
        InvalidRequest: the partition is not a number.

    """
    return scope["path_params"]["topic"], number_of(scope["path_params"]["partition"])


def number_of(partition: str) -> int:
    """Return the number of a partition as the path states it.

    Raises:
        InvalidRequest: it is not a number.

    """
    if not partition.isdecimal():
        raise refuse("path.partition", "must be a whole number, 0 or more")
    return int(partition)


class Query:
    """The query string of one request; unknown parameters are refused, like unknown members."""

    def __init__(self, scope: Scope, known: Collection[str]) -> None:
        self._values = QueryParams(scope["query_string"])
        for name in self._values:
            if name not in known:
                raise refuse(f"query.{name}", "there is no such parameter")

    def integer(
        self, name: str, default: int | None, *, least: int = 0, most: int = INT64_MAX
    ) -> int:
        """Return a whole number within bounds; without a default it is required."""
        stated = self._values.get(name)
        if stated is None:
            if default is None:
                raise refuse(f"query.{name}", "is required")
            return default
        try:
            value = int(stated)
        except ValueError:
            raise refuse(f"query.{name}", "must be a whole number") from None
        if not least <= value <= most:
            raise refuse(f"query.{name}", f"must be from {least} to {most}")
        return value

    def optional_integer(self, name: str) -> int | None:
        """Return a whole number, or None when it is not given."""
        return self.integer(name, None) if name in self._values else None

    def choice(self, name: str, default: str, choices: Collection[str]) -> str:
        """Return one of `choices`."""
        stated = self._values.get(name, default)
        if stated not in choices:
            raise refuse(f"query.{name}", f"must be one of {', '.join(sorted(choices))}")
        return stated

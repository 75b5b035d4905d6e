"""Times as people write and read them: in UTC, unless a zone is given."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import typer

TIME_HELP: Final = "ISO 8601 (UTC unless it names a zone), or Unix ms"


def unix_ms(text: str) -> int:
    """Return a time in Unix ms, as tables show it or scripts have it.

    Raises:
        typer.BadParameter: it is not one.

    """
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time: give ISO 8601 or Unix ms, as 2026-01-31T12:00:00 (UTC), "
            "2026-01-31T12:00:00+01:00 or 1769860800000"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def shown(time_ms: int, *, timespec: str = "seconds") -> str:
    """Return a time in Unix ms as `2026-01-31 12:00:00`, in UTC, which `unix_ms` reads back."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC).replace(tzinfo=None)
    return moment.isoformat(" ", timespec)

"""The cause id: one name for everything that one request or event brings about.

It travels from the request (or the watch, or the timer) through events,
commands to other services, audit entries and log lines, so that a single
search shows the whole story.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

HEADER = "X-Leadline-Cause"
"""The request and response header that carries the cause id."""

_SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("leadline_cause", default="")


def new_cause() -> str:
    """Return a fresh cause id: 16 hexadecimal digits."""
    return secrets.token_hex(8)


def accept_cause(stated: str | None) -> str:
    """Return the cause id that a caller stated, or a fresh one where it is missing or not sane.

    Sane is 1 to 64 letters, digits, dots, underscores and dashes: the id ends up
    in log lines and headers as it is.
    """
    return stated if stated is not None and _SANE.fullmatch(stated) else new_cause()


def current_cause() -> str:
    """Return the cause id of what is being done now, or "" outside of any cause."""
    return _current.get()


@contextmanager
def cause_scope(cause: str) -> Iterator[str]:
    """Do the body of the `with` statement, and tasks started in it, under this cause."""
    token = _current.set(cause)
    try:
        yield cause
    finally:
        _current.reset(token)

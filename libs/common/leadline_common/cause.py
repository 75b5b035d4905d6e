"""The cause id: a correlation id for everything that one request or event causes.

It goes from the request (or the watch, or the timer) into events, commands to other services,
audit entries and log lines, so that one search finds all of them.
"""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar

from leadline_common.context_scope import ContextScope

HEADER = "X-Leadline-Cause"
"""The request and response header that carries the cause id."""

_VALID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("leadline_cause", default="")


def new_cause() -> str:
    """Return a new cause id: 16 hexadecimal digits."""
    return secrets.token_hex(8)


def accept_cause(requested: str | None) -> str:
    """Return the caller's cause id, or a new one if it is missing or invalid.

    A valid id has 1 to 64 letters, digits, dots, underscores and dashes, because it is written
    into log lines and headers unchanged.
    """
    return requested if requested is not None and _VALID.fullmatch(requested) else new_cause()


def current_cause() -> str:
    """Return the cause id of the current context, or "" if there is none."""
    return _current.get()


def clear_cause() -> None:
    """Leave the current context without a cause id."""
    _current.set("")


def cause_scope(cause: str) -> ContextScope[str]:
    """Set the cause id for the body of the `with` statement and the tasks that it starts."""
    return ContextScope(_current, cause)

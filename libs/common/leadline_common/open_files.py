"""How many files and sockets this process may have open at a time."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress


def raise_open_files() -> None:
    """Raise the limit as far as it may be raised without privileges.

    Shells and supervisors often set 1,024 only so that old programs work that cannot handle more.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems allow less than they state
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def open_files_limit() -> int:
    """Return the most files and sockets that this process may have open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit

"""Results of commands that cannot be printed: the disk is full, or nobody reads the pipe."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class OutputLost(Exception):
    """Standard output takes no more: what a command has done is done, and cannot be told."""


def lose_pipe() -> NoReturn:
    """Raise OutputLost because the reader of the pipe has gone."""
    _leave_nothing_to_flush()
    raise OutputLost(os.strerror(errno.EPIPE))


@contextmanager
def written(*, but: type[OSError] | tuple[()] = ()) -> Iterator[None]:
    """Turn a failure to write to standard output into OutputLost, `but` for one kind."""
    try:
        yield
    except but:
        raise
    except OSError as problem:
        _leave_nothing_to_flush()
        raise OutputLost(problem.strerror) from problem


def _leave_nothing_to_flush() -> None:
    """Send what is left elsewhere: Python would fail again at exit, with another code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

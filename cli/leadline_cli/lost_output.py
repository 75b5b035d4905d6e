"""Results of commands that cannot be printed: the disk is full, or nobody reads the pipe."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NoReturn


class OutputLost(Exception):
    """Standard output takes no more: what a command has done is done, and cannot be told."""


def lose_pipe() -> NoReturn:
    """Raise OutputLost because the reader of the pipe has gone."""
    _discard(sys.stdout)
    raise OutputLost(os.strerror(errno.EPIPE))


def lose_messages() -> NoReturn:
    """Raise the error of a pipe that nobody reads; for `without_lost_messages`."""
    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


@contextmanager
def written(*, but: type[OSError] | tuple[()] = ()) -> Iterator[None]:
    """Turn a failure to write to standard output into OutputLost, `but` for one kind."""
    try:
        yield
    except but:
        raise
    except OSError as problem:
        _discard(sys.stdout)
        raise OutputLost(problem.strerror) from problem


@contextmanager
def without_lost_messages() -> Iterator[None]:
    """Go on without the messages of standard error if it takes none.

    They are about the work, and no reason to leave it half done; the exit code says how it ended.
    """
    try:
        yield
    except OSError:
        _discard(sys.stderr)


def _discard(stream: IO[str]) -> None:
    """Send what is left in a stream nowhere: Python would fail again at exit, with another code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

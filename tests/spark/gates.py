"""A point at which a running job waits for the test. Tasks are processes, so files signal it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program has it

_DEADLINE_S = 60.0
_LOOK_AGAIN_S = 0.02


class Gate:
    """Holds up the task that comes to one row, until the test opens it. Open once, it stays so."""

    def __init__(self, folder: Path, row: int) -> None:
        self._reached = folder / "reached"
        self._open = folder / "open"
        self._row = row

    def column(self, row: str = "id") -> Column:
        """Return the column `row` unchanged, late."""
        reached, opened, where = self._reached, self._open, self._row

        def passing(number: int) -> int:
            if number == where:
                reached.touch()
                until(opened.exists)
            return number

        # Not an expression that Spark may evaluate twice, or leave out.
        return F.udf(passing, "long", useArrow=False).asNondeterministic()(F.col(row))

    def wait(self) -> None:
        """Return when the task is at the gate."""
        until(self._reached.exists)

    def open(self) -> None:
        """Let the task go on."""
        self._open.touch()


def until(condition: Callable[[], bool], deadline_s: float = _DEADLINE_S) -> None:
    """Wait for a condition; fail when it does not come true."""
    give_up = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(_LOOK_AGAIN_S)

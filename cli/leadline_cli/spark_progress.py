"""How far the Spark jobs of this process are: a bar on a terminal, lines now and then elsewhere.

A thread asks Spark's status tracker, and the streaming queries for their latest progress. Both
are for information only: a job never fails because its progress cannot be read.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leadline_cli.output import console, print_note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S: Final = 0.5
"""How often Spark is asked."""
QUIET_S: Final = 10.0
"""How long nothing is said where every state would be a line of its own."""


class SparkState(NamedTuple):
    """What Spark is doing: running jobs, tasks of their active stages, and streaming queries."""

    jobs: int = 0
    tasks: int = 0
    completed: int = 0
    queries: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = list(self.queries)
        if self.tasks:
            parts.append(f"{self.completed} of {self.tasks} tasks")
        return "; ".join(parts)


def read_state(spark: SparkSession) -> SparkState:
    """Return what a session is doing now."""
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getActiveJobsIds()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return SparkState(
        len(jobs),
        sum(stage.numTasks for stage in known),
        sum(stage.numCompletedTasks for stage in known),
        tuple(_query_words(query.lastProgress) for query in spark.streams.active),
    )


def _query_words(progress: Any) -> str:
    """Return what a streaming query has last done; `progress` is None before its first batch."""
    if progress is None:
        return "the query starts"
    rows, rate = progress["numInputRows"], progress["processedRowsPerSecond"] or 0.0
    return f"batch {progress['batchId']}: {rows:,} records, {rate:,.0f} per second"


class ProgressWatch:
    """Calls `show` with the state of a session, until it is closed; see `watching`."""

    def __init__(
        self,
        show: Callable[[SparkState], None],
        read: Callable[[SparkSession], SparkState] = read_state,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._show = show
        self._read = read
        self._interval_s = interval_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, spark: SparkSession) -> None:
        """Watch a session; another session of the same job is not watched."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, args=(spark,), name="spark progress", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Stop watching, and wait until nothing more is shown."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, spark: SparkSession) -> None:
        while not self._over.wait(self._interval_s):
            try:
                state = self._read(spark)
            except Exception:  # Py4J has many errors for a session that ends while it is asked.
                return
            self._show(state)


@contextmanager
def watching(arguments: Sequence[str]) -> Iterator[Callable[[SparkSession], None]]:
    """Show the progress of the session that is passed to the yielded function.

    A job that is asked for JSON (`--json`) shows nothing.
    """
    if "--json" in arguments:
        yield lambda _: None
        return
    with _shown() as show:
        watch = ProgressWatch(show)
        try:
            yield watch.start
        finally:
            watch.close()


def _shown() -> AbstractContextManager[Callable[[SparkState], None]]:
    return _bar() if console(stderr=True).is_terminal else nullcontext(_lines())


@contextmanager
def _bar() -> Iterator[Callable[[SparkState], None]]:
    """Yield what draws a bar, which disappears at the end."""
    rich = import_module("rich.progress")
    progress = rich.Progress(
        rich.SpinnerColumn(),
        rich.TextColumn("Spark"),
        rich.BarColumn(),
        rich.TextColumn("{task.description}"),
        rich.TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
        # What the job prints appears above the bar; a file or a pipe gets it as it is.
        redirect_stdout=sys.stdout.isatty(),
    )
    with progress:
        bar = progress.add_task("starts", total=None)
        yield lambda state: progress.update(
            bar, description=str(state), total=state.tasks or None, completed=state.completed
        )


def _lines(clock: Callable[[], float] = time.monotonic) -> Callable[[SparkState], None]:
    """Return what prints a line if the state has changed, at most every ten seconds."""
    last, quiet_until = "", clock() + QUIET_S

    def show(state: SparkState) -> None:
        nonlocal last, quiet_until
        words = str(state)
        if words and words != last and clock() >= quiet_until:
            print_note(f"Spark: {words}")
            last, quiet_until = words, clock() + QUIET_S

    return show

"""The progress of a real session, as `leadline spark` reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leadline_cli.spark_progress import ProgressWatch, SparkState

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0


def until_there(path: str) -> Callable[[int], int]:
    """Return what a task does: wait for a file."""

    def wait(number: int) -> int:
        import pathlib  # noqa: PLC0415 - runs in a worker
        import time  # noqa: PLC0415 - as above

        give_up = time.monotonic() + 60
        while not pathlib.Path(path).exists() and time.monotonic() < give_up:
            time.sleep(0.02)
        return number

    return wait


def test_the_tasks_of_a_running_job_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    release = tmp_path / "release"
    running, over = threading.Event(), threading.Event()

    def show(state: SparkState) -> None:
        # A job that begins while Spark is asked for jobs and then for stages is half in a state.
        if state == SparkState(1, 6, 0):
            running.set()
        elif not state.tasks and release.exists():
            over.set()

    numbers = spark.sparkContext.parallelize(range(6), 6).map(until_there(str(release)))
    counted: list[int] = []
    job = threading.Thread(target=lambda: counted.append(numbers.count()), daemon=True)
    watch = ProgressWatch(show, interval_s=0.05)
    watch.start(spark)
    try:
        job.start()
        assert running.wait(DEADLINE_S), "a job with six tasks, none of which is done"
    finally:
        release.touch()
        job.join(DEADLINE_S)
        is_over = over.wait(DEADLINE_S)
        watch.close()
    assert counted == [6]
    assert is_over, "a job that is over is not shown"

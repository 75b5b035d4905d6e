"""Progress of Spark jobs: what is read, and its two faces, a terminal and everything else."""

from __future__ import annotations

import io
import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from leadline_cli import spark_progress
from leadline_cli.spark_progress import ProgressWatch, SparkState, read_state, watching
from leadline_spark.jobs import command


def session(*stages: tuple[int, int] | None, queries: tuple[Any, ...] = ()) -> SparkSession:
    """A session with these active stages: (tasks, completed), None for one that has just ended."""
    found = [
        None if one is None else SimpleNamespace(numTasks=one[0], numCompletedTasks=one[1])
        for one in stages
    ]
    tracker = SimpleNamespace(
        getActiveJobsIds=lambda: [7],
        getActiveStageIds=lambda: list(range(len(found))),
        getStageInfo=lambda stage: found[stage],
    )
    active = [SimpleNamespace(lastProgress=one) for one in queries]
    made = SimpleNamespace(
        sparkContext=SimpleNamespace(statusTracker=lambda: tracker),
        streams=SimpleNamespace(active=active),
    )
    return cast("SparkSession", made)


class Terminal(io.StringIO):
    """What a program takes for a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error is a terminal."""
    terminal = Terminal()
    made = Console(file=terminal, force_terminal=True, width=100, soft_wrap=True, markup=False)
    monkeypatch.setattr(spark_progress, "console", lambda **_: made)
    return terminal


def shown(spark: SparkSession) -> None:
    """Watch a session until its state was shown."""
    read = threading.Event()
    calls = itertools.count()

    def reading(asked: SparkSession) -> SparkState:
        if next(calls):  # What was read before has been shown.
            read.set()
        return read_state(asked)

    class Quick(ProgressWatch):
        def __init__(self, show: Callable[[SparkState], None]) -> None:
            super().__init__(show, reading, 0.01)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_progress, "ProgressWatch", Quick)
        with watching([]) as started:
            started(spark)
            assert read.wait(10)


def test_the_state_adds_up_the_active_stages() -> None:
    assert read_state(session((10, 4), None, (5, 5))) == SparkState(1, 15, 9)
    assert str(read_state(session((10, 4), (5, 5)))) == "9 of 15 tasks"
    assert str(read_state(session())) == ""


def test_the_state_has_the_latest_batch_of_a_query() -> None:
    batch = {"batchId": 12, "numInputRows": 4000, "processedRowsPerSecond": 1234.5}
    idle = {"batchId": 13, "numInputRows": 0, "processedRowsPerSecond": None}
    said = str(read_state(session((2, 1), queries=(batch, None, idle))))
    assert said == (
        "batch 12: 4,000 records, 1,234 per second; the query starts; "
        "batch 13: 0 records, 0 per second; 1 of 2 tasks"
    )


def test_a_terminal_shows_a_bar(screen: Terminal) -> None:
    shown(session((8, 3)))
    assert "━" in screen.getvalue()
    assert "3 of 8 tasks" in screen.getvalue()


def test_elsewhere_a_line_is_printed_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark_progress, "QUIET_S", 0.0)
    shown(session((8, 3)))
    assert capsys.readouterr().err == "Spark: 3 of 8 tasks\n", "once, as it does not change"


def test_lines_are_ten_seconds_apart(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 10.0, 10.0, 12.0, 21.0, 21.0])
    show = spark_progress._lines(lambda: next(times))
    for completed in (1, 2, 3, 4):
        show(SparkState(1, 9, completed))
    assert capsys.readouterr().err == "Spark: 2 of 9 tasks\nSpark: 4 of 9 tasks\n"


def test_json_is_printed_without_progress(
    screen: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Callable[[SparkState], None]) -> ProgressWatch:
        raise AssertionError("nothing is to be watched")

    monkeypatch.setattr(spark_progress, "ProgressWatch", refuse)
    with watching(["--json"]) as started:
        started(session((8, 3)))
    assert (screen.getvalue(), capsys.readouterr().err) == ("", "")


def test_a_session_that_ends_while_it_is_watched_ends_the_watching() -> None:
    def fail(_: SparkSession) -> SparkState:
        raise ConnectionError

    seen: list[SparkState] = []
    watch = ProgressWatch(seen.append, fail, 0.01)
    watch.start(session())
    assert watch._thread is not None
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    watch.close()
    assert seen == []


def test_nothing_is_shown_after_the_end() -> None:
    seen: list[SparkState] = []
    watch = ProgressWatch(seen.append, interval_s=0.001)
    watch.start(session((1, 0)))
    watch.close()
    count = len(seen)
    assert threading.Event().wait(0.05) is False
    assert len(seen) == count


def test_a_written_file_is_a_link_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    path = tmp_path / "a report.html"
    command.print_path(path)
    uri = path.as_uri()
    assert "a%20report.html" in uri
    assert f";{uri}\x1b\\{path}\x1b]8;;\x1b\\" in terminal.getvalue()


def test_elsewhere_a_written_file_is_a_plain_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.print_path(tmp_path / "report.html")
    assert capsys.readouterr().out == f"{tmp_path}/report.html\n"

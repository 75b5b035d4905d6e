"""A failed test runs once more, alone; a second failure, or too many, fail the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FAILS_FIRST = """
import pathlib, pytest

@pytest.mark.parametrize("name", [{names}])
def test_fails_first(name):
    mark = pathlib.Path(__file__).with_name(name.replace("@", "-"))
    first = not mark.exists()
    mark.touch()
    assert not first, "failed beside others"
"""


def run(at: Path, *options: str) -> tuple[int, str]:
    """Run pytest in `at`; return its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=at,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "xdist.plugin,tests.support.retry_alone",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_defect_25_one_that_passes_alone_is_reported_and_does_not_fail_the_run(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    (tmp_path / "test_it.py").write_text(FAILS_FIRST.format(names="'a', 'b@c'"))
    code, shown = run(tmp_path, "--retry-alone", "2", *workers)
    assert code == 0, shown
    *_, first, second, last = filter(None, shown.splitlines())
    assert "2 passed only alone" in last
    assert {first, second} == {
        f"passed only alone: test_it.py::test_fails_first[{case}] - "
        "AssertionError: failed beside others"
        for case in ("a", "b@c")
    }
    assert "to be mended: test_it.py::test_fails_first[b@c]" in shown


def test_defect_25_too_many_do_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILS_FIRST.format(names="'a', 'b', 'c'"))
    code, shown = run(tmp_path, "--retry-alone", "2")
    assert code == 1
    assert "3 failed" in shown.splitlines()[-1]


def test_one_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        FAILS_FIRST.format(names="'a'") + "\ndef test_fails():\n    assert False\n"
    )
    code, shown = run(tmp_path, "--retry-alone", "2")
    assert code == 1
    assert "1 failed" in shown.splitlines()[-1]
    assert "1 passed only alone" in shown.splitlines()[-1]


def test_without_the_option_nothing_runs_again(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILS_FIRST.format(names="'a'"))
    code, shown = run(tmp_path)
    assert code == 1
    assert "once more" not in shown


def test_one_that_runs_only_when_asked_for_runs_again_too(tmp_path: Path) -> None:
    marked = "[pytest]\naddopts = -m 'not slow'\nmarkers = slow: when asked for\n"
    (tmp_path / "pytest.ini").write_text(marked)
    test = FAILS_FIRST.format(names="pytest.param('a', marks=pytest.mark.slow)")
    (tmp_path / "test_it.py").write_text(test)
    code, shown = run(tmp_path, "--retry-alone", "2", "-m", "slow")
    assert code == 0, shown
    assert "1 passed only alone" in shown.splitlines()[-1]

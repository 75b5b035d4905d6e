"""Tests that share a cluster run in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.distribution import scope_of

ROOT = Path(__file__).parents[2]

SAYS_WHERE_IT_RUNS = """
import os, pathlib, pytest, time

@pytest.mark.parametrize("number", range(4))
def test_one(number):
    time.sleep(0.05)
    with pathlib.Path("ran").open("a") as ran:
        ran.write(f"{pathlib.Path(__file__).name} {os.getpid()}\\n")
"""


@pytest.mark.parametrize(
    ("node_id", "scope"),
    [
        ("tests/spark/test_write.py::test_a[x::y]", "spark"),
        ("tests/contract/test_reader.py::test_a", "contract"),
        ("tests/integration/secure/test_users.py::test_a", "secure"),
        ("tests/e2e/test_drain.py::test_a[1]", "tests/e2e/test_drain.py"),
        (
            "tests/browser/test_swagger.py::test_a[broker]",
            "tests/browser/test_swagger.py::test_a[broker]",
        ),
        ("tests/browser/test_console_topics.py::test_a[1]", "tests/browser/test_console_topics.py"),
    ],
)
def test_scopes(node_id: str, scope: str) -> None:
    assert scope_of(node_id) == scope


def test_the_tests_of_one_file_run_in_one_process(tmp_path: Path) -> None:
    files = [tmp_path / f"test_{number}.py" for number in range(4)]
    for file in files:
        file.write_text(SAYS_WHERE_IT_RUNS)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", "--basetemp=base"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "xdist.plugin,tests.support.distribution",
        },
        check=True,
    )
    processes = defaultdict(set)
    for line in (tmp_path / "ran").read_text().splitlines():
        file_name, process = line.split()
        processes[file_name].add(process)
    assert sorted(processes) == [file.name for file in files]
    assert all(len(found) == 1 for found in processes.values()), processes
    assert len(set.union(*processes.values())) == 2

"""The notebook of examples/ runs from its first cell to its last, as Jupyter runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leadline_cli.java_runtime import spark_java_home
from tests.spark.live import Live
from tests.spark.sessions import SETTINGS

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples/notebook/orders.ipynb"

START = ("--master", "local[2]", "--driver-java-options", "-XX:TieredStopAtLevel=1")
"""A short program does not pay for the slower, better one of Java's two compilers."""


@pytest.mark.timeout(600)
def test_the_notebook_runs_and_shows_the_records(live: Live, tmp_path: Path) -> None:
    conf = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [
            Path(sys.executable).with_name("jupyter-execute"),
            *("--timeout=400", "--startup_timeout=120", "--output", tmp_path / "done.ipynb"),
            NOTEBOOK,
        ],
        env={
            **os.environ,
            "LEADLINE_BOOTSTRAP": live.bootstrap,
            "JAVA_HOME": str(spark_java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join([*START, *conf, "pyspark-shell"]),
            **{f"{name}_DIR": str(tmp_path) for name in ("JUPYTER_CONFIG", "JUPYTER_DATA")},
            **{name: str(tmp_path) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR")},
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    customers, bars, streamed, partitions, audit = shown(tmp_path / "done.ipynb")
    assert sum(int(row[1]) for row in customers) == 300
    assert len(bars) == len(customers) == 7
    assert all(set(row[1]) == {"▇"} for row in bars)
    assert sum(int(row[1]) for row in streamed) == 300
    assert sorted(row[0] for row in partitions) == ["0", "1", "2"]
    assert "topic_created" in [row[0] for row in audit]


def shown(notebook: Path) -> list[list[list[str]]]:
    """Return the rows of the tables that the cells have printed."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert [one for one in outputs if one["output_type"] == "error"] == []
    printed = "".join("".join(one["text"]) for one in outputs if one.get("name") == "stdout")
    tables = [line.split("\n") for line in printed.split("\n\n") if "+--" in line]
    lines = [[line for line in table if line.startswith("|")][1:] for table in tables]
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in rows] for rows in lines]

"""The notebook of examples/ runs from its first cell to its last, as Jupyter runs it."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from leadline_cli.java_runtime import spark_java_home
from tests.spark.live import Live
from tests.spark.sessions import SETTINGS

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples/notebook/orders.ipynb"


def test_the_notebook_runs_and_shows_the_records(live: Live, tmp_path: Path) -> None:
    conf = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [
            Path(sys.executable).with_name("jupyter-execute"),
            *("--timeout=240", "--startup_timeout=120", "--output", tmp_path / "done.ipynb"),
            NOTEBOOK,
        ],
        env={
            **os.environ,
            "LEADLINE_BOOTSTRAP": live.bootstrap,
            "JAVA_HOME": str(spark_java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join(["--master", "local[2]", *conf, "pyspark-shell"]),
            **{f"{name}_DIR": str(tmp_path) for name in ("JUPYTER_CONFIG", "JUPYTER_DATA")},
            **{name: str(tmp_path) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR")},
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    customers, bars, streamed, partitions, audit = shown(tmp_path / "done.ipynb")
    assert sum(int(row[2]) for row in rows(customers)) == 300
    assert "linear-gradient" in bars
    assert sum(int(row[2]) for row in rows(streamed)) == 300
    assert [row[1] for row in rows(partitions)] == ["0", "1", "2"]
    assert "topic_created" in [row[1] for row in rows(audit)]


def shown(notebook: Path) -> list[str]:
    """Return the tables that the cells have shown, as HTML."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert [one for one in outputs if one["output_type"] == "error"] == []
    return ["".join(one["data"]["text/html"]) for one in outputs if "text/html" in one["data"]]


def rows(table: str) -> list[list[str]]:
    """Return the cells of the rows of a table, the index first."""
    lines = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    found = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL) for line in lines]
    return [[html.unescape(cell) for cell in line] for line in found if line]

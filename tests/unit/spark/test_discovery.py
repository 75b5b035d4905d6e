"""How Spark finds the source by itself: it imports whatever is called `pyspark_*`, and all or none.

The lookup is Spark's own code, run here as Spark runs it, without the Java side.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LOOKUP = """
import io
from pyspark.sql.worker.lookup_data_sources import _main
found = io.BytesIO()
_main(io.BytesIO(), found)
print(b"leadline" in found.getvalue())
"""


def look_up(*folders: Path) -> subprocess.CompletedProcess[str]:
    path = ":".join(str(folder) for folder in folders)
    return subprocess.run(
        [sys.executable, "-c", LOOKUP],
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_source_is_found_where_the_package_is_installed() -> None:
    done = look_up()

    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr


def test_a_broken_neighbour_hides_every_source(tmp_path: Path) -> None:
    """Which is why docs/spark.md says to look for one, and how to register by hand."""
    (tmp_path / "pyspark_broken.py").write_text("import nothing_of_this_name\n")

    done = look_up(tmp_path)

    assert done.returncode != 0
    assert "nothing_of_this_name" in done.stderr


def test_importing_the_package_starts_no_spark() -> None:
    """Jobs that only look at files, and errors that are unpickled, need none of it."""
    program = "import sys, leadline_spark; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "False"

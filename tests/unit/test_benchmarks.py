"""Every benchmark starts as its documentation says: `python benchmarks/NAME.py`, from anywhere."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_what_a_benchmark_imports_is_found(name: str, tmp_path: Path) -> None:
    program = f"import sys; sys.path[0] = {str(FOLDER)!r}; import {name}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

"""Every benchmark starts as its documentation says: `python benchmarks/NAME.py`, from anywhere."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
IMPORT_EACH = """
import sys, traceback
sys.path[0], *names = sys.argv[1:]
for name in names:
    try:
        __import__(name)
    except BaseException:
        print(name, traceback.format_exc())
"""


def imported(folder: Path, names: list[str], at: Path) -> str:
    """Import modules of a folder in a process that runs in `at`; return what it printed."""
    words = [sys.executable, "-c", IMPORT_EACH, str(folder), *names]
    done = subprocess.run(words, cwd=at, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_what_benchmarks_import_is_found(tmp_path: Path) -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    assert len(names) > 20
    assert imported(FOLDER, names, tmp_path) == ""


def test_the_check_itself_sees_an_import_that_fails(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import nowhere\n", encoding="utf-8")
    (tmp_path / "right.py").write_text("import sys\n", encoding="utf-8")
    shown = imported(tmp_path, ["wrong", "right"], tmp_path)
    assert shown.startswith("wrong Traceback")
    assert "right" not in shown

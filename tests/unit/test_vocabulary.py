"""The lint step's word list (typos.toml) finds a replaced word wherever it is written."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def check(file: Path) -> tuple[int, str]:
    """Run typos on one file with the project's configuration; (exit code, report)."""
    command = [Path(sys.executable).with_name("typos"), "--config", ROOT / "typos.toml", file]
    done = subprocess.run(
        [*map(str, command), "--format", "brief"], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param("def reign() -> None: ...", id="function"),
        pytest.param("class TaskKeeper: ...", id="part-of-a-class-name"),
        pytest.param("self._historian = None", id="attribute"),
        pytest.param("# Upkeep of the cluster", id="comment"),
        pytest.param('"""The leader was deposed."""', id="docstring"),
        pytest.param('raise ValueError("an untold number of ailing replicas")', id="message"),
        pytest.param("leaders_astray = 3", id="variable"),
    ],
)
def test_a_planted_word_fails_the_check(planted: str, tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(planted + "\n", encoding="utf-8")
    code, report = check(file)
    assert code == 2
    assert "planted.py" in report


def test_standard_terms_pass(tmp_path: Path) -> None:
    file = tmp_path / "fine.py"
    file.write_text('"""ZooKeeperLeader: the leader was fenced."""\n', encoding="utf-8")
    assert check(file) == (0, "")

"""What a killed backup leaves goes with the next one; what a running one has stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leadline_cli.backup.workspace import workspace

MAKING = """
import sys
from pathlib import Path
from leadline_cli.backup.workspace import workspace

with workspace(Path(sys.argv[1])) as directory:
    (directory / "draft").write_bytes(b"a part")
    print(directory, flush=True)
    sys.stdin.read()
"""


def left(parent: Path) -> list[str]:
    return sorted(one.name for one in parent.iterdir())


def test_it_is_private_and_goes_at_the_end(tmp_path: Path) -> None:
    with workspace(tmp_path) as directory:
        assert directory.parent == tmp_path
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "draft").touch()
    assert left(tmp_path) == []
    with pytest.raises(ValueError, match="a failure"), workspace(tmp_path):
        raise ValueError("a failure")
    assert left(tmp_path) == []


def test_one_of_a_killed_process_is_removed_and_one_of_a_running_process_is_not(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKING, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as making:
        assert making.stdout is not None
        used = Path(making.stdout.readline().strip())
        with workspace(tmp_path):
            assert (used / "draft").read_bytes() == b"a part"
        assert left(tmp_path) == [used.name]
        making.kill()
    with workspace(tmp_path) as directory:
        assert left(tmp_path) == [directory.name]
    assert left(tmp_path) == []


def test_what_is_no_backups_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "lock").touch()
    (tmp_path / ".backup-link").symlink_to(kept)
    (tmp_path / ".backup-file").touch()
    (tmp_path / ".backup-begun").mkdir()  # its process has not locked it yet
    before = left(tmp_path)
    with workspace(tmp_path):
        assert left(kept) == ["lock"]
    assert left(tmp_path) == before

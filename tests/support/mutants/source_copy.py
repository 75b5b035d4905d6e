"""A copy of the source tree in which mutants are planted one at a time, and pytest runs.

The copy is imported instead of the packages that are installed in the environment, because
PYTHONPATH comes before them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.mutants.mutant import ROOT, Mutant

PACKAGES: Final = (
    "libs/common",
    "libs/client",
    "services/controller",
    "services/broker",
    "services/coordinator",
    "pipeline",
    "cli",
    ".",
)
"""The folders that contain the packages, and the root, which contains `tests`."""
PYTEST: Final = ("-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not soak")
_SHOWN_LINES: Final = 30


@dataclass(frozen=True, slots=True)
class TestRun:
    """How a run of pytest ended; `exit_code` is None if it took longer than its limit."""

    __test__ = False  # Not a class of tests, in spite of its name.

    exit_code: int | None
    output: str

    @property
    def tail(self) -> str:
        """The last lines of the output."""
        return "\n".join(self.output.splitlines()[-_SHOWN_LINES:])


@dataclass(frozen=True, slots=True)
class SourceCopy:
    """A copy of all files of the source tree below `root`."""

    root: Path

    @classmethod
    def made_at(cls, root: Path) -> SourceCopy:
        """Copy the files that git tracks or would add, so that new tests count at once."""
        git = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
        command = [*git, "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, listing.stdout.split("\0")):
            source, target = ROOT / name, root / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        return cls(root)

    @contextmanager
    def with_mutant(self, mutant: Mutant) -> Iterator[None]:
        """Plant a mutant, and take it out again.

        Bytecode is recognized as stale by the time and size of its source. Both may be the same
        for a mutant, so it is deleted.
        """
        path = self.root / mutant.file
        text = path.read_text(encoding="utf-8")
        try:
            path.write_text(mutant.applied_to(text), encoding="utf-8")
            _remove_bytecode(path)
            yield
        finally:
            path.write_text(text, encoding="utf-8")
            _remove_bytecode(path)
            # An example that failed with this mutant must not be tried first with the next one.
            shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)

    def run_tests(self, tests: Sequence[str], limit_s: float) -> TestRun:
        """Run tests until the first failure, in a process group that ends after `limit_s`."""
        process = subprocess.Popen(
            [sys.executable, *PYTEST, *tests],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": self._python_path()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return TestRun(None, output)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return TestRun(process.returncode, output)

    def _python_path(self) -> str:
        return os.pathsep.join(str(self.root / package) for package in PACKAGES)


def _remove_bytecode(path: Path) -> None:
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

"""The client's core works where nothing but Python is installed, as on Spark's executors."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
IMPORT_ALL = "import importlib, sys; list(map(importlib.import_module, sys.argv[1:]))"


def core_modules() -> list[str]:
    """The modules that the import rule for the client's core names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [modules] = [one["source_modules"] for one in contracts if one["id"] == "client-core"]
    return list(modules)


def imported_without_packages(*modules: str) -> subprocess.CompletedProcess[str]:
    """Import modules in an interpreter that sees the standard library and this package alone."""
    program = f"import sys; sys.path.append({str(ROOT / 'libs/client')!r}); {IMPORT_ALL}"
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", program, *modules]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_core_imports_only_the_standard_library() -> None:
    done = imported_without_packages(*core_modules())

    assert done.returncode == 0, done.stderr


def test_the_interpreter_of_these_tests_sees_no_packages() -> None:
    done = imported_without_packages("leadline_client.http_transport")

    assert "No module named 'httptools'" in done.stderr


def test_the_package_requires_no_other() -> None:
    settings = tomllib.loads((ROOT / "libs/client/pyproject.toml").read_text(encoding="utf-8"))

    assert settings["project"]["dependencies"] == []

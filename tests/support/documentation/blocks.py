"""The fenced blocks of Markdown pages.

A block that no test can run has a comment on the line before it, which says why:

    <!-- not run: it fetches from a package registry -->
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
    ROOT / "examples/README.md",
]
LANGUAGES = ("sh", "python", "ts", "json", "text")
PROGRAMS = ("leadline", "make", "python", "pip", "curl", "docker", "kubectl", "systemctl", "scp")
"""With these a command begins: a block of commands is `sh`, not `text`."""
_BLOCK = re.compile(r"^```(?P<language>.*)\n(?P<text>(?:.*\n)*?)```$", re.MULTILINE)
_REASON = re.compile(r"<!-- not run: (?P<reason>.+) -->\n\Z")


@dataclass(frozen=True)
class Block:
    """A block of a page; `reason` says why it is not run, None if it is."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page, in their order."""
    content = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(content):
        before = content[: found.start()]
        marked = _REASON.search(before)
        yield Block(
            page.relative_to(ROOT).as_posix(),
            before.count("\n") + 1,
            found["language"],
            found["text"],
            marked["reason"] if marked else None,
        )


def begins_with_a_program(block: Block) -> bool:
    """Whether the first word of a block is a program, with or without its directory."""
    first, *_ = [*block.text.split(maxsplit=1), ""]
    return first.rpartition("/")[2] in PROGRAMS


def name_of(page: Path) -> str:
    """Return a page's name as a path from docs/, without `.md`: `spark`, or `../README`."""
    name = page.relative_to(ROOT).with_suffix("").as_posix()
    return name.removeprefix("docs/") if name.startswith("docs/") else f"../{name}"


def commands_of(block: Block) -> list[str]:
    """Return the commands of a shell block, each with all of its lines.

    A command ends with the first line with which the shell can parse it.
    """
    commands: list[str] = []
    begun = ""
    for line in block.text.splitlines():
        begun += f"{line}\n"
        if line.endswith("\\") or not _parses(begun):
            continue
        if any(part and not part.startswith("#") for part in begun.split("\n")):
            commands.append(begun.strip())
        begun = ""
    assert not begun, f"{block} ends in the middle of a command: {begun}"
    return commands


def without_comment(command: str) -> str:
    """Return a command of one line without the comment at its end."""
    return re.sub(r"\s+#\s.*$", "", command)


def _parses(text: str) -> bool:
    checked = subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False)
    return checked.returncode == 0

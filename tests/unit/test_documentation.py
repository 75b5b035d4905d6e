"""The pages of docs/ and ARCHITECTURE.md name files and functions that exist.

A path is written as in docs/sources.md: `controller/domain/election.py` is within
`services/controller/leadline_controller/`, and `election.py: elect` names a function there.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SHORT = {
    "client/": "libs/client/leadline_client/",
    "common/": "libs/common/leadline_common/",
    "controller/": "services/controller/leadline_controller/",
    "broker/": "services/broker/leadline_broker/",
    "coordinator/": "services/coordinator/leadline_coordinator/",
}
CODE = re.compile(r"`([\w./]+\.py)(?::\s+(\w+))?`")
SOURCES = [
    path
    for folder in ("libs", "services", "pipeline", "cli", "tests", "scripts", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts
]


def named_in(page: Path) -> list[tuple[str, str]]:
    """The paths that a page names, each with a function or class of it, or with ''."""
    return [(path, name) for path, name in CODE.findall(page.read_text(encoding="utf-8"))]


def found(path: str) -> list[Path]:
    """The files that a path may mean: its end, or its short form."""
    ends = [path] + [long + path.removeprefix(s) for s, long in SHORT.items() if path.startswith(s)]
    return [
        file
        for file in SOURCES
        if any(f"/{file.relative_to(ROOT).as_posix()}".endswith(f"/{end}") for end in ends)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    missing = []
    for path, name in named_in(page):
        files = found(path)
        text = "\n".join(file.read_text(encoding="utf-8") for file in files)
        if not files or (name and not re.search(rf"\b{name}\b", text)):
            missing.append(f"{path}: {name}" if name else path)
    assert not missing


def test_the_check_itself_sees_a_missing_function(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`controller/domain/election.py: elect` `domain/nowhere.py`", encoding="utf-8")
    assert named_in(page) == [
        ("controller/domain/election.py", "elect"),
        ("domain/nowhere.py", ""),
    ]
    assert found("controller/domain/election.py")
    assert not found("domain/nowhere.py")

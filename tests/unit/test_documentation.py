"""The pages of docs/ and ARCHITECTURE.md name files and functions that exist.

A path is written as in docs/sources.md: `controller/domain/election.py` is within
`services/controller/leadline_controller/`, and `election.py: elect` names a function there.

Images that they show exist, are small, and have an alternative text.

The table of defects in docs/testing.md has a row for each number in a test's name, and no other.
"""

import re
from collections import defaultdict
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
DEFECT = re.compile(r"\bdef test_((?:defect_\d\d_and_)*defect_\d\d)_")
ROW = re.compile(r"^\| (\d\d) \|.*\|(.*)\|$", re.MULTILINE)
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
MOST_IMAGE_BYTES = 200_000
CODE = re.compile(r"`([\w./]+\.py)(?::\s+(\w+))?`")
SOURCES = {
    f"/{path.relative_to(ROOT).as_posix()}": path
    for folder in ("libs", "services", "pipeline", "cli", "tests", "scripts", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts
}


def named_in(page: Path) -> list[tuple[str, str]]:
    """The paths that a page names, each with a function or class of it, or with ''."""
    return [(path, name) for path, name in CODE.findall(page.read_text(encoding="utf-8"))]


def found(path: str) -> list[Path]:
    """The files that a path may mean: its end, or its short form."""
    ends = [path] + [long + path.removeprefix(s) for s, long in SHORT.items() if path.startswith(s)]
    return [
        file for place, file in SOURCES.items() if any(place.endswith(f"/{end}") for end in ends)
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


def images_of(page: Path) -> list[tuple[str, Path]]:
    """The alternative texts and the files of the images that a page shows."""
    found = IMAGE.findall(page.read_text(encoding="utf-8"))
    return [(text, page.parent / path) for text, path in found if "://" not in path]


def test_the_images_that_pages_show_exist_and_have_an_alternative_text() -> None:
    shown = [image for page in PAGES for image in images_of(page)]
    for text, path in shown:
        assert path.is_file(), path
        assert path.stat().st_size < MOST_IMAGE_BYTES, path
        assert len(text) > 20, f"{path} needs an alternative text"
    assert {path.resolve() for _, path in shown} == set((ROOT / "docs/images").iterdir())


def defect_tests() -> dict[str, set[str]]:
    """The files within tests/ that have tests of a defect, by its number."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "tests").rglob("test_*.py"):
        for numbers in DEFECT.findall(path.read_text(encoding="utf-8")):
            for number in re.findall(r"\d\d", numbers):
                found[number].add(path.relative_to(ROOT / "tests").as_posix())
    return found


def test_the_table_of_defects_lists_every_number_and_names_files_with_tests_of_it() -> None:
    rows = ROW.findall((ROOT / "docs/testing.md").read_text(encoding="utf-8"))
    tests = defect_tests()
    assert [number for number, _ in rows] == sorted(tests)
    named = {number: {path for path, _ in CODE.findall(cell)} for number, cell in rows}
    assert all(named.values())
    assert not {number: left for number in named if (left := named[number] - tests[number])}


def functions_named_in(text: str) -> list[tuple[str, str]]:
    """The tests that a page names by file and function, as `unit/test_a.py::test_b`."""
    return re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)


def test_the_tests_that_pages_name_by_function_exist() -> None:
    named = [
        found for page in PAGES for found in functions_named_in(page.read_text(encoding="utf-8"))
    ]
    assert named
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"\bdef {name}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_every_feature_beyond_other_interfaces_has_a_test() -> None:
    text = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    section = text.partition("## Features that other HTTP interfaces")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 15
    assert [row for row in rows if not functions_named_in(row)] == []


def test_every_name_with_a_defect_has_the_form_that_finds_it() -> None:
    words = re.compile(r"\bdef (test_\w*defect_?\d\w*)")
    named = [
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in words.findall(path.read_text(encoding="utf-8"))
    ]
    assert named
    assert [name for name in named if not DEFECT.match(f"def {name}")] == []

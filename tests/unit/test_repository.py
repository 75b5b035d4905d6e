"""Rules of the repository itself: what may be committed, and that its parts agree."""

import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")

# Every machine brings its own registry, so no file may choose one. (Written so that the patterns
# do not match themselves.)
REGISTRIES = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs|registry\.yarnpkg|/simple[/]|index[-_]url\s*="
    r"|UV_(DEFAULT_)?INDEX(_URL)?\s*=\s*\S*:|PIP_(EXTRA_)?INDEX_URL\s*=",
    re.IGNORECASE,
)
MODULE_LINES = 400
FUNCTION_LINES = 60


@cache
def tracked(suffix: str = "") -> list[Path]:
    """Return the files that git tracks or would add, with this suffix."""
    # The checkout may belong to another account than the one that tests it.
    git = ["git", "-c", "safe.directory=*"]
    command = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in listing.split("\0") if name]
    return [path for path in paths if path.is_file() and path.name.endswith(suffix)]


def sources() -> list[Path]:
    """Return the modules of the product, leaving out tests, benchmarks and scripts."""
    return [path for path in tracked(".py") if path.relative_to(ROOT).parts[0] in PRODUCT]


PRODUCT = {"libs", "services", "pipeline", "cli"}


def toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def locked() -> dict[str, str]:
    """Return the locked versions by canonical name; pandas has a lock of its own."""
    both = LOCK + (ROOT / "tests/support/pandas/requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", both, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in pins}


def wanted() -> list[tuple[str, Requirement]]:
    """Return (who asks, requirement) for everything that the project and its members ask for."""
    found = []
    for path in tracked("pyproject.toml"):
        settings = toml(path)
        project = settings["project"]
        lists = [project["dependencies"], *settings.get("dependency-groups", {}).values()]
        lists += project.get("optional-dependencies", {}).values()
        found += [(project["name"], Requirement(text)) for texts in lists for text in texts]
    return [(asker, need) for asker, need in found if not need.name.startswith("leadline-")]


def test_no_file_names_a_package_registry() -> None:
    texts = {name(path): path.read_bytes().decode("utf-8", "replace") for path in tracked()}

    found = {file: match[0] for file, text in texts.items() if (match := REGISTRIES.search(text))}

    assert not found


@pytest.mark.parametrize("lock", tracked("requirements.lock"), ids=name)
def test_a_lock_holds_versions_and_hashes_only(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    pins = [block for block in re.split(r"\n(?=\S)", text.strip()) if block]

    assert pins
    assert [pin for pin in pins if not re.match(r"[a-z0-9._-]+==\S+.* \\\n", pin)] == []
    assert [pin for pin in pins if "--hash=sha256:" not in pin] == []
    assert "://" not in text


@pytest.mark.parametrize("need", wanted(), ids=lambda need: f"{need[0]}-{need[1].name}")
def test_every_dependency_is_locked(need: tuple[str, Requirement]) -> None:
    _, requirement = need

    assert requirement.specifier.contains(locked()[canonicalize_name(requirement.name)])


def test_the_resolver_s_own_lock_is_not_committed() -> None:
    assert not [path for path in tracked(".lock") if path.name != "requirements.lock"]


def test_every_package_ships_its_types() -> None:
    packages = [path.parent for path in tracked("pyproject.toml") if path.parent != ROOT]

    missing = [p.name for p in packages if not list(p.glob("leadline_*/py.typed"))]

    assert packages
    assert not missing


def test_every_folder_of_modules_is_a_package() -> None:
    """Without it, two test modules of one name are one module to the type checker."""
    folders = {path.parent for path in tracked(".py")} - {ROOT / "benchmarks", ROOT / "scripts"}

    assert not sorted(name(f) for f in folders if not (f / "__init__.py").exists())


def has_logic(path: Path) -> bool:
    """Tell whether a module holds more than its docstring, imports and plain names."""
    plain = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.AnnAssign)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return not all(isinstance(statement, plain) for statement in tree.body)


def test_no_logic_in_package_files() -> None:
    assert not [name(path) for path in tracked("__init__.py") if has_logic(path)]


def test_modules_and_functions_stay_small() -> None:
    large = []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MODULE_LINES:
            large.append(f"{name(path)}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES:
                    large.append(f"{name(path)}: {node.name}: {lines} lines")

    assert not large


def test_every_silenced_finding_has_its_code_and_a_reason() -> None:
    silenced = re.compile(r"#\s*(type:\s*ignore|noqa)(?P<rest>.*)$", re.MULTILINE)
    explained = re.compile(r"(\[[a-z-]+(, ?[a-z-]+)*\]|: ?[A-Z]+\d+(, ?[A-Z]+\d+)*)\W+\w+.*\s\w+")
    found = [
        f"{name(path)}: {match[0]}"
        for path in tracked(".py")
        if path != Path(__file__)
        for match in silenced.finditer(path.read_text(encoding="utf-8"))
        if not explained.match(match["rest"])
    ]

    assert not found


def test_types_of_messages_are_prepared_on_import() -> None:
    """Msgspec crashes if two threads use a type for the first time at the same moment."""
    late = [
        f"{name(path)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"msgspec.json.decode", "msgspec.msgpack.decode"}
        and any(one.arg == "type" for one in node.keywords)
    ]
    assert late == [], "make a Decoder of the type when the module is imported"


def test_make_help_lists_every_documented_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    documented = re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)

    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert [line.split()[1] for line in shown.splitlines()] == documented
    assert {"setup", "demo", "up", "test", "check", "openapi", "lock"} <= set(documented)

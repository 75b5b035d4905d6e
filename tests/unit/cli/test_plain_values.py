"""A command gets the same values for its parameters whether or not pydantic has converted them."""

from __future__ import annotations

import sys
from enum import StrEnum
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal
from unittest.mock import patch

import pytest
import typer
from typer.exceptions import TyperException

from leadline_cli.plain_values import convert_without_pydantic

COMMANDS = [
    "",
    "a",
    "a b",
    "--text x a --text y",
    "--text=",
    "--number 7",
    "--number=-7",
    "--number 007",
    "--number 1_000",
    "--number seven",
    f"--number {'9' * 19}",
    f"--number {'9' * 5_000}",
    "--number \u0663",
    "--few 3",
    "--few 0",
    "--few 4",
    "--few few",
    "--share 0.25 --share x",
    "--folder .",
    "--folder nowhere/at/all",
    f"--folder {'x' * 5_000}",
    "--folder=",
    "--file here.txt",
    "--file nowhere.txt",
    "--file .",
    "--real .",
    "--opened here.txt",
    "--opened nowhere.txt",
    "--opened .",
    "--opened=",
    "--opened -",
    "--tag one --tag two",
    "--tag=",
    "--twice 4",
    "--twice four",
    "--colour red",
    "--colour RED",
    "--colour blue",
    "--side left",
    "--side Left",
    "--side top",
    "--flag",
    "--unknown",
    "--text",
]


class Colour(StrEnum):
    RED = "red"


def doubled(text: str) -> int:
    return 2 * int(text)


def group_and_its_calls() -> tuple[Any, list[dict[str, Any]]]:
    """Return a group whose command has parameters of many kinds, and what it is called with."""
    app = typer.Typer(add_completion=False)
    calls: list[dict[str, Any]] = []

    @app.command()
    def run(
        names: Annotated[list[str] | None, typer.Argument()] = None,
        *,
        text: Annotated[str | None, typer.Option(envvar="SOME_TEXT")] = None,
        number: int | None = None,
        few: Annotated[int, typer.Option(min=1, max=3)] = 2,
        share: float = 0.5,
        folder: Path = Path("here"),
        file: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
        opened: Annotated[typer.FileBinaryRead | None, typer.Option()] = None,
        real: Annotated[Path | None, typer.Option(resolve_path=True)] = None,
        tag: Annotated[list[str] | None, typer.Option()] = None,
        twice: Annotated[int | None, typer.Option(parser=doubled)] = None,
        colour: Colour = Colour.RED,
        side: Annotated[Literal["left", "right"], typer.Option()] = "right",
        flag: bool = False,
    ) -> None:
        values = {name: one for name, one in locals().items() if one is not calls}
        calls.append(values | {"opened": opened and opened.read()})

    @app.command()
    def other(name: str) -> None:
        calls.append({"name": name})

    return typer.main.get_command(app), calls


def outcome(command: str, *, plain: bool) -> tuple[list[dict[str, Any]], str]:
    """Return the calls that a command line makes, with the types of values, and its error."""
    group, calls = group_and_its_calls()
    if plain:
        convert_without_pydantic(group)
    stdin = TextIOWrapper(BytesIO(b"from a pipe"))
    try:
        with patch.object(sys, "stdin", stdin):
            group.main(["run", *command.split()], standalone_mode=False)
    except TyperException as error:
        return calls, error.format_message()
    return [{name: (type(one), one) for name, one in call.items()} for call in calls], ""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.txt").write_text("content")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_values_and_errors_are_those_of_typer(command: str) -> None:
    assert outcome(command, plain=True) == outcome(command, plain=False)


def test_a_variable_is_taken_as_an_option_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TEXT", "from outside")

    (call,), _ = outcome("", plain=True)

    assert call["text"] == (str, "from outside")


def test_a_missing_argument_is_missed() -> None:
    group, calls = group_and_its_calls()
    convert_without_pydantic(group)

    with pytest.raises(TyperException, match="Missing parameter: name"):
        group.main(["other"], standalone_mode=False)
    assert calls == []

"""Output is printed as it is, even if it looks like markup or emoji to Rich."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from leadline_cli.output import advice_for, print_json, print_table, show_table, table_of
from leadline_client.errors import InvalidRequest, LogTruncated, PolicyViolation, UnknownTopic

STRANGE = ["env:key:prod", "orders-[a-z]+", "[/red]", "[bold]not bold"]


def test_json_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(STRANGE)
    assert json.loads(capsys.readouterr().out) == STRANGE


@pytest.mark.parametrize("text", STRANGE)
def test_a_table_shows_titles_columns_and_cells_as_they_are(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(text, [text], [[text]])
    assert capsys.readouterr().out.count(text) == 3


URL = "http://broker-with-a-long-name.example.org:9001"
ROWS = [(URL, "run `leadline brokers restart 2` and look again", "x" * 20)] * 2


def rendered(monkeypatch: pytest.MonkeyPatch, *, width: int, terminal: bool) -> list[str]:
    text = io.StringIO()
    output = Console(
        file=text,
        width=width,
        force_terminal=terminal,
        soft_wrap=True,
        markup=False,
        color_system=None,
    )
    monkeypatch.setattr("leadline_cli.output.console", lambda: output)
    show_table(table_of("Some", ("address", "advice", "name"), ROWS))
    return text.getvalue().splitlines()


def test_defect_22_a_pipe_gets_whole_rows_at_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = rendered(monkeypatch, width=80, terminal=False)
    assert sum(all(cell in line for cell in ROWS[0]) for line in lines) == 2


@pytest.mark.parametrize("width", [20, 60, 100])
def test_defect_22_a_terminal_breaks_no_word(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = rendered(monkeypatch, width=width, terminal=True)
    assert sum(URL in line for line in lines) == 2
    assert sum("x" * 20 in line for line in lines) == 2
    assert any("`leadline" in line for line in lines)


def test_a_table_is_no_wider_than_its_content(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(map(len, rendered(monkeypatch, width=300, terminal=True))) < 130


def test_defect_22_advice_says_something_or_is_left_out() -> None:
    assert advice_for(UnknownTopic("")) is not None
    assert "groups reset" in (advice_for(LogTruncated("")) or ""), "not that of its base class"
    assert advice_for(InvalidRequest("")) is None
    assert advice_for(PolicyViolation("")) is None

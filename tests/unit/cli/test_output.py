"""Output is printed as it is, even if it looks like markup or emoji to Rich."""

from __future__ import annotations

import json

import pytest

from leadline_cli.output import print_json, print_table

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

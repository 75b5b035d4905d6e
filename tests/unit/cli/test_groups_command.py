"""`leadline groups reset` before anything is sent: valid targets, and refused ones."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from leadline_cli.main import app


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "give either --to or --offset"),
        (("--to", "latest", "--offset", "t-0=1"), "give either --to or --offset"),
        (("--to", "yesterday"), "ISO 8601 or Unix ms"),
        (("--offset", "t=1"), "is written TOPIC-0=42"),
        (("--offset", "t-0=-1"), "is written TOPIC-0=42"),
        (("--offset", "t-²=1"), "is written TOPIC-0=42"),
    ],
)
def test_a_reset_to_nowhere_is_a_usage_error(words: tuple[str, ...], complaint: str) -> None:
    ended = CliRunner().invoke(
        app, ["groups", "reset", "g", "--yes", "--bootstrap", "http://127.0.0.1:1", *words]
    )
    assert ended.exit_code == 2
    assert complaint in " ".join(ended.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "words",
    [
        ("groups", "reset", "g", "--to", "latest"),
        ("groups", "delete", "g"),
        ("topics", "delete", "t"),
        ("partitions", "remove", "t", "3"),
    ],
)
def test_what_cannot_be_undone_is_asked_for_first(words: tuple[str, ...]) -> None:
    words = (*words, "--bootstrap", "http://127.0.0.1:1")
    refused = CliRunner().invoke(app, list(words), input="n\n")
    assert refused.exit_code == 1
    assert "[y/N]" in refused.output
    assert "error" not in refused.stderr.lower().replace("aborted", "")


def test_partitions_and_offsets_are_the_groups_to_choose() -> None:
    for words in (("--partition", "1"), ("--from", "7")):
        ended = CliRunner().invoke(
            app, ["consume", "t", "--group", "g", "--bootstrap", "http://127.0.0.1:1", *words]
        )
        assert ended.exit_code == 2
        assert "the group chooses" in " ".join(ended.stderr.replace("│", " ").split())

"""Without a browser its tests are left out in so many words, but never under CI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.browser import chromium


@pytest.fixture
def no_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Chromium, and a user who cannot install it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.usefixtures("no_browser")
def test_the_tests_that_need_a_browser_are_left_out_visibly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chromium.main()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"LEFT OUT, for want of a browser: {chromium.TESTS}" in shown.err
    assert chromium.INSTALL in shown.err


@pytest.mark.usefixtures("no_browser")
def test_under_ci_they_are_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    chromium.main()
    assert capsys.readouterr().out == f"{chromium.TESTS}\n"


@pytest.mark.usefixtures("no_browser")
def test_and_then_fail_with_what_to_do() -> None:
    with pytest.raises(chromium.NoBrowserError, match="apt-get install"):
        chromium.chromium()


def test_a_browser_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / chromium.NAMES[1]
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium.chromium() == str(program)

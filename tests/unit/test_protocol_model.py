"""The model of the replication protocol: it has no violation, and lacking any rule it has one."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.protocol_model import __main__ as command
from tests.protocol_model import tools
from tests.protocol_model.rules import COMPLETE, CRASHING, REMOVALS, Bounds
from tests.protocol_model.search import MODEL, SearchFailedError, outcome_of, search
from tests.support import left_out

PAGE = Path(__file__).resolve().parents[2] / "docs/protocol.md"
REPORT = """\
State-vector 148 byte, depth reached 24, errors: 0
    69761 states, stored
   353128 transitions (= stored+matched)
  143.918\ttotal actual memory usage
"""


@pytest.fixture(scope="module")
def model_checker() -> None:
    """Spin and GCC; without them these tests fail under CI and are skipped elsewhere."""
    try:
        tools.require()
    except tools.NoModelCheckerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{left_out.MARK}: {error}")


@pytest.fixture
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Spin and GCC, and a user who cannot install them."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.mark.usefixtures("model_checker")
@pytest.mark.parametrize("bounds", COMPLETE, ids=str)
def test_with_all_rules_there_is_no_violation(bounds: Bounds) -> None:
    outcome = search(bounds)
    assert outcome.invariant == "", "\n".join(outcome.steps)


@pytest.mark.usefixtures("model_checker")
@pytest.mark.parametrize("rule", REMOVALS)
def test_without_a_rule_its_violation_is_found(rule: str) -> None:
    removal = REMOVALS[rule]
    outcome = search(removal.bounds, rule)
    assert removal.violates in re.findall(r"I\d+", outcome.invariant)
    assert re.search(removal.because, "\n".join(outcome.steps), re.MULTILINE), outcome.steps


@pytest.mark.usefixtures("model_checker")
@pytest.mark.parametrize(
    ("invariant", "bounds", "old", "new"),
    [
        pytest.param(
            "I5", Bounds(1, 1, 0, 0), "sent_hw = b[l].hw\n", "sent_hw = b[l].end\n", id="I5-hw"
        ),
        pytest.param(
            "I6", Bounds(2, 1, 0, 0), ":: grant[g].leader == r ->", ":: r < N ->", id="I6-leader"
        ),
        pytest.param("I6", Bounds(2, 2, 0, 0), "= b[l].epoch;", "= 4 - b[l].epoch;", id="I6-log"),
        pytest.param(
            "I8",
            Bounds(1, 2, 0, 1),
            "(sent_hw < b[f].end -> sent_hw : b[f].end)",
            "sent_hw",
            id="I8-uncapped",
        ),
        pytest.param(
            "I11", Bounds(1, 1, 0, 1), "f != l && b[l].role", "b[l].role", id="I11-isr-without"
        ),
    ],
)
def test_every_other_invariant_can_be_violated(
    invariant: str, bounds: Bounds, old: str, new: str
) -> None:
    model = MODEL.read_text(encoding="utf-8")
    assert model.count(old) == 1
    assert search(bounds, model=model.replace(old, new)).invariant == invariant


def test_where_a_violation_is_found_all_rules_together_are_searched_too() -> None:
    assert {removal.bounds for removal in REMOVALS.values()} <= set(COMPLETE)


def test_each_rule_that_the_model_can_be_without_is_searched_and_documented() -> None:
    switches = set(re.findall(r"WITHOUT_(R\d+)", MODEL.read_text(encoding="utf-8")))
    rows = re.findall(r"^\| `--off (R\d+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert switches == set(REMOVALS) == set(rows)


@pytest.mark.usefixtures("model_checker")
def test_the_command_prints_the_steps_of_a_violation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["model", "--off", "R9"])
    assert command.main() == 1
    shown = capsys.readouterr().out
    assert f"searching: {CRASHING}, without R9\nI3 is violated after these steps:\n   1  " in shown
    assert "broker 0 takes the role of the leader of epoch 1, with the ISR {0, 1, 2}" in shown
    assert re.search(r"^[\d,]+ states, [\d,]+ transitions, depth 11, ", shown, re.MULTILINE)


@pytest.mark.usefixtures("no_tools")
def test_without_spin_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["model"])
    assert command.main() == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        f"spin and gcc not found; install Spin and GCC, on Debian as root: {tools.INSTALL}\n"
    )


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(f"Warning: Search not completed\n{REPORT}", id="ended-early"),
        pytest.param("pan: reached -DMEMLIM bound\n", id="out-of-memory"),
        pytest.param(REPORT.replace("69761 states, stored", ""), id="unreadable"),
    ],
)
def test_a_search_that_did_not_end_is_no_proof(report: str) -> None:
    assert outcome_of(REPORT, "", "", 1.0).states == 69761
    with pytest.raises(SearchFailedError):
        outcome_of(report, "", "", 1.0)


def test_skipped_tests_that_lack_a_program_are_named_at_the_end_of_a_run() -> None:
    def skipped(why: str) -> pytest.TestReport:
        return pytest.TestReport(
            nodeid="t",
            location=("t.py", 1, "t"),
            keywords={},
            outcome="skipped",
            longrepr=("t.py", 1, f"Skipped: {why}"),
            when="setup",
        )

    reports = [skipped("LEFT OUT: no spin"), skipped("LEFT OUT: no spin"), skipped("not today")]
    assert left_out.lines(reports) == ["LEFT OUT (2): no spin"]

"""The list of mutants stays true while the code changes, and outcomes are told apart."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.support.mutants.mutant import ROOT, Mutant, MutantMisplaced, all_mutants
from tests.support.mutants.score import Outcome, Trial, named_by, outcome_of, score_line
from tests.support.mutants.source_copy import SourceCopy, TestRun

MUTANTS = all_mutants()
FEWEST = 60
RULES = {f"R{number}" for number in range(1, 19)}
TIERS = ("tests/unit/", "tests/simulation/", "tests/runtime_simulation/")
NODES = {path for mutant in MUTANTS for path in mutant.tests}


def mutant(old: str = "a < b", new: str = "a > b", tests: tuple[str, ...] = ()) -> Mutant:
    return Mutant(name="m", rule="R1", file="code.py", old=old, new=new, tests=tests)


@cache
def functions(path: str) -> frozenset[str]:
    """Return the names of a module's functions."""
    tree = ast.parse(source(path))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@cache
def source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def meaning(text: str) -> str:
    """Return what is the same for two texts that differ only in form."""
    return ast.dump(ast.parse(text))


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda planted: planted.name)
def test_a_mutant_changes_one_place_of_its_file_into_other_valid_code(planted: Mutant) -> None:
    text = source(planted.file)

    changed = planted.applied_to(text)

    assert ast.dump(ast.parse(changed)) != meaning(text)


def test_names_are_unique() -> None:
    names = [planted.name for planted in MUTANTS]

    assert sorted(names) == sorted(set(names))
    assert len(names) >= FEWEST


def test_every_rule_has_a_mutant() -> None:
    assert not RULES - {planted.rule for planted in MUTANTS}


def test_no_mutant_is_planted_twice() -> None:
    changes = [(planted.file, planted.old, planted.new) for planted in MUTANTS]

    assert len(changes) == len(set(changes))


@pytest.mark.parametrize("node", sorted(NODES))
def test_the_tests_that_a_mutant_names_exist(node: str) -> None:
    path, _, name = node.partition("::")

    assert path.startswith(TIERS)
    assert (ROOT / path).exists()
    assert not name or name.partition("[")[0] in functions(path)


def test_every_mutant_names_tests() -> None:
    assert not [planted.name for planted in MUTANTS if not planted.tests]


@pytest.mark.parametrize("text", ["b < a", "a < b or a < b"])
def test_a_mutant_whose_text_is_not_found_exactly_once_is_refused(text: str) -> None:
    with pytest.raises(MutantMisplaced):
        mutant().applied_to(text)


@pytest.mark.parametrize(
    ("exit_code", "outcome"),
    [
        (0, Outcome.SURVIVED),
        (1, Outcome.KILLED),
        (2, Outcome.INVALID),
        (4, Outcome.INVALID),
        (5, Outcome.INVALID),
        (-9, Outcome.INVALID),
        (None, Outcome.KILLED_BY_LIMIT),
    ],
)
def test_only_failed_tests_and_the_limit_kill(exit_code: int | None, outcome: Outcome) -> None:
    assert outcome_of(TestRun(exit_code, "")) is outcome


def test_a_test_is_not_run_twice_on_the_copy_without_mutants() -> None:
    both = [mutant(tests=("a.py::test_one", "b.py::test_two")), mutant(tests=("a.py",))]

    assert named_by(both) == ["b.py::test_two", "a.py"]


def test_the_score_counts_what_was_killed() -> None:
    outcomes = [Outcome.KILLED, Outcome.KILLED_BY_LIMIT, Outcome.SURVIVED, Outcome.INVALID]

    trials = [Trial(mutant(), outcome, 1.0, "") for outcome in outcomes]

    assert score_line(trials, 9.6) == "2 of 4 killed in 10 s"


def test_a_mutant_is_in_the_copy_while_its_tests_run_and_not_afterwards(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text("a < b\n", encoding="utf-8")
    copy = SourceCopy(tmp_path)

    with copy.with_mutant(mutant()):
        assert code.read_text(encoding="utf-8") == "a > b\n"
    assert code.read_text(encoding="utf-8") == "a < b\n"


def test_tests_run_on_the_copy_and_not_on_the_installed_packages(tmp_path: Path) -> None:
    """A package of the copy has the name of an installed one, and is the one that is imported."""
    package = tmp_path / "libs/client/leadline_client"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").write_text("PLACE = 'copy'\n", encoding="utf-8")
    test = tmp_path / "test_place.py"
    test.write_text(
        "import leadline_client\n\ndef test_place():\n    assert leadline_client.PLACE == 'copy'\n",
        encoding="utf-8",
    )

    assert SourceCopy(tmp_path).run_tests([str(test)], limit_s=120).exit_code == 0


def test_tests_that_do_not_end_are_ended(tmp_path: Path) -> None:
    test = tmp_path / "test_forever.py"
    test.write_text(
        "import threading\n\ndef test_forever():\n    threading.Event().wait()\n",
        encoding="utf-8",
    )

    assert SourceCopy(tmp_path).run_tests([str(test)], limit_s=0.5).exit_code is None

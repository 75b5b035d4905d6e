"""Trying mutants: which of them are killed by the tests that they name, and the score."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.support.mutants.mutant import Mutant
from tests.support.mutants.source_copy import SourceCopy, TestRun

_TESTS_FAILED = 1
_CHECKS = 2
"""How often tests may run without a mutant until they pass: a machine may be busy."""


class Outcome(StrEnum):
    """What the tests made of a mutant; an invalid one cannot be imported, or lacks its tests."""

    KILLED = "killed"
    KILLED_BY_LIMIT = "killed by the time limit"
    SURVIVED = "SURVIVED"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class Trial:
    """One mutant that was tried; `tail` is the end of pytest's output."""

    mutant: Mutant
    outcome: Outcome
    seconds: float
    tail: str

    @property
    def is_killed(self) -> bool:
        """Whether the tests noticed the mutant."""
        return self.outcome in {Outcome.KILLED, Outcome.KILLED_BY_LIMIT}


class TestsFail(Exception):
    """Tests that should kill mutants fail without any."""

    __test__ = False  # Not a class of tests, in spite of its name.


def outcome_of(run: TestRun) -> Outcome:
    """Tell what a run of the tests says about the mutant that was planted."""
    if run.exit_code is None:
        return Outcome.KILLED_BY_LIMIT
    if run.exit_code == _TESTS_FAILED:
        return Outcome.KILLED
    return Outcome.SURVIVED if run.exit_code == 0 else Outcome.INVALID


def named_by(mutants: Iterable[Mutant]) -> list[str]:
    """Return the tests of all these mutants, without those that a named file includes."""
    named = dict.fromkeys(test for mutant in mutants for test in mutant.tests)
    return [test for test in named if "::" not in test or test.partition("::")[0] not in named]


def check_tests(copy: SourceCopy, mutants: Sequence[Mutant], limit_s: float) -> None:
    """Run the tests of all these mutants on the copy as it is.

    Raises:
        TestsFail: one fails, so that its failure with a mutant would prove nothing.

    """
    runs = (copy.run_tests(named_by(mutants), limit_s) for _ in range(_CHECKS))
    failed = list(takewhile(lambda run: run.exit_code != 0, runs))
    if len(failed) == _CHECKS:
        raise TestsFail(f"the tests fail without any mutant:\n{failed[-1].tail}")


def try_mutant(copy: SourceCopy, mutant: Mutant, limit_s: float) -> Trial:
    """Plant a mutant and run its tests."""
    started = time.monotonic()
    with copy.with_mutant(mutant):
        run = copy.run_tests(mutant.tests, limit_s)
    return Trial(mutant, outcome_of(run), time.monotonic() - started, run.tail)


def try_all(
    mutants: Sequence[Mutant], jobs: int, limit_s: float, report: Callable[[Trial], None]
) -> list[Trial]:
    """Try mutants, `jobs` at a time, each job in a copy of its own; `report` each as it ends.

    Raises:
        TestsFail: see `check_tests`.

    """
    with TemporaryDirectory(prefix="leadline-mutants-") as folder:
        copies = [SourceCopy.made_at(Path(folder, str(job))) for job in range(jobs)]
        check_tests(copies[0], mutants, limit_s * len(mutants))
        free: SimpleQueue[SourceCopy] = SimpleQueue()
        for copy in copies:
            free.put(copy)

        def attempt(mutant: Mutant) -> Trial:
            copy = free.get()
            try:
                trial = try_mutant(copy, mutant, limit_s)
            finally:
                free.put(copy)
            report(trial)
            return trial

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(attempt, mutants))


def row_of(trial: Trial) -> str:
    """Return the line of the table for one mutant."""
    mutant = trial.mutant
    return f"{trial.outcome:<9} {trial.seconds:6.1f} s  {mutant.rule:<4} {mutant.name}"


def score_line(trials: Sequence[Trial], seconds: float) -> str:
    """Return the score in one line."""
    killed = sum(trial.is_killed for trial in trials)
    return f"{killed} of {len(trials)} killed in {seconds:.0f} s"


def write_report(path: Path, trials: Sequence[Trial], seconds: float) -> None:
    """Write the score and every trial as JSON."""
    rows = [
        {
            "name": trial.mutant.name,
            "rule": trial.mutant.rule,
            "file": trial.mutant.file,
            "tests": trial.mutant.tests,
            "outcome": trial.outcome,
            "seconds": round(trial.seconds, 1),
        }
        for trial in trials
    ]
    killed = sum(trial.is_killed for trial in trials)
    body = {"killed": killed, "tried": len(trials), "seconds": round(seconds), "mutants": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")

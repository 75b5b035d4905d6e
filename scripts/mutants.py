"""Plant mistakes in the protocol, one at a time, and tell whether the tests notice each of them.

Usage: python -m scripts.mutants [--only NAME ...] [--jobs N] [--limit-s SECONDS]

The mutants are listed in tests/mutants. The exit code is 1 unless every one is killed. The results
are written to .artifacts/mutants.json as well.
"""

import argparse
import os
import sys
import time

from tests.support.mutants.mutant import ROOT, Mutant, all_mutants
from tests.support.mutants.score import (
    Outcome,
    TestsFail,
    Trial,
    row_of,
    score_line,
    try_all,
    write_report,
)

REPORT = ROOT / ".artifacts/mutants.json"


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument("--limit-s", type=float, default=180, help="seconds for each mutant")
    return parser.parse_args()


def chosen(only: list[str] | None) -> list[Mutant]:
    """Return the mutants to try, or exit if a name is unknown."""
    mutants = {mutant.name: mutant for mutant in all_mutants()}
    if unknown := sorted({*(only or ())} - mutants.keys()):
        sys.exit(f"no such mutant: {', '.join(unknown)}")
    return [mutants[name] for name in only] if only else list(mutants.values())


def show(trial: Trial) -> None:
    """Print the row of one mutant; for an invalid one also why."""
    print(row_of(trial), flush=True)
    if trial.outcome is Outcome.INVALID:
        print(trial.tail, flush=True)


def main() -> int:
    """Try the mutants; return the exit code."""
    wanted = options()
    mutants = chosen(wanted.only)
    started = time.monotonic()
    try:
        trials = try_all(mutants, min(wanted.jobs, len(mutants)), wanted.limit_s, show)
    except TestsFail as problem:
        print(problem)
        return 1
    seconds = time.monotonic() - started
    write_report(REPORT, trials, seconds)
    print(score_line(trials, seconds))
    return 0 if all(trial.is_killed for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())

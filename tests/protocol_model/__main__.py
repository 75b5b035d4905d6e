"""Search the model of the replication protocol for a violation (docs/protocol.md).

Exit code 0: every state within the bounds was visited, and there is no violation. 1: there is one,
whose steps are printed. 2: the search could not be made.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields, replace

from tests.protocol_model.rules import REMOVALS, Bounds
from tests.protocol_model.search import Outcome, SearchFailedError, search
from tests.protocol_model.tools import NoModelCheckerError, require

MOST_EPOCHS = 4


def main() -> int:
    """Search as the command line says."""
    options = _parser().parse_args()
    bounds = REMOVALS[options.off].bounds if options.off else Bounds()
    given = {field.name: getattr(options, field.name) for field in fields(Bounds)}
    bounds = replace(bounds, **{name: value for name, value in given.items() if value is not None})
    try:
        require()
        _say(f"searching: {bounds}, {f'without {options.off}' if options.off else 'all rules'}")
        outcome = search(bounds, options.off, long=not options.off, memory_mb=options.memory_mb)
    except (NoModelCheckerError, SearchFailedError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    _say(report(outcome))
    return int(bool(outcome.invariant))


def report(outcome: Outcome) -> str:
    """Return an outcome in lines for people."""
    size = (
        f"{outcome.states:,} states, {outcome.transitions:,} transitions, depth {outcome.depth}, "
        f"{outcome.seconds:.1f} s, {outcome.memory_mb:,.0f} MB"
    )
    if not outcome.invariant:
        return f"no violation: all states within the bounds are visited\n{size}"
    steps = "\n".join(f"{number:4d}  {step}" for number, step in enumerate(outcome.steps, 1))
    return f"{outcome.invariant} is violated after these steps:\n{steps}\n{size}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol_model", description=__doc__)
    parser.add_argument("--off", default="", choices=list(REMOVALS), help="leave this rule out")
    parser.add_argument(
        "--epochs",
        type=int,
        choices=range(1, MOST_EPOCHS + 1),
        help="leader epochs, including the first",
    )
    parser.add_argument("--records", type=_positive, help="records that leaders append in all")
    parser.add_argument("--crashes", type=_natural, help="power cuts in all")
    parser.add_argument("--changes", type=_natural, help="ISR changes that leaders propose in all")
    parser.add_argument(
        "--memory-mb", type=_positive, default=6000, help="give up beyond this, 6000 by default"
    )
    return parser


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def _positive(text: str) -> int:
    number = _natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

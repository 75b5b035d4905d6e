"""Replay a seed, or search a range: `python -m tests.simulation --help`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import fields, replace

from leadline_broker.domain.rules import ALL_RULES, Rules
from tests.simulation.run import report, shrink, simulate


def main() -> int:
    """Run what the command line asks for; answer 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed, with its trace")
    parser.add_argument("--seeds", default="0-1000", help="search this range, FIRST-LAST")
    parser.add_argument("--off", action="append", default=[], choices=_names(), help="a rule")
    parser.add_argument("--whole", action="store_true", help="do not shrink a failing plan")
    options = parser.parse_args()
    rules = replace(ALL_RULES, **dict.fromkeys(options.off, False))
    if options.seed is not None:
        result = simulate(options.seed, rules, tracing=True)
        if result.failed and not options.whole:
            result = shrink(result, rules)
        _say(report(result, rules))
        return int(result.failed)
    first, last = (int(part) for part in options.seeds.split("-"))
    return _search(range(first, last + 1), rules, whole=options.whole)


def _names() -> list[str]:
    return [rule.name for rule in fields(Rules)]


def _search(seeds: range, rules: Rules, *, whole: bool) -> int:
    sometimes: Counter[str] = Counter()
    steps = acknowledged = 0
    started = time.perf_counter()
    for done, seed in enumerate(seeds, 1):
        result = simulate(seed, rules)
        sometimes += result.sometimes
        steps += result.steps
        acknowledged += result.acknowledged
        if result.failed:
            _say(f"seed {seed}, after {done} seeds: {result.message}")
            if not whole:
                _say(report(shrink(result, rules), rules))
            return 1
    took = time.perf_counter() - started
    for what, count in sorted(sometimes.items()):
        _say(f"{count:10d}  {what}")
    _say(
        f"{len(seeds)} seeds clean: {acknowledged} acknowledged, {steps // len(seeds)} steps each, "
        f"{60 * len(seeds) / took:.0f} seeds per minute"
    )
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())

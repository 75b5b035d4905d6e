"""Runs one named fault scenario with several seeds, or lists all: `make faults S=S17 SEEDS=5`.

`make gate` runs what a change of the protocol must pass: twelve scenarios, and 10,000 seeds of the
simulation.
"""
# ruff: noqa: T201  # it prints

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.support.faults.catalogue import BLACK_BOX, GATE, SCENARIOS, listing, marked_tests

_TIMEOUT_S = 3600
_SIMULATION = "tests/simulation/test_simulation.py"
_NOTHING_RAN = 5
"""pytest's exit code where no test was left."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the scenario passed with every seed."""
    parser = argparse.ArgumentParser(prog="tests.support.faults", description=__doc__)
    parser.add_argument(
        "scenario", nargs="?", default="", help="S1 to S31, or GATE; none: list them"
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds, one run each")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0, help="how long S30 goes on")
    parser.add_argument(
        "--repeated", action="store_true", help="only the tests that repeat their faults many times"
    )
    options, rest = parser.parse_known_args(arguments)
    number = options.scenario.upper()
    if not number:
        print(listing())
        return 0
    if number == "GATE":
        return gate(rest)
    if number not in SCENARIOS:
        print(f"there is no scenario {number}; there are:\n{listing()}", file=sys.stderr)
        return 2
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    kind = "repeated" if options.repeated else "not repeated"
    timeout_s = _TIMEOUT_S + int(options.minutes * 120)
    of_all = ["-m", kind, "--minutes", str(options.minutes), "--timeout", str(timeout_s)]
    failed = [seed for seed in seeds if not passes(number, seed, [*of_all, *rest])]
    print(
        f"{number} ({SCENARIOS[number]}): {len(seeds) - len(failed)} of {len(seeds)} seeds passed"
    )
    for seed in failed:
        print(f"  failed: make faults S={number} SEEDS=1 SEED={seed}")
    return int(bool(failed))


def gate(rest: Sequence[str]) -> int:
    """Run the seeds and the scenarios of the gate; return 0 if all passed."""
    started_s = time.monotonic()
    tests = marked_tests(BLACK_BOX)
    files = dict.fromkeys(test.partition("::")[0] for number in GATE for test in tests[number])
    seeds = ["-n", "2", _SIMULATION, "-k", "with_every_rule"]
    scenarios = ["-n", "3", "--dist", "loadscope", "--no-loadscope-reorder"]
    scenarios += ["--scenario", ",".join(GATE), *files]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *rest]
    codes = [
        subprocess.run([*command, *part], check=False).returncode for part in (seeds, scenarios)
    ]
    verdict = "failed" if any(codes) else "passed"
    print(f"the gate {verdict} after {time.monotonic() - started_s:.0f} s")
    return int(any(codes))


def passes(number: str, seed: int, rest: Sequence[str]) -> bool:
    """Run the tests of a scenario once, with further options of pytest."""
    print(f"=== {number}, seed {seed}", flush=True)
    files = dict.fromkeys(test.partition("::")[0] for test in marked_tests()[number])
    command = [sys.executable, "-m", "pytest", "-q", "-rPs", "-p", "no:cacheprovider"]
    command += ["--scenario", number, "--fault-seed", str(seed), "--hypothesis-seed", str(seed)]
    command += [*rest, *files]
    code = subprocess.run(command, check=False).returncode
    if code == _NOTHING_RAN:
        print(f"void: no test of {number} was run", file=sys.stderr)
    return code == 0


if __name__ == "__main__":
    sys.exit(main())

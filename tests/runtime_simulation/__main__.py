"""Searches seeds of the runtime simulation, or replays one with its trace."""
# ruff: noqa: T201  # it prints

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from functools import partial
from multiprocessing import Pool
from typing import Final

from tests.runtime_simulation.flaws import FLAWS
from tests.runtime_simulation.run import Result, report, shrink, simulate

_CHUNK: Final = 4
_CHUNKS_OF_A_PROCESS: Final = 50
"""Then another one takes its place: caches of libraries keep some of what each seed has made."""


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="tests.runtime_simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one seed, with its trace")
    parser.add_argument("--seeds", default="0-1000", help="search a range of seeds, FIRST-LAST")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller plan that fails")
    parser.add_argument("--flaw", default="", choices=["", *FLAWS], help="take a rule away")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.seed is not None:
        result = simulate(arguments.seed, arguments.flaw, tracing=True)
        print(report(shrink(result) if arguments.shrink and result.failed else result))
        return int(result.failed)
    first, last = map(int, arguments.seeds.split("-"))
    return _search(range(first, last + 1), arguments.flaw, arguments.jobs)


def _search(seeds: range, flaw: str, jobs: int) -> int:
    began_s, sometimes, acknowledged, steps = time.perf_counter(), Counter[str](), 0, 0
    failed: list[Result] = []
    with Pool(jobs, maxtasksperchild=_CHUNKS_OF_A_PROCESS) as pool:
        for result in pool.imap(partial(simulate, flaw=flaw), seeds, chunksize=_CHUNK):
            sometimes += result.sometimes
            acknowledged += result.acknowledged
            steps += result.steps
            if result.failed:
                failed.append(result)
                print(f"seed {result.seed}: {result.kind}: {result.message[:300]}", flush=True)
    seconds = time.perf_counter() - began_s
    for what, count in sorted(sometimes.items()):
        print(f"{count:10}  {what}")
    print(
        f"{len(seeds)} seeds in {seconds:.0f} s, {acknowledged} acknowledged records,"
        f" {steps} steps, {len(failed)} failed"
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

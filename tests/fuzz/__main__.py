"""Fuzz each target for some minutes: `python -m tests.fuzz --minutes 5 [TARGET ...]`.

Each target runs in a process of its own, because libFuzzer ends its process. The corpus stays in
`.artifacts/fuzz/TARGET`, so that the next run goes on from there; an input that is a finding is
written to `.artifacts/fuzz/findings`. To see one again, use `--replay FILE TARGET`.

`python -m tests.fuzz http --minutes 60 [--document broker] [--seed 1]` is no such target: it sends
requests to a running cluster (`tests.fuzz.http_soak`).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import subprocess
import sys
from pathlib import Path

from tests.fuzz.http_soak import DOCUMENTS, soak
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".artifacts/fuzz"
MEMORY_MB = 1_024
SLOWEST_S = 10
HTTP = "http"


def command_of(name: str, minutes: float) -> list[str]:
    """Write the seeds of a target, and return the command that fuzzes it."""
    corpus, findings = KEPT / name, KEPT / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(exist_ok=True)
    for seed in TARGETS[name].seeds:
        (corpus / hashlib.sha256(seed).hexdigest()[:40]).write_bytes(seed)
    return [
        *(sys.executable, "-m", "tests.fuzz.worker", name, str(corpus)),
        f"-max_total_time={max(1, round(minutes * 60))}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={SLOWEST_S}",
        f"-artifact_prefix={findings / name}-",
        "-print_final_stats=1",
        "-max_len=4096",
    ]


def main() -> int:
    """Fuzz or replay; the exit code is 1 after a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, HTTP, []], metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=5, help="for each target")
    parser.add_argument("--replay", type=Path, help="a file to run the target with, once")
    parser.add_argument("--document", choices=list(DOCUMENTS), help="for http: only this one")
    parser.add_argument("--seed", type=int, help="for http; a fresh one by default")
    options = parser.parse_args()
    if options.targets == [HTTP]:
        first_seed = random.randrange(2**32) if options.seed is None else options.seed
        documents = [options.document] if options.document else list(DOCUMENTS)
        return asyncio.run(soak(options.minutes, first_seed, documents))
    if HTTP in options.targets:
        parser.error("http runs alone")
    names = options.targets or list(TARGETS)
    if options.replay:
        TARGETS[names[0]](options.replay.read_bytes())
        return 0
    found = 0
    for name in names:
        code = subprocess.run(command_of(name, options.minutes), cwd=ROOT, check=False).returncode
        sys.stdout.write(f"{name}: {'a finding' if code else 'no finding'}\n")
        found |= code
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

"""A search of the model: Spin makes a C program of it, which then visits all states."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.protocol_model.rules import Bounds

MODEL = Path(__file__).with_name("replication.pml")
SEARCH = ("-DSAFETY", "-DBFS", "-DNOREDUCE", "-DNOFAIR", "-DVECTORSZ=1024")
"""Breadth first, so that the steps to a violation are the fewest; cycles are not looked for."""

_SET = re.compile(r"\{(\d)\}")
_INVARIANT = re.compile(r"/\* (I\d+[^:]*):")


class SearchFailedError(Exception):
    """Spin, GCC or the search itself failed; this says nothing about the protocol."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found. `invariant` is empty unless one was violated, by the `steps`."""

    states: int
    transitions: int
    depth: int
    memory_mb: float
    seconds: float
    invariant: str = ""
    steps: tuple[str, ...] = ()


def search(
    bounds: Bounds,
    off: str = "",
    *,
    long: bool = False,
    memory_mb: int = 2048,
    model: str = "",
) -> Outcome:
    """Visit every state within the bounds, or those up to the first violation.

    `off` names the rule that the model is without. A `long` search is worth a longer compilation.
    States are compared as they are, not by hashes, so that none is missed. `model` is searched
    instead of the model in this folder.

    Raises:
        SearchFailedError: the search did not end, or could not begin.

    """
    model = model or MODEL.read_text(encoding="utf-8")
    macros = [*bounds.macros(), *([f"-DWITHOUT_{off}"] if off else [])]
    flags = [*SEARCH, f"-DMEMLIM={memory_mb}", "-O2" if long else "-Og"]
    with tempfile.TemporaryDirectory(prefix="leadline-model-") as name:
        folder = Path(name)
        (folder / MODEL.name).write_text(model, encoding="utf-8")
        _run(folder, "spin", *macros, "-a", MODEL.name)
        _run(folder, "gcc", *flags, "-w", "-o", "pan", "pan.c")
        started = time.perf_counter()
        report = _run(folder, "./pan")
        seconds = time.perf_counter() - started
        trail = ""
        if (folder / f"{MODEL.name}.trail").exists():
            trail = _run(folder, "spin", *macros, "-t", MODEL.name)
    return outcome_of(report, trail, model, seconds)


def outcome_of(report: str, trail: str, model: str, seconds: float) -> Outcome:
    """Return what the report of a model's search says, and the replay of its trail.

    Raises:
        SearchFailedError: the search ended early without a violation.

    """
    violated = "assertion violated" in report
    if (not violated and "errors: 0" not in report) or (
        not violated and "Search not completed" in report
    ):
        raise SearchFailedError(f"the search was not completed:\n{report}")
    return Outcome(
        states=int(_number(r"(\S+) states, stored", report)),
        transitions=int(_number(r"(\S+) transitions", report)),
        depth=int(_number(r"depth reached (\d+)", report)),
        memory_mb=_number(r"(\S+)\ttotal actual memory", report),
        seconds=seconds,
        invariant=_invariant(trail, model) if violated else "",
        steps=tuple(_steps(trail)),
    )


def _run(folder: Path, *command: str) -> str:
    program = str(folder / command[0]) if command[0].startswith("./") else command[0]
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SearchFailedError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def _number(pattern: str, report: str) -> float:
    found = re.search(pattern, report)
    if found is None:
        raise SearchFailedError(f"the search's report lacks {pattern!r}:\n{report}")
    return float(found[1])


def _steps(trail: str) -> list[str]:
    """Return what the steps of a replay printed, with sets of brokers spelled out."""
    printed = trail.partition("\nspin: ")[0].splitlines()
    return [_SET.sub(_members, line.strip()) for line in printed if line.strip()]


def _members(mask: re.Match[str]) -> str:
    brokers = [str(broker) for broker in range(3) if int(mask[1]) >> broker & 1]
    return "{" + ", ".join(brokers) + "}"


def _invariant(trail: str, model: str) -> str:
    """Return the id in the last comment before the violated assertion."""
    line = int(_number(rf"{re.escape(MODEL.name)}:(\d+), Error: assertion", trail))
    before = model.splitlines()[:line]
    ids: list[str] = _INVARIANT.findall("\n".join(before))
    return ids[-1]

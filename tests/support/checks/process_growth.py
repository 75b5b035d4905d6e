"""Descriptors, threads and memory of processes over time: none may grow for ever (I17)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_GROWTH_PER_HOUR = 0.10
WARM_UP_S = 300.0
"""Caches, pools and connections fill in this time."""
LEAST_S = 1500.0
"""A shorter time after the warm-up says nothing of an hour."""
_SLACK = {"descriptors": 3, "threads": 2, "resident_bytes": 2 << 20}
"""What a process may have more of at any time, however small it is."""
_KIB = 1024


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """What one process used at a moment; `at_s` is on any monotonic clock."""

    process: str
    pid: int
    at_s: float
    descriptors: int
    threads: int
    resident_bytes: int


def sample_process(process: str, pid: int, at_s: float) -> ProcessSample | None:
    """Read /proc; None if the process is gone."""
    root = Path(f"/proc/{pid}")
    try:
        status = (root / "status").read_text()
        descriptors = sum(1 for _ in (root / "fd").iterdir())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = dict(line.partition(":")[::2] for line in status.splitlines())
    if "VmRSS" not in fields:  # a zombie
        return None
    resident_bytes = int(fields["VmRSS"].split()[0]) * _KIB
    return ProcessSample(process, pid, at_s, descriptors, int(fields["Threads"]), resident_bytes)


def growth_problems(samples: Iterable[ProcessSample]) -> list[str]:
    """Say what grew by more than 10 % an hour, process by process.

    A process that was started again is another one. Compared are low values of the first and the
    last third of its time after the warm-up: what is released in between is no growth. A value is
    low if a tenth of the third's values are not above it: the lowest one may be of seconds in which
    the process was cut off and had fewer connections than ever. Processes that were not watched for
    `LEAST_S` after the warm-up show nothing.
    """
    lives: dict[tuple[str, int], list[ProcessSample]] = defaultdict(list)
    for sample in samples:
        lives[sample.process, sample.pid].append(sample)
    return [problem for life in lives.values() for problem in _growth(life)]


def _growth(life: Sequence[ProcessSample]) -> list[str]:
    began_s = min(sample.at_s for sample in life) + WARM_UP_S
    warm = sorted((one for one in life if one.at_s >= began_s), key=lambda one: one.at_s)
    if len(warm) < 3 or warm[-1].at_s - warm[0].at_s < LEAST_S:
        return []
    third_s = (warm[-1].at_s - warm[0].at_s) / 3
    first = [one for one in warm if one.at_s <= warm[0].at_s + third_s]
    last = [one for one in warm if one.at_s >= warm[-1].at_s - third_s]
    hours = (_middle_s(last) - _middle_s(first)) / 3600
    found = []
    for name, slack in _SLACK.items():
        before, after = _low(first, name), _low(last, name)
        if after - before > max(slack, before * MOST_GROWTH_PER_HOUR * hours):
            rate = (after - before) / max(before, 1) / hours
            found.append(
                f"I17: {life[0].process} (pid {life[0].pid}): {name} {before} to {after}, "
                f"{rate:.0%} an hour"
            )
    return found


def _low(samples: Sequence[ProcessSample], name: str) -> int:
    values: list[int] = sorted(getattr(one, name) for one in samples)
    return values[len(values) // 10]


def _middle_s(samples: Sequence[ProcessSample]) -> float:
    return (samples[0].at_s + samples[-1].at_s) / 2

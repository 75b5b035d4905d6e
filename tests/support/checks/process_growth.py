"""Descriptors, threads and memory of processes over time: none may grow for ever (I17)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MOST_GROWTH_PER_HOUR = 0.10
WARM_UP_S = 300.0
"""Caches, pools and connections fill in this time."""
LEAST_S = 1500.0
"""A shorter time after the warm-up says nothing of an hour."""
_SLACK = {"descriptors": 3, "threads": 2, "resident_bytes": 2 << 20}
"""What a process may have more of at any time, however small it is."""
_KIB = 1024
_SOCKET = "socket:["
_ESTABLISHED, _LISTENING = "01", "0A"


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """What one process used at a moment; `at_s` is on any monotonic clock.

    A connection counts for the process that opened it: how many a broker has accepted depends on
    the partitions that it leads. An accepted one counts once the other end has closed it.
    """

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
        descriptors = _descriptors(root)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = dict(line.partition(":")[::2] for line in status.splitlines())
    if "VmRSS" not in fields:  # a zombie
        return None
    resident_bytes = int(fields["VmRSS"].split()[0]) * _KIB
    return ProcessSample(process, pid, at_s, descriptors, int(fields["Threads"]), resident_bytes)


def _descriptors(root: Path) -> int:
    """Count the descriptors of a process but for the connections that it has accepted."""
    targets = [_target(link) for link in (root / "fd").iterdir()]
    own = {target.removeprefix(_SOCKET).rstrip("]") for target in targets if _SOCKET in target}
    sockets = [one for one in _tcp_sockets(root) if one.inode in own]
    listening = {one.port for one in sockets if one.state == _LISTENING}
    accepted = [one for one in sockets if one.state == _ESTABLISHED and one.port in listening]
    return len(targets) - len(accepted)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # closed meanwhile
        return ""


class _Socket(NamedTuple):
    port: str
    state: str
    inode: str


def _tcp_sockets(root: Path) -> Iterator[_Socket]:
    """Yield the TCP sockets of the process's network."""
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in (root / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                yield _Socket(fields[1].rpartition(":")[2], fields[3], fields[9])


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

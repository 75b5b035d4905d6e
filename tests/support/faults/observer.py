"""Watches a cluster during a scenario: faults, replicas, directories and processes.

What is not seen while it happens cannot be checked afterwards: I8, I13, I16 and I17 compare
moments of a run. Samples are taken once a second; a service that does not answer within a
second has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.layout import METADATA_FILE, read_identity
from tests.support.checks.process_growth import ProcessSample, growth_problems, sample_process
from tests.support.checks.recovered_tails import (
    Tail,
    cut_reports,
    recovery_problems,
    tails_at_rest,
)
from tests.support.checks.replica_samples import (
    DirectorySample,
    ReplicaSample,
    directory_problems,
    watermark_problems,
)
from tests.support.checks.zk_history import ZkView
from tests.support.services.cluster import Cluster

PERIOD_S = 1.0
_OPENED = "logs opened"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that the test did to a process; `at_s` is on the monotonic clock."""

    at_s: float
    action: str
    target: str


@dataclass(frozen=True, slots=True)
class Start:
    """A broker was started on these logs; `log_from` is where its own log began then."""

    broker: str
    tails: Mapping[str, Tail]
    log_from: int


@dataclass(slots=True)
class Observer:
    """Sampling while the block runs."""

    cluster: Cluster
    faults: list[Fault] = field(default_factory=list)
    replicas: list[ReplicaSample] = field(default_factory=list)
    directories: list[DirectorySample] = field(default_factory=list)
    processes: list[ProcessSample] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    replaced: set[int] = field(default_factory=set)
    """Brokers whose disk the test replaced, or took something from: their logs may be short."""
    answered: set[str] = field(default_factory=set)
    """Brokers that said at least once which replicas they have."""
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while directories are looked at, and by who takes one away for a moment."""
    _known: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.cluster.watchers.append(self._note)
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cluster.watchers.remove(self._note)
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def problems(self, view: ZkView) -> list[str]:
        """Say what is wrong with what was seen, given ZooKeeper's history: I8, I13, I16, I17."""
        await self.sample()
        names = [broker.name for broker in self.cluster.supervisor.layout.brokers]
        silent = [name for name in names if name not in self.answered]
        return [
            *(f"void: {name} never said what replicas it has" for name in silent),
            *watermark_problems(self.replicas, view.audit, self.replaced),
            *directory_problems(self.directories, view.topics, view.audit, self.replaced),
            *await asyncio.to_thread(self._recovery_problems),
            *growth_problems(self.processes),
        ]

    async def sample(self) -> None:
        """Look at everything once."""
        names = [broker.name for broker in self.cluster.supervisor.layout.brokers]
        await asyncio.gather(*map(self._replicas_of, names))
        for name in names:
            async with self.looking:
                found = await asyncio.to_thread(self._directories_of, name)
            number = int(name.rpartition("-")[2])
            self.directories.append(DirectorySample(number, _now_ms(), found))
        for child in self.cluster.supervisor.children.values():
            if child.pid is not None and child.running:
                sample = sample_process(child.name, child.pid, time.monotonic())
                self.processes += [sample] if sample is not None else []

    async def _watch(self) -> None:
        while not self._stopping.is_set():
            await self.sample()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), PERIOD_S)

    def _note(self, action: str, target: str) -> None:
        """Hear of a fault before it happens; to resume what is not frozen is none."""
        frozen = {"freeze", "SIGSTOP"}
        last = next((one.action for one in reversed(self.faults) if one.target == target), "")
        if action == "resume" and last not in frozen:
            return
        self.faults.append(Fault(time.monotonic(), action, target))
        if action == "restart" and target.startswith("broker-"):
            log = self.cluster.child(target).log_path
            tails = tails_at_rest(self._log_dir(target))
            self.starts.append(Start(target, tails, log.stat().st_size if log.exists() else 0))

    def _log_dir(self, broker: str) -> Path:
        directory = self.cluster.service(broker).log_dir
        assert directory is not None
        return Path(directory)

    async def _replicas_of(self, broker: str) -> None:
        began_ms = _now_ms()
        try:
            rows = await asyncio.wait_for(self.cluster.replicas(broker), 1.0)
        except (httpx.HTTPError, TimeoutError):
            return
        self.answered.add(broker)
        ended_ms, number = _now_ms(), int(broker.rpartition("-")[2])
        self.replicas += [_sample(number, row, began_ms, ended_ms) for row in rows]

    def _directories_of(self, broker: str) -> dict[tuple[str, int], int]:
        """Return the inode of each replica's directory; a log is known by its metadata file."""
        found = {}
        for directory in _entries(self._log_dir(broker)):
            with contextlib.suppress(FileNotFoundError, CorruptFile):
                inode = directory.stat().st_ino
                place = (str(directory), inode)
                if place not in self._known and (directory / METADATA_FILE).exists():
                    identity = read_identity(directory)
                    self._known[place] = (identity.topic_id, identity.partition)
                if place in self._known:
                    found[self._known[place]] = inode
        return found

    def _recovery_problems(self) -> list[str]:
        found = []
        for number, start in enumerate(self.starts):
            later = [one for one in self.starts[number + 1 :] if one.broker == start.broker]
            data = self.cluster.child(start.broker).log_path.read_bytes()
            part = data[start.log_from : later[0].log_from if later else None]
            text = part.decode(errors="replace")
            if _OPENED in text:  # else it was killed before it had read its logs
                found += recovery_problems(start.broker, start.tails, cut_reports(text))
        return found


def _entries(directory: Path) -> Sequence[Path]:
    try:
        return [one for one in directory.iterdir() if one.is_dir()]
    except FileNotFoundError:
        return []


def _sample(broker: int, row: Mapping[str, Any], began_ms: int, ended_ms: int) -> ReplicaSample:
    return ReplicaSample(
        broker,
        row["topic"],
        row["topic_id"],
        row["partition"],
        row["high_watermark"],
        row["log_end_offset"],
        began_ms,
        ended_ms,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

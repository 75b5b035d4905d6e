"""The command: which work, how much of it, and where the results go."""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from peers import data_path, fresh_clusters, machine
from peers.kafka.cluster import KafkaCluster
from peers.kafka.jars import NotAvailable, WrongFiles, kafka_jars
from peers.processes import Client
from peers.report import document, history, table
from peers.report.samples import Samples
from peers.sequences import (
    consume,
    controller,
    failover,
    group,
    idle,
    latency,
    produce,
    raw_batches,
    single_records,
    start,
    topics,
)
from peers.sequences.case import Case
from peers.sequences.on_cluster import Measure
from peers.sequences.sizes import QUICK, Sizes
from peers.systems.leadline import LeadlineCluster
from peers.systems.system import System
from peers.systems.zookeeper import zookeeper
from tests.support.own_environment import environment

RESULTS: Final = machine.ROOT / "benchmarks" / "results"
QUICK_RESULTS: Final = machine.ROOT / ".artifacts" / "peers"
CONFLUENT: Final = Path(__file__).with_name("clients") / "requirements.lock"
KAFKA: Final = "3.9.1"
CALM_MS: Final = 20_000
"""The session timeout where nothing is killed: a busy machine is not to expire a session either."""

DATA: Final[Mapping[str, Callable[[Sizes], list[Case]]]] = {
    "produce": produce.cases,
    "consume": consume.cases,
    "latency": latency.cases,
    "single": single_records.cases,
    "raw": raw_batches.cases,
}
CLUSTER: Final[Mapping[str, Measure]] = {
    "start": start.measure,
    "topics": topics.measure,
    "idle": idle.measure,
    "failover": failover.measure,
    "controller": controller.measure,
}
GROUP: Final[Mapping[str, Measure]] = {"group": group.measure}
EVERYTHING: Final = (*DATA, *CLUSTER, *GROUP)
SIZES: Final = ("data_rounds", "cluster_rounds", "topics", "partitions", "members", "session_ms")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; return the exit code: 0 where Kafka cannot be had, after one line."""
    arguments = _parser().parse_args(argv)
    try:
        jars = kafka_jars()
    except NotAvailable as problem:
        print(f"bench-peers: SKIPPED, nothing was measured: {problem}")
        return 0
    except WrongFiles as problem:
        print(f"bench-peers: {problem}", file=sys.stderr)
        return 1
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # A Kafka has some for each replica.
    try:
        measured = asyncio.run(_until_terminated(Comparison(arguments, jars, _clients()).run()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("bench-peers: interrupted; everything was stopped, nothing written", file=sys.stderr)
        return 128 + signal.SIGINT
    _write(arguments.output or (QUICK_RESULTS if arguments.quick else RESULTS), measured)
    return 1 if measured.failures else 0


def sizes_of(arguments: argparse.Namespace) -> Sizes:
    """Return the amounts: those of a full or a quick run, but for what the arguments say."""
    said = {name: getattr(arguments, name) for name in SIZES}
    base = QUICK if arguments.quick else Sizes()
    return msgspec.structs.replace(
        base, **{name: value for name, value in said.items() if value is not None}
    )


async def _until_terminated(run: Coroutine[Any, Any, document.Document]) -> document.Document:
    """Run it; SIGTERM ends it as Ctrl-C does, so that all that was started is stopped."""
    task = asyncio.ensure_future(run)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _clients() -> list[Client]:
    """Return all clients, of which only confluent-kafka has an environment of its own."""
    found = [Client("aiokafka"), Client("leadline")]
    try:
        programs = environment("confluent", CONFLUENT)
    except (OSError, subprocess.CalledProcessError) as problem:
        _say(f"confluent-kafka is left out: {problem}")
        return found
    return [*found, Client("confluent", programs / "python")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-peers ARGS=…", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: few records and rounds")
    parser.add_argument(
        "--only", type=_names, default=EVERYTHING, help=f"some of {','.join(EVERYTHING)}"
    )
    parser.add_argument(
        "--kafka-tls",
        action="store_true",
        help="Kafka's brokers speak TLS with each other, too; it is called kafka+tls then",
    )
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N")
    parser.add_argument("--output", type=Path, help="the folder of the results")
    return parser


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names).difference(EVERYTHING):
        raise argparse.ArgumentTypeError(f"not among {', '.join(EVERYTHING)}: {sorted(unknown)}")
    return names


class Comparison:
    """One run."""

    def __init__(
        self, arguments: argparse.Namespace, jars: Path, clients: Sequence[Client]
    ) -> None:
        self._arguments = arguments
        self._sizes = sizes_of(arguments)
        self._jars = jars
        self._clients = clients
        self._samples: list[Samples] = []
        self._failures: list[str] = []

    async def run(self) -> document.Document:
        """Measure everything that was asked for."""
        began, load = _now(), machine.load()
        with tempfile.TemporaryDirectory(prefix="leadline-bench-") as name:
            directory = Path(name)
            await self._noting_failure("data path", self._data_path(directory / "data"))
            for measures in (CLUSTER, GROUP):
                await self._fresh_clusters(directory, measures)
            facts = machine.machine(directory)
        return document.Document(
            began=began,
            ended=_now(),
            commit=machine.commit(),
            is_quick=self._arguments.quick,
            kafka=KAFKA,
            machine=facts,
            sizes=self._sizes,
            load_before=load,
            load_after=machine.load(),
            samples=tuple(self._samples),
            failures=tuple(self._failures),
        )

    async def _data_path(self, directory: Path) -> None:
        cases = [
            case
            for name, made in DATA.items()
            if name in self._arguments.only
            for case in made(self._sizes)
        ]
        if not cases:
            return
        async with (
            zookeeper(directory) as hosts,
            self._kafka(directory, hosts, CALM_MS) as kafka,
            self._leadline(directory, hosts, CALM_MS) as leadline,
        ):
            tls = self._arguments.kafka_tls
            everyone = data_path.sides(kafka, leadline, self._clients, tls=tls)
            for case in cases:
                await self._noting_failure(case.name, self._case(case, everyone))

    async def _case(self, case: Case, everyone: Sequence[data_path.Side]) -> None:
        self._add(await data_path.run(case, everyone, self._sizes, _say))

    async def _noting_failure(self, what: str, part: Awaitable[None]) -> None:
        """Do a part of the run; if it fails, the rest is measured and written all the same."""
        try:
            await part
        except Exception as problem:
            self._failures.append(f"{what}: {problem!r}")
            _say(self._failures[-1])

    async def _fresh_clusters(self, directory: Path, measures: Mapping[str, Measure]) -> None:
        chosen = {name: one for name, one in measures.items() if name in self._arguments.only}
        if not chosen:
            return
        by_name = {client.name: client for client in self._clients}
        systems = [
            (partial(self._fresh, directory, self._kafka), by_name["aiokafka"]),
            (partial(self._fresh, directory, self._leadline), by_name["leadline"]),
        ]
        self._add(await fresh_clusters.run(chosen, systems, self._sizes, _say))

    @asynccontextmanager
    async def _fresh(
        self, directory: Path, start_system: Callable[[Path, str, int], System]
    ) -> AsyncIterator[System]:
        """Run a system on a ZooKeeper of its own; all of its data is removed afterwards."""
        with tempfile.TemporaryDirectory(dir=directory) as name:
            own = Path(name)
            async with (
                zookeeper(own) as hosts,
                start_system(own, hosts, self._sizes.session_ms) as system,
            ):
                yield system

    def _kafka(self, directory: Path, hosts: str, session_ms: int) -> System:
        tls = self._arguments.kafka_tls
        return KafkaCluster(directory / "kafka", self._jars, f"{hosts}/kafka", session_ms, tls=tls)

    @staticmethod
    def _leadline(directory: Path, hosts: str, session_ms: int) -> System:
        return LeadlineCluster(
            directory / "leadline", f"{hosts}/leadline", session_ms, coordinators=2
        )

    def _add(self, found: tuple[list[Samples], list[str]]) -> None:
        self._samples += found[0]
        self._failures += found[1]


def _write(folder: Path, measured: document.Document) -> None:
    """Write the run's document and page, and what covers all runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{measured.name}.json").write_bytes(document.encode(measured))
    (folder / f"{measured.name}.md").write_text(table.page(measured), encoding="utf-8")
    documents = document.read_all(folder)
    (folder / "README.md").write_text(history.page(documents), encoding="utf-8")
    (folder / history.CHART).write_text(history.chart(documents), encoding="utf-8")
    print(table.table(measured.samples))
    print(f"written: {folder.name}/{measured.name}.md", file=sys.stderr)


def _say(line: str) -> None:
    print(f"{_now()[11:]} {line}", file=sys.stderr, flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").removesuffix("+00:00")

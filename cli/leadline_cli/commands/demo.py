"""`leadline demo`: kill leaders under load, and prove that no acknowledged line is lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from leadline_cli import interruption
from leadline_cli.cluster_layout import ClusterOptions
from leadline_cli.demo.display import DemoDisplay
from leadline_cli.demo.leadership import LeadershipTracker
from leadline_cli.demo.scenario import TOPIC, Report, Scenario
from leadline_cli.embedded_zookeeper import ServerConfig
from leadline_cli.java_runtime import package_directory
from leadline_cli.output import EXIT_REFUSED, EXIT_USAGE, console, print_line, print_problem
from leadline_cli.supervisor import ClusterProblem, Supervisor
from leadline_client.errors import LeadlineError
from leadline_common.private_files import keep_files_private

_DEFAULT_PACKAGE: Final = "pyspark"
_MAX_LINES: Final = 60_000


def demo(
    file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="The file to stream, line by line."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data directory.")] = False,
) -> None:
    """Stream a file through a cluster, kill its leaders meanwhile, then check every line."""
    ServerConfig.check_installed()
    keep_files_private()
    source, lines = _read_lines(file)
    if not lines:
        print_problem(f"{source} has no lines to stream")
        raise typer.Exit(EXIT_USAGE)
    data_dir = Path(tempfile.mkdtemp(prefix="leadline-demo-"))
    print_line(f"streaming {len(lines)} lines of {source} through a cluster in {data_dir}")
    try:
        report = interruption.run(_run(data_dir, lines))
    except (ClusterProblem, LeadlineError) as problem:
        print_problem(f"the demo could not be finished: {problem}")
        raise typer.Exit(EXIT_REFUSED) from None
    finally:
        if not keep:
            shutil.rmtree(data_dir, ignore_errors=True)
    _print(report)
    if not report.holds:
        raise typer.Exit(EXIT_REFUSED)


def _read_lines(file: Path | None) -> tuple[str, list[bytes]]:
    """Return a description of the input, and its first lines, by default a package's sources."""
    if file is not None:
        return str(file), list(islice(_lines_of(file), _MAX_LINES))
    sources = sorted(package_directory(_DEFAULT_PACKAGE).rglob("*.py"))
    every = (line for source in sources for line in _lines_of(source))
    return f"the sources of {_DEFAULT_PACKAGE}", list(islice(every, _MAX_LINES))


def _lines_of(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for line in opened:
            yield line.rstrip(b"\r\n")


async def _run(data_dir: Path, lines: list[bytes]) -> Report:
    tracker = LeadershipTracker(TOPIC)
    supervisor = Supervisor(ClusterOptions(data_dir, 3, 2, coordinators=0))
    with DemoDisplay(console(), tracker) as display:
        display.say("starting ZooKeeper, 2 controllers, 3 brokers")
        try:
            await supervisor.start()
            for service in supervisor.layout.services:
                display.say(f"{service.name}: Swagger UI at {service.url}/docs")
            async with supervisor.watched(display.say):
                return await Scenario(supervisor, tracker, display, lines).run()
        finally:
            await supervisor.stop()


def _print(report: Report) -> None:
    verdict = report.verdict
    print_line("")
    for name in ("sent", "acknowledged", "lost", "duplicated", "reordered", "altered"):
        print_line(f"{name:>13} {getattr(verdict, name)}")
    print_line(f"{'rate':>13} {report.rate:.0f} lines per second, two failovers included")
    print_line(f"{'leaders':>13} moved {report.leader_moves} times")
    print_line(f"{'controller':>13} moved {report.controller_moves} times")
    if report.holds:
        console().print("Every acknowledged line is there once and in order.", style="green")
    else:
        print_problem("The guarantee is broken: see the counts above.")

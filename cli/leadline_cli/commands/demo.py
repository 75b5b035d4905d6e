"""`leadline demo`: kill leaders under load, and prove that no acknowledged line is lost."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from leadline_cli.demo.leadership import Leadership
from leadline_cli.demo.lines import read_lines
from leadline_cli.demo.scenario import TOPIC, Report, Scenario
from leadline_cli.demo.view import View
from leadline_cli.output import EXIT_REFUSED, EXIT_USAGE, err, out
from leadline_cli.plan import ClusterOptions
from leadline_cli.supervisor import ClusterProblem, Supervisor
from leadline_client.errors import LeadlineError

EXIT_TERMINATED: Final = 128 + signal.SIGTERM
_SETTINGS: Final = {"zookeeper.session.timeout.ms": "2000"}


def demo(
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Whose lines to stream.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data directory.")] = False,
) -> None:
    """Stream a file through a cluster while its leaders are killed; then check every line."""
    source, lines = read_lines(file)
    if not lines:
        err.print(f"{source} has no lines to stream", style="red", markup=False)
        raise typer.Exit(EXIT_USAGE)
    data_dir = Path(tempfile.mkdtemp(prefix="leadline-demo-"))
    out.print(f"streaming {len(lines)} lines of {source} through a cluster in {data_dir}")
    try:
        report = asyncio.run(_run(data_dir, lines))
    except (ClusterProblem, LeadlineError) as problem:
        err.print(f"the demo could not be finished: {problem}", style="red", markup=False)
        raise typer.Exit(EXIT_REFUSED) from None
    except asyncio.CancelledError:
        raise typer.Exit(EXIT_TERMINATED) from None
    finally:
        if not keep:
            shutil.rmtree(data_dir, ignore_errors=True)
    _print(report)
    if not report.holds:
        raise typer.Exit(EXIT_REFUSED)


async def _run(data_dir: Path, lines: list[bytes]) -> Report:
    task = asyncio.current_task()
    if task is not None:
        # A terminated demo unwinds like an interrupted one: processes and data go with it.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    leadership = Leadership(TOPIC)
    supervisor = Supervisor(ClusterOptions(data_dir, 3, 2, coordinators=0, settings=_SETTINGS))
    with View(out, leadership) as view:
        view.say("starting ZooKeeper, 2 controllers, 3 brokers")
        try:
            await supervisor.start()
            for service in supervisor.plan.services:
                view.say(f"{service.name}: Swagger UI at {service.url}/docs")
            return await Scenario(supervisor, leadership, view, lines).run()
        finally:
            await supervisor.stop()


def _print(report: Report) -> None:
    verdict = report.verdict
    out.print()
    for name in ("sent", "acknowledged", "lost", "duplicated", "reordered", "altered"):
        out.print(f"{name:>13} {getattr(verdict, name)}")
    out.print(f"{'rate':>13} {report.rate:.0f} lines per second, two failovers included")
    out.print(f"{'leaders':>13} moved {report.leader_moves} times")
    out.print(f"{'controller':>13} moved {report.controller_moves} times")
    if report.holds:
        out.print("Nothing that was acknowledged is lost, doubled or out of order.", style="green")
    else:
        err.print("The promise does not hold: see the counts above.", style="red")

"""`leadline up`: a cluster on this machine, in the foreground."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated, Final

import typer

from leadline_cli.connection import DEFAULT_DATA_DIR, DataDir
from leadline_cli.output import EXIT_REFUSED, EXIT_USAGE, err, out, print_json, print_table
from leadline_cli.plan import ClusterOptions
from leadline_cli.service import split_pairs
from leadline_cli.supervisor import ClusterProblem, Supervisor
from leadline_common.settings import (
    BrokerSettings,
    ControllerSettings,
    CoordinatorSettings,
    SettingsError,
    load_settings,
)

_EACH_ITS_OWN: Final = "each service gets its own (see cluster.json); run one by itself to choose"
_DECIDED: Final = {
    "zookeeper.connect": "use --zookeeper",
    "listen.host": "what runs here listens on 127.0.0.1",
    "listen.port": _EACH_ITS_OWN,
    "log.dir": "each broker gets a directory of its own below --data-dir",
    "broker.id": _EACH_ITS_OWN,
    "controller.id": _EACH_ITS_OWN,
    "coordinator.id": _EACH_ITS_OWN,
    "advertised.url": _EACH_ITS_OWN,
}
"""Settings that differ from service to service, and why they cannot be the same for all."""


def up(
    *,
    brokers: Annotated[
        int | None, typer.Option(min=1, help="How many; by default as before, or 3.")
    ] = None,
    controllers: Annotated[
        int | None, typer.Option(min=1, help="How many; by default as before, or 2.")
    ] = None,
    coordinators: Annotated[
        int | None, typer.Option(min=0, help="How many; by default as before, or 2.")
    ] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    zookeeper: Annotated[
        str | None, typer.Option(metavar="HOSTS", help="Use this ZooKeeper; else one is started.")
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of every service."),
    ] = None,
    rack: Annotated[
        list[str] | None, typer.Option(help="A rack; racks are dealt out to brokers in turn.")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start a process again when it dies.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when ready.")
    ] = False,
) -> None:
    """Run a cluster until Ctrl-C; again with the same directory, it is the same cluster."""
    try:
        settings = split_pairs(pairs or ())
        _check_names(settings)
    except SettingsError as problem:
        err.print(str(problem), style="red", markup=False)
        raise typer.Exit(EXIT_USAGE) from None
    options = ClusterOptions(
        data_dir,
        brokers,
        controllers,
        zookeeper,
        coordinators=coordinators,
        settings=settings,
        racks=rack or (),
    )
    try:
        asyncio.run(_run(options, restart=restart, as_json=as_json))
    except ClusterProblem as problem:
        err.print(str(problem), style="red", markup=False)
        raise typer.Exit(EXIT_REFUSED) from None


def _check_names(settings: dict[str, str]) -> None:
    """Say what is wrong with a setting before any process is started with it."""
    for name in settings:
        if name in _DECIDED:
            raise SettingsError(f"{name} is not for --set: {_DECIDED[name]}")
    identity = {"broker.id": "0", "log.dir": "x"}
    load_settings(BrokerSettings, flags=identity | settings, environment={})
    load_settings(ControllerSettings, flags={"controller.id": "0"} | settings, environment={})
    load_settings(CoordinatorSettings, flags={"coordinator.id": "0"} | settings, environment={})


async def _run(options: ClusterOptions, *, restart: bool, as_json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _end, supervisor, stop)
    try:
        missing = await _unless_stopped(supervisor, stop)
        if missing is None:
            return
        _announce(supervisor, missing, as_json=as_json)
        await supervisor.watch(stop, restart=restart, report=err.print)
    finally:
        await supervisor.stop()


def _end(supervisor: Supervisor, stop: asyncio.Event) -> None:
    """Have the cluster stopped in good order, and at the second signal at once."""
    if stop.is_set():
        supervisor.kill()
        return
    stop.set()
    err.print("stopping: brokers hand over first; Ctrl-C again ends them at once", markup=False)


async def _unless_stopped(supervisor: Supervisor, stop: asyncio.Event) -> list[str] | None:
    """Start the cluster; None when it was told to stop before it was ready."""
    starting = asyncio.create_task(supervisor.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        return starting.result()
    starting.cancel()
    await asyncio.wait([starting])
    return None


def _announce(supervisor: Supervisor, missing: list[str], *, as_json: bool) -> None:
    document = supervisor.document()
    for problem in missing:
        err.print(f"warning: {problem}", style="yellow", markup=False)
    if as_json:
        print_json(document.to_json())
        return
    rows = [
        (service.name, service.url, f"{service.url}/docs", supervisor.children[service.name].pid)
        for service in supervisor.plan.services
    ]
    print_table(
        f"Cluster {document.cluster_id} in {supervisor.plan.data_dir}",
        ("service", "address", "Swagger UI", "pid"),
        rows,
    )
    out.print(f"ZooKeeper {document.zookeeper}; logs in {supervisor.plan.logs}")
    out.print("Ready. Ctrl-C stops it; the data stays.")

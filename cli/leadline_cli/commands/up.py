"""`leadline up`: a cluster on this machine, in the foreground."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from leadline_cli.admin import BOOTSTRAP_VARIABLE, DataDir
from leadline_cli.cluster_file import DEFAULT_DATA_DIR
from leadline_cli.cluster_layout import PORT_RANGE, ClusterOptions
from leadline_cli.credentials import credentials_in
from leadline_cli.embedded_zookeeper import ServerConfig
from leadline_cli.files import exists
from leadline_cli.interruption import hang_up_signals
from leadline_cli.output import (
    EXIT_REFUSED,
    EXIT_USAGE,
    print_json,
    print_line,
    print_note,
    print_problem,
    print_table,
    print_warning,
)
from leadline_cli.service import split_pairs
from leadline_cli.supervisor import ClusterProblem, Supervisor
from leadline_client.security import CA_FILE_VARIABLE, TOKEN_FILE_VARIABLE
from leadline_common.private_files import keep_files_private
from leadline_common.settings import (
    BrokerSettings,
    ControllerSettings,
    CoordinatorSettings,
    SettingsError,
    load_settings,
)

Secure: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--secure/--no-secure",
        help="Speak TLS with clients, by certificates below --data-dir; by default as before.",
    ),
]
_ONE_EACH: Final = (
    "each service gets its own (see cluster.json); to choose it, run the service alone"
)
_MADE: Final = "`leadline up` makes it below --data-dir"
_SECURE: Final = "`leadline up --secure` makes it below --data-dir"
_FIXED: Final = {
    "zookeeper.connect": "use --zookeeper",
    "listen.host": "`leadline up` listens on 127.0.0.1",
    "listen.port": _ONE_EACH,
    "log.dir": "each broker gets its own directory below --data-dir",
    "broker.id": _ONE_EACH,
    "controller.id": _ONE_EACH,
    "coordinator.id": _ONE_EACH,
    "advertised.url": _ONE_EACH,
    "internal.listen.port": _ONE_EACH,
    "internal.advertised.url": _ONE_EACH,
    "internal.certificate.file": _MADE,
    "internal.ca.file": _MADE,
    "listen.tls.certificate.file": _SECURE,
    "tls.ca.file": _SECURE,
    "zookeeper.credentials.file": _MADE,
}
"""Settings that `--set` cannot change, and why."""


def up(
    *,
    brokers: Annotated[
        int | None, typer.Option(min=1, help="How many; by default as many as before, or 3.")
    ] = None,
    controllers: Annotated[
        int | None, typer.Option(min=1, help="How many; by default as many as before, or 2.")
    ] = None,
    coordinators: Annotated[
        int | None, typer.Option(min=0, help="How many; by default as many as before, or 2.")
    ] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    zookeeper: Annotated[
        str | None, typer.Option(metavar="HOSTS", help="Use this ZooKeeper; by default, start one.")
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of every service; repeatable."),
    ] = None,
    rack: Annotated[
        list[str] | None,
        typer.Option(help="A rack, repeatable; brokers are assigned to racks in turn."),
    ] = None,
    port_base: Annotated[
        int | None,
        typer.Option(
            min=1024,
            max=65_535 - PORT_RANGE,
            help="Fixed ports: ZooKeeper this one, broker N +N, controller N +100+N, …",
        ),
    ] = None,
    secure: Secure = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Restart a process that ends.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when ready.")
    ] = False,
) -> None:
    """Run a cluster until Ctrl-C; the same directory resumes the same cluster."""
    _check_installed(data_dir, zookeeper)
    keep_files_private()
    settings = _checked(pairs or ())
    options = ClusterOptions(
        data_dir,
        brokers,
        controllers,
        zookeeper,
        coordinators=coordinators,
        settings=settings,
        racks=rack or (),
        port_base=port_base,
        secure=secure,
    )
    try:
        asyncio.run(_run(options, restart=restart, as_json=as_json))
    except ClusterProblem as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_REFUSED) from None


def _check_installed(data_dir: Path, zookeeper: str | None) -> None:
    """Refuse to make a directory for a ZooKeeper that is not installed."""
    # One that exists may name another ZooKeeper. What cannot be looked at is refused later.
    if zookeeper is None and not exists(data_dir):
        ServerConfig.check_installed()


def _checked(pairs: Sequence[str]) -> dict[str, str]:
    try:
        settings = split_pairs(pairs)
        _check_names(settings)
    except SettingsError as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_USAGE) from None
    return settings


def _check_names(settings: dict[str, str]) -> None:
    """Check the settings before any process is started with them."""
    for name in settings:
        if name in _FIXED:
            raise SettingsError(f"{name} is not for --set: {_FIXED[name]}")
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
    # Closing a terminal sends SIGHUP, perhaps twice, and brokers hand over all the same.
    for number in hang_up_signals():
        loop.add_signal_handler(number, stop.set)
    try:
        report = _quiet if as_json else print_note
        missing = await _unless_stopped(supervisor, stop, report)
        if missing is None:
            return
        _announce(supervisor, missing, as_json=as_json)
        await supervisor.watch(stop, restart=restart, report=print_note)
    finally:
        await supervisor.stop()


def _end(supervisor: Supervisor, stop: asyncio.Event) -> None:
    """Stop the cluster in order at the first signal, and at once at the second."""
    if stop.is_set():
        supervisor.kill()
        return
    stop.set()
    print_note("stopping: brokers hand over leadership first; Ctrl-C again kills everything")


def _quiet(_: str) -> None:
    """Report nothing: with --json the only output is the document, and what goes wrong."""


async def _unless_stopped(
    supervisor: Supervisor, stop: asyncio.Event, report: Callable[[str], None]
) -> list[str] | None:
    """Start the cluster; return None if it was stopped before it was ready."""
    starting = asyncio.create_task(supervisor.start(report=report))
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
        print_warning(f"warning: {problem}")
    if as_json:
        print_json(document.to_json())
        return
    rows = [
        (service.name, service.url, f"{service.url}/docs", supervisor.children[service.name].pid)
        for service in supervisor.layout.services
    ]
    print_table(
        f"Cluster {document.cluster_id} in {supervisor.layout.data_dir}",
        ("service", "address", "Swagger UI", "pid"),
        rows,
    )
    print_line(f"ZooKeeper {document.zookeeper}; logs in {supervisor.layout.logs}")
    print_line("In another terminal, anywhere on this machine:")
    print_line(f"  export {BOOTSTRAP_VARIABLE}={','.join(row.url for row in document.brokers)}")
    if supervisor.layout.secure:
        credentials = credentials_in(supervisor.layout.data_dir)
        print_line(f"  export {CA_FILE_VARIABLE}={credentials.public_authority.absolute()}")
        print_line(f"  export {TOKEN_FILE_VARIABLE}={credentials.admin_token.absolute()}")
    print_line("Ready. Ctrl-C stops the cluster and keeps its data.")

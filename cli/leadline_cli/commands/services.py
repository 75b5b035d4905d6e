"""`leadline zookeeper|controller|broker|coordinator`: one service in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from leadline_cli import embedded_zookeeper
from leadline_cli.output import EXIT_USAGE, print_note, print_problem
from leadline_cli.service import run_service
from leadline_common.identity import UnusableCredentials
from leadline_common.settings import SettingsError
from leadline_common.tcp_ports import CannotListen, free_port

Pairs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting; repeatable."),
]
Config: TypeAlias = Annotated[
    Path | None, typer.Option(envvar="LEADLINE_CONFIG", help="A TOML file of settings.")
]


def zookeeper(
    data_dir: Annotated[Path, typer.Option(help="Its data directory.")],
    port: Annotated[int | None, typer.Option(help="Client port; a free one by default.")] = None,
) -> None:
    """Run a ZooKeeper server on loopback."""
    port = port or free_port()
    print_note(f"ZooKeeper on 127.0.0.1:{port}, data in {data_dir}")
    embedded_zookeeper.main(["--data-dir", str(data_dir), "--port", str(port)])


def controller(pairs: Pairs = None, config: Config = None) -> None:
    """Run a controller: it elects leaders and manages topics. One of several is active."""
    _run("controller", pairs, config)


def broker(pairs: Pairs = None, config: Config = None) -> None:
    """Run a broker: it holds replicas and serves produce and fetch."""
    _run("broker", pairs, config)


def coordinator(pairs: Pairs = None, config: Config = None) -> None:
    """Run a group coordinator: it assigns partitions to consumers. One of several is active."""
    _run("coordinator", pairs, config)


def _run(kind: str, pairs: list[str] | None, config: Path | None) -> None:
    try:
        run_service(kind, pairs or (), config)
    except (SettingsError, CannotListen, UnusableCredentials) as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_USAGE) from None

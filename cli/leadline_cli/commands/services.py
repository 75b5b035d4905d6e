"""`leadline zookeeper|controller|broker|coordinator`: one service alone, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from leadline_cli import embedded_zookeeper
from leadline_cli.output import EXIT_USAGE, err
from leadline_cli.service import run_service
from leadline_common.tcp_ports import CannotListen, free_port
from leadline_common.settings import SettingsError

Pairs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated."),
]
Config: TypeAlias = Annotated[
    Path | None, typer.Option(envvar="LEADLINE_CONFIG", help="A TOML file of settings.")
]


def zookeeper(
    data_dir: Annotated[Path, typer.Option(help="Where its data is kept.")],
    port: Annotated[int | None, typer.Option(help="Client port; a free one by default.")] = None,
) -> None:
    """Run a ZooKeeper server on loopback."""
    port = port or free_port()
    err.print(f"ZooKeeper on 127.0.0.1:{port}, data in {data_dir}")
    embedded_zookeeper.main(["--data-dir", str(data_dir), "--port", str(port)])


def controller(pairs: Pairs = None, config: Config = None) -> None:
    """Run a controller: elects leaders, creates and deletes topics. One of several is active."""
    _run("controller", pairs, config)


def broker(pairs: Pairs = None, config: Config = None) -> None:
    """Run a broker: holds replicas, serves produce and fetch."""
    _run("broker", pairs, config)


def coordinator(pairs: Pairs = None, config: Config = None) -> None:
    """Run a coordinator: shares partitions out within consumer groups. One of several is active."""
    _run("coordinator", pairs, config)


def _run(kind: str, pairs: list[str] | None, config: Path | None) -> None:
    try:
        run_service(kind, pairs or (), config)
    except (SettingsError, CannotListen) as problem:
        err.print(str(problem), style="red", markup=False)
        raise typer.Exit(EXIT_USAGE) from None

"""`leadline cluster init` and `leadline host`: a cluster on several machines."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from leadline_cli.credentials import UnusableAuthority
from leadline_cli.interruption import hang_up_signals
from leadline_cli.inventory import BadInventory, Inventory, read_inventory
from leadline_cli.output import (
    EXIT_REFUSED,
    EXIT_USAGE,
    print_line,
    print_note,
    print_problem,
    print_warning,
)
from leadline_common.identity import UnusableCredentials

if TYPE_CHECKING:
    from leadline_cli.host_files import Change, HostFiles
    from leadline_cli.host_runner import HostRunner

_DEFAULT: Final = Path("cluster")


def init(
    inventory: Annotated[Path, typer.Argument(help="The hosts, a TOML file: docs/three-hosts.md.")],
    directory: Annotated[
        Path, typer.Option("--directory", help="Where to; what was made before is kept.")
    ] = _DEFAULT,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the inventory, and write nothing.")
    ] = False,
) -> None:
    """Make settings, certificates and users for each host of an inventory."""
    try:
        found = read_inventory(inventory)
        changes, forgotten = _tried(found) if dry_run else _create(found, directory)
    except BadInventory as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_USAGE) from None
    except (UnusableAuthority, UnusableCredentials) as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_REFUSED) from None
    except OSError as problem:
        print_problem(f"cannot use {problem.filename or directory}: {problem.strerror}")
        raise typer.Exit(EXIT_REFUSED) from None
    for advice in found.advice():
        print_warning(f"warning: {advice}")
    for name in forgotten:
        print_warning(
            f"warning: the inventory has no host {name}: stop that host, then remove "
            f"{directory / name}"
        )
    _print(found, directory, changes, dry_run=dry_run)


def host(
    directory: Annotated[
        Path, typer.Argument(help="What `leadline cluster init` made for this host.")
    ],
) -> None:
    """Run the services of one host until Ctrl-C; one that ends is started again."""
    host_runner = import_module("leadline_cli.host_runner")  # it imports what services share
    try:
        runner = host_runner.HostRunner.enter(directory, print_note)
        asyncio.run(_run(runner))
    except host_runner.HostProblem as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_REFUSED) from None


async def _run(runner: HostRunner) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # When a terminal is closed, the broker still hands over.
    for number in (signal.SIGINT, signal.SIGTERM, *hang_up_signals()):
        loop.add_signal_handler(number, stop.set)
    await runner.run(stop)


def _create(inventory: Inventory, directory: Path) -> tuple[list[Change], list[str]]:
    """Make all files; return what has changed, and which directories are of no host."""
    host_files = import_module("leadline_cli.host_files")  # it imports all settings
    made: HostFiles = host_files.HostFiles(inventory, directory)
    return made.create(), made.forgotten()


def _tried(inventory: Inventory) -> tuple[list[Change], list[str]]:
    """Make everything for nothing, so that all mistakes are found."""
    with tempfile.TemporaryDirectory() as directory:
        _create(inventory, Path(directory))
    return [], []


def _print(
    inventory: Inventory, directory: Path, changes: Sequence[Change], *, dry_run: bool
) -> None:
    if dry_run:
        print_line(f"the inventory is right: {len(inventory.hosts)} hosts")
        return
    for one in inventory.hosts:
        own = [change for change in changes if change.path.parent.name == one.name]
        for change in own:
            if change.content is None:
                print_line(f"removed {change.path}: remove it on {one.address}, too")
            elif not change.is_new:
                print_line(f"changed {change.path}")
        if own:
            made = sum(change.is_new for change in own)
            print_line(f"{directory / one.name}: {made} new files; copy it to {one.address}")
    if not changes:
        print_line("nothing has changed")

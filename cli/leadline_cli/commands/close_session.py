"""`leadline close-session`: for whoever finds a service dead, such as a service manager."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from leadline_cli.output import EXIT_REFUSED, print_note, print_problem


def close_session(
    file: Annotated[Path, typer.Argument(help="The service's `zookeeper.session.file`.")],
) -> None:
    """Close the ZooKeeper session that a dead service left, so that others take over at once."""
    sessions = import_module("leadline_common.zk.session_file")  # kazoo takes its time
    try:
        left = asyncio.run(sessions.close_left_session(file))
    except (sessions.SessionNotClosed, OSError) as problem:
        print_problem(f"closed no session: {problem}")
        raise typer.Exit(EXIT_REFUSED) from None
    print_note("there is nothing to close" if left is None else f"closed session {left.session}")

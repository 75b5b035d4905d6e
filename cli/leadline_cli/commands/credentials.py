"""`leadline credentials`: the files by which services prove who they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, cast

import typer

from leadline_cli.certificates import name_of_host
from leadline_cli.credentials import Credentials, UnusableAuthority
from leadline_cli.output import EXIT_REFUSED, EXIT_USAGE, print_line, print_problem
from leadline_common.identity import KINDS, Kind, ServiceIdentity

app = typer.Typer(no_args_is_help=True)

_SERVICE: Final = re.compile(rf"({'|'.join(KINDS)})/([0-9]{{1,10}})")


@app.callback()
def credentials() -> None:
    """Make the certificates and users by which services prove who they are."""


@app.command()
def create(
    services: Annotated[
        list[str], typer.Argument(metavar="SERVICE…", help="Such as broker/1 or controller/2.")
    ],
    directory: Annotated[
        Path, typer.Option("--dir", help="Where to; files that exist are kept.")
    ] = Path("credentials"),
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="A name or an address by which clients reach these services, besides localhost; "
            "repeatable.",
        ),
    ] = None,
) -> None:
    """Make certificates of services, their authorities, and users for ZooKeeper."""
    try:
        identities = [_identity(service) for service in services]
        for host in hosts or ():
            name_of_host(host)
    except ValueError as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_USAGE) from None
    try:
        credentials = Credentials(directory)
        made = credentials.create(identities) + credentials.create_public(identities, hosts or ())
    except UnusableAuthority as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_REFUSED) from None
    except OSError as problem:
        print_problem(f"cannot write to {directory}: {problem.strerror}")
        raise typer.Exit(EXIT_REFUSED) from None
    for path in made:
        print_line(f"made {path}")


def _identity(text: str) -> ServiceIdentity:
    match = _SERVICE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no service: write {', '.join(f'{k}/1' for k in KINDS)}")
    return ServiceIdentity(cast("Kind", match[1]), int(match[2]))

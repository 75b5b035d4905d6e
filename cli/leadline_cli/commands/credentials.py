"""`leadline credentials`: the files by which services prove who they are."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from leadline_cli.certificates import name_of_host
from leadline_cli.credentials import Credentials, UnusableAuthority
from leadline_cli.output import EXIT_REFUSED, EXIT_UNKNOWN, EXIT_USAGE, print_line, print_problem
from leadline_common.identity import KINDS, Kind, ServiceIdentity, UnusableCredentials
from leadline_common.zk.credentials import ZkCredentials, read_credentials
from leadline_common.zk.errors import ZkError

if TYPE_CHECKING:
    from leadline_common.zk.restriction import Restriction

app = typer.Typer(no_args_is_help=True)

_SERVICE: Final = re.compile(rf"({'|'.join(KINDS)})/([0-9]{{1,10}})")
_AGAIN: Final = "Some nodes may have their new ACLs already: run the same command again"


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


@app.command()
def restrict(
    zookeeper: Annotated[
        str, typer.Option("--zookeeper", metavar="HOSTS", help="As in zookeeper.connect.")
    ],
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            help="An administrator's `user:password`, then `user:digest` of every other user; "
            "`world:anyone` among them opens all nodes to everybody.",
        ),
    ] = Path("credentials/zookeeper-operator"),
    ca: Annotated[
        Path | None, typer.Option("--ca", help="As zookeeper.tls.ca.file: connect over TLS.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="As zookeeper.tls.certificate.file.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would change, and change nothing.")
    ] = False,
) -> None:
    """Give ZooKeeper's nodes, while the cluster runs, the ACLs for the users of a file."""
    node_restriction = import_module("leadline_cli.node_restriction")  # kazoo takes its time
    try:
        credentials = _administrator(file)
        if ca is not None:
            credentials = replace(
                credentials, tls=import_module("leadline_common.zk.tls").ZkTls(ca, certificate)
            )
        elif certificate is not None:
            raise UnusableCredentials("--certificate needs --ca")  # noqa: TRY301 -- one way out
        done: Restriction = asyncio.run(
            node_restriction.restrict_nodes(zookeeper, credentials, dry_run=dry_run)
        )
    except node_restriction.Unfinished as problem:
        print_problem(f"{problem}. {_AGAIN}")
        raise typer.Exit(EXIT_UNKNOWN) from None
    except (UnusableCredentials, ZkError, ValueError) as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_USAGE if isinstance(problem, ValueError) else EXIT_REFUSED) from None
    would = "would be changed" if dry_run else "changed"
    print_line(f"{done.changed} nodes {would}, {done.unchanged} were right")
    for path in done.refused:
        print_problem(f"{path}: its ACL does not let this user change it")
    if done.refused:
        raise typer.Exit(EXIT_REFUSED)


def _administrator(file: Path) -> ZkCredentials:
    credentials = read_credentials(file)
    if not credentials.is_administrator:
        raise UnusableCredentials(
            f"{file} has the user of a service, who may not change ACLs: give the operator's"
        )
    return credentials


def _identity(text: str) -> ServiceIdentity:
    match = _SERVICE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no service: write {', '.join(f'{k}/1' for k in KINDS)}")
    return ServiceIdentity(cast("Kind", match[1]), int(match[2]))

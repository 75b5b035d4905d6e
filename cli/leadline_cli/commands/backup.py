"""`leadline cluster backup`: a copy of what a cluster cannot rebuild from its logs."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from leadline_cli.admin import DataDir, Json, known_cluster
from leadline_cli.cluster_file import DEFAULT_DATA_DIR, FILE_NAME
from leadline_cli.credentials import credentials_in
from leadline_cli.output import EXIT_REFUSED, print_json, print_line, print_problem
from leadline_common.identity import UnusableCredentials
from leadline_common.zk.credentials import ZkCredentials, read_credentials
from leadline_common.zk.errors import ZkError

if TYPE_CHECKING:
    from leadline_cli.backup.archive import Manifest

HISTORIES: Final = "controller-*/history.db"
"""Where a data directory has the controllers' histories."""

ZkHosts: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="HOSTS", help="As zookeeper.connect; with --data-dir it is found."),
]
Credentials: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The operator's ZooKeeper user; with --data-dir it is found."
    ),
]
ZkCa: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="As zookeeper.tls.ca.file.")
]
Certificate: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="As zookeeper.tls.certificate.file.")
]


def backup(
    file: Annotated[Path, typer.Argument(help="The backup; one that exists is replaced.")],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only read FILE, and compare it with its checksums.")
    ] = False,
    zookeeper: ZkHosts = None,
    credentials: Credentials = None,
    ca: ZkCa = None,
    certificate: Certificate = None,
    histories: Annotated[
        list[Path] | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="A controller's history.db; repeatable. With --data-dir they are found.",
        ),
    ] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Copy ZooKeeper's nodes and the histories of a cluster, which may be running, to one file."""
    try:
        if check:
            manifest: Manifest = import_module("leadline_cli.backup.archive").check_archive(file)
        else:
            login = login_from(credentials, ca, certificate, data_dir, found=zookeeper is None)
            hosts = zookeeper or _zookeeper_of(data_dir)
            copied = histories or ([] if zookeeper else sorted(data_dir.glob(HISTORIES)))
            making = import_module("leadline_cli.backup.making")  # kazoo takes its time
            manifest = making.make_backup(file, hosts, login, copied)
    except (UnusableCredentials, ZkError, ValueError, OSError) as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_REFUSED) from None
    if as_json:
        print_json(manifest.document())
    else:
        print_line(f"{file} {'is whole' if check else 'written'}: {_summary(manifest)}")


def _zookeeper_of(data_dir: Path) -> str:
    known = known_cluster(data_dir)
    if known is None:
        raise typer.BadParameter(
            f"no cluster to copy: give --zookeeper, or --data-dir with a {FILE_NAME} "
            f"(there is none in {data_dir})"
        )
    return known.zookeeper


def login_from(
    file: Path | None, ca: Path | None, certificate: Path | None, data_dir: Path, *, found: bool
) -> ZkCredentials | None:
    """Return what to log in with; the files of a data directory are for its own cluster.

    Raises:
        UnusableCredentials: a file cannot be used, or one is missing beside another.

    """
    own = credentials_in(data_dir).zookeeper_operator
    path = file or (own if found and own.exists() else None)
    if path is None:
        if ca or certificate:
            raise UnusableCredentials("--ca and --certificate need --credentials")
        return None
    login = read_credentials(path)
    if ca is not None:
        return replace(login, tls=import_module("leadline_common.zk.tls").ZkTls(ca, certificate))
    if certificate is not None:
        raise UnusableCredentials("--certificate needs --ca")
    return login


def _summary(manifest: Manifest) -> str:
    histories = len(manifest.members) - 1
    return (
        f"cluster {manifest.cluster_id}, release {manifest.release}, {manifest.nodes} nodes, "
        f"{histories} {'history' if histories == 1 else 'histories'}"
    )

"""How admin commands find the cluster: by address, or by the directory that it runs in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from leadline_cli.cluster_file import (
    DATA_DIR_VARIABLE,
    DEFAULT_DATA_DIR,
    FILE_NAME,
    ClusterFile,
    DamagedClusterFile,
    read_cluster_file,
)
from leadline_client.client import LeadlineClient
from leadline_client.retry import RetryPolicy
from leadline_client.targets import base_url

BOOTSTRAP_VARIABLE: Final = "LEADLINE_BOOTSTRAP"
PATIENCE: Final = RetryPolicy(timeout_s=15.0, first_contact_s=1.5)
"""What a failover takes is waited for; a cluster that is not there is told of at once."""

Bootstrap: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar=BOOTSTRAP_VARIABLE, metavar="URL[,URL]", help="Addresses of brokers, any of them."
    ),
]
DataDir: TypeAlias = Annotated[
    Path,
    typer.Option(
        envvar=DATA_DIR_VARIABLE, help="Directory of a cluster that `leadline up` runs here."
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def find_bootstrap(bootstrap: str | None, data_dir: Path) -> list[str]:
    """Return broker addresses, from what was given or from cluster.json.

    Raises:
        typer.BadParameter: there is neither.

    """
    if bootstrap:
        return [base_url(part.strip()) for part in bootstrap.split(",") if part.strip()]
    cluster = known_cluster(data_dir)
    if cluster is None:
        raise typer.BadParameter(
            f"no cluster to talk to: give --bootstrap, or --data-dir with a {FILE_NAME} "
            f"(there is none in {data_dir})"
        )
    return [broker.url for broker in cluster.brokers]


def known_cluster(data_dir: Path) -> ClusterFile | None:
    """Return what runs in the directory, or None where nothing ever did.

    Raises:
        typer.BadParameter: the directory does not say it.

    """
    try:
        return read_cluster_file(data_dir)
    except DamagedClusterFile as problem:
        raise typer.BadParameter(str(problem), param_hint="--data-dir") from None


def connect(bootstrap: str | None, data_dir: Path) -> LeadlineClient:
    """Return a client of the cluster that was meant."""
    return LeadlineClient(find_bootstrap(bootstrap, data_dir), policy=PATIENCE)


__all__ = [
    "DEFAULT_DATA_DIR",
    "PATIENCE",
    "Bootstrap",
    "DataDir",
    "Json",
    "connect",
    "find_bootstrap",
    "known_cluster",
]

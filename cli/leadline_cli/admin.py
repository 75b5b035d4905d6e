"""What all admin commands share: how they find the cluster, and how they print its answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

import typer

from leadline_cli.cluster_file import (
    DATA_DIR_VARIABLE,
    DEFAULT_DATA_DIR,
    FILE_NAME,
    ClusterFile,
    DamagedClusterFile,
    read_cluster_file,
)
from leadline_cli.command_tracing import command_span
from leadline_cli.credentials import client_security
from leadline_cli.output import print_json, print_line, reported
from leadline_client.bootstrap import base_urls
from leadline_client.errors import InvalidRequest
from leadline_client.retry import RetryPolicy
from leadline_client.security import (
    CA_FILE_VARIABLE,
    CERTIFICATE_FILE_VARIABLE,
    TOKEN_FILE_VARIABLE,
    Security,
)

if TYPE_CHECKING:
    from leadline_client.client import Client

BOOTSTRAP_VARIABLE: Final = "LEADLINE_BOOTSTRAP"
RETRY_POLICY: Final = RetryPolicy(timeout_s=15.0, first_contact_s=1.5)
"""Commands wait out a failover. If no broker is reachable, they fail after about two seconds."""

Bootstrap: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar=BOOTSTRAP_VARIABLE, metavar="URL[,URL]", help="Addresses of one or more brokers."
    ),
]
DataDir: TypeAlias = Annotated[
    Path,
    typer.Option(
        envvar=DATA_DIR_VARIABLE, help="Data directory of a cluster that `leadline up` runs here."
    ),
]
CaFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar=CA_FILE_VARIABLE,
        metavar="FILE",
        help="Authorities (PEM) of the brokers' certificates; with --data-dir it is found.",
    ),
]
TokenFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar=TOKEN_FILE_VARIABLE,
        metavar="FILE",
        help="The token that brokers ask for; with --data-dir it is found.",
    ),
]
CertificateFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar=CERTIFICATE_FILE_VARIABLE,
        metavar="FILE",
        help="A certificate to show to brokers, and its key (PEM).",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only check the request.")]

_P = ParamSpec("_P")
_Document = TypeVar("_Document")


@dataclass(frozen=True, slots=True)
class AdminContext:
    """The options that every admin command has: where the cluster is, how to connect, `--json`."""

    bootstrap: str | None
    data_dir: Path
    as_json: bool
    given: Security

    @property
    def urls(self) -> list[str]:
        """The addresses of brokers; raises typer.BadParameter where no cluster is known."""
        return find_bootstrap(self.bootstrap, self.data_dir)

    @property
    def security(self) -> Security:
        """How to connect to the cluster."""
        return find_security(self.bootstrap, self.data_dir, self.given)

    @contextmanager
    def connect(self, *, reads: bool = False) -> Iterator[Client]:
        """Give a client of the cluster; `reads`: the body changes nothing.

        Raises:
            typer.Exit: the body raised a LeadlineError; it is printed, and the exit code says
                whether the request was refused or its outcome is unknown.

        """
        with (
            reported(as_json=self.as_json, reads=reads),
            self.client(RETRY_POLICY) as client,
        ):
            yield client

    def client(self, policy: RetryPolicy) -> Client:
        """Return a client of the cluster; its errors are the caller's."""
        # Imported here because an HTTP library takes longer to load than `--help` to print.
        kind = import_module("leadline_client.client").Client
        made: Client = kind(self.urls, policy=policy, security=self.security)
        return made

    def show(self, document: _Document, for_people: str | Callable[[_Document], None]) -> None:
        """Print a document as JSON with `--json`, or else as text.

        The text is a sentence, or whatever the function prints that is given the document.
        """
        if self.as_json:
            print_json(document)
        elif isinstance(for_people, str):
            print_line(for_people)
        else:
            for_people(document)


def command_group(help_text: str) -> typer.Typer:
    """Return an empty group of commands, which prints its help if none of them is given."""
    return typer.Typer(add_completion=False, no_args_is_help=True, help=help_text)


def admin_command(command: Callable[Concatenate[AdminContext, _P], None]) -> Callable[..., None]:
    """Give a command the options of an `AdminContext`, which it takes as its first parameter."""
    signature = inspect.signature(command, eval_str=True)
    _, *own = signature.parameters.values()

    @wraps(command)
    def run(
        *,
        bootstrap: str | None,
        data_dir: Path,
        as_json: bool,
        ca_file: str | None,
        token_file: str | None,
        certificate_file: str | None,
        **own_options: Any,
    ) -> None:
        takes_any: Callable[..., None] = command
        given = Security(ca_file, None, token_file, certificate_file)
        with command_span(command.__name__):
            takes_any(AdminContext(bootstrap, data_dir, as_json, given), **own_options)

    parameters = [*own, *_ADMIN_OPTIONS]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # Typer reads a command's options from its signature.
    run.__dict__["__signature__"] = signature.replace(parameters=parameters)
    return run


def _option(name: str, default: object, annotation: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


_ADMIN_OPTIONS: Final = (
    _option("bootstrap", None, Bootstrap),
    _option("data_dir", DEFAULT_DATA_DIR, DataDir),
    _option("ca_file", None, CaFile),
    _option("token_file", None, TokenFile),
    _option("certificate_file", None, CertificateFile),
    _option("as_json", False, Json),
)


def find_bootstrap(bootstrap: str | None, data_dir: Path) -> list[str]:
    """Return broker addresses, from `--bootstrap` or from the directory's cluster.json.

    Raises:
        typer.BadParameter: there is neither, or an address is none.

    """
    if bootstrap:
        try:
            return list(base_urls(bootstrap))
        except InvalidRequest as problem:
            raise typer.BadParameter(problem.message, param_hint="--bootstrap") from None
    cluster = known_cluster(data_dir)
    if cluster is None:
        raise typer.BadParameter(
            f"no cluster to connect to: give --bootstrap, or --data-dir with a {FILE_NAME} "
            f"(there is none in {data_dir})"
        )
    return [broker.url for broker in cluster.brokers]


def find_security(bootstrap: str | None, data_dir: Path, given: Security) -> Security:
    """Return how to connect to the cluster that `find_bootstrap` finds.

    The files of a data directory are for its own cluster, and for none that `--bootstrap` names.
    """
    return given if bootstrap else client_security(data_dir, given)


def known_cluster(data_dir: Path) -> ClusterFile | None:
    """Return the cluster of the directory, or None if none ever ran there.

    Raises:
        typer.BadParameter: its cluster.json cannot be read.

    """
    try:
        return read_cluster_file(data_dir)
    except DamagedClusterFile as problem:
        raise typer.BadParameter(str(problem), param_hint="--data-dir") from None

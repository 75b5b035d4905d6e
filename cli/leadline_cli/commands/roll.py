"""`leadline cluster`: work on all services of a cluster."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from leadline_cli.admin import AdminContext, DryRun, admin_command, command_group, known_cluster
from leadline_cli.commands.backup import backup
from leadline_cli.commands.hosts import init
from leadline_cli.commands.restore import restore, survey
from leadline_cli.output import EXIT_REFUSED, EXIT_UNKNOWN, print_note, print_problem
from leadline_cli.restart_requests import answers_ready, restart_service
from leadline_cli.rolling import (
    RollingRestart,
    RollStopped,
    Target,
    roll_order,
    targets_of,
)
from leadline_client.security import Authenticator
from leadline_client.wire import BrokerInfo
from leadline_common.identity import Kind

app = command_group("Prepare hosts, back up and restore, and restart all services of a cluster.")
app.command()(init)
app.command()(backup)
app.command()(restore)
app.command()(survey)

_FIELDS: Final = ("service", "id", "host", "name", "url")


@app.command()
@admin_command
def roll(
    admin: AdminContext,
    *,
    only: Annotated[Kind | None, typer.Option(help="Only services of this kind.")] = None,
    skip: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Not this service: broker-1.")
    ] = None,
    restart_command: Annotated[
        str | None,
        typer.Option(
            help="Restarts one service, without a shell; {service}, {id}, {name}, {host} and {url} "
            "are replaced. By default `leadline up` restarts its processes."
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds to wait for each service.")
    ] = 300.0,
    dry_run: DryRun = False,
) -> None:
    """Restart one service after another, each when it may stop; stop if one does not return."""
    words = _template(restart_command)
    with admin.connect() as client:
        metadata = client.metadata()
        targets = _targets(admin, words, only, metadata.brokers.values())
        active = metadata.controller.id if metadata.controller else None
        order = roll_order(targets, active, only=only, skip=_known(skip or [], targets))
        done: list[str] = []
        authenticator = Authenticator(admin.security)

        def is_ready(target: Target) -> bool:
            return answers_ready(target.url, authenticator)

        rolling = RollingRestart(client, _restarter(admin, words), is_ready, deadline)
        for target in [] if dry_run else order:
            print_note(f"restarting {target.name}")
            try:
                rolling.roll(target)
            except RollStopped as stopped:
                print_problem(str(stopped))
                _print_rest([*(skip or []), *done])
                raise typer.Exit(EXIT_UNKNOWN if stopped.unknown else EXIT_REFUSED) from None
            except KeyboardInterrupt:
                print_note(f"interrupted: {target.name} may be restarting")
                _print_rest([*(skip or []), *done])
                raise
            done.append(target.name)
    names = [target.name for target in order]
    document = {"dry_run": dry_run, "services": names}
    text = "would restart" if dry_run else "restarted"
    admin.show(document, f"{text} {', '.join(names) or 'nothing'}")


def _targets(
    admin: AdminContext, words: list[str], only: Kind | None, brokers: Iterable[BrokerInfo]
) -> list[Target]:
    """Return the services to choose from: those of cluster.json, or else the live brokers.

    Raises:
        typer.BadParameter: the services are not known, or nothing can restart them.

    """
    if admin.bootstrap:
        if only != "broker" or not words:
            raise typer.BadParameter(
                "with --bootstrap only brokers are known: give --only broker and --restart-command"
            )
        return [Target("broker", row.id, row.url) for row in brokers]
    known = known_cluster(admin.data_dir)
    return targets_of(known) if known else []


def _template(command: str | None) -> list[str]:
    """Split and check a `--restart-command`; raises typer.BadParameter if it is unusable."""
    try:
        words = shlex.split(command or "")
        for word in words:
            word.format(**dict.fromkeys(_FIELDS, ""))
    except (ValueError, KeyError, IndexError, AttributeError) as problem:
        raise typer.BadParameter(
            f"{command!r} is no command: {problem}; known fields: {', '.join(_FIELDS)}",
            param_hint="--restart-command",
        ) from None
    return words


def _known(skip: list[str], targets: list[Target]) -> list[str]:
    names = {target.name for target in targets}
    for name in skip:
        if name not in names:
            raise typer.BadParameter(f"{name} is none of {', '.join(sorted(names))}")
    return skip


def _restarter(admin: AdminContext, words: list[str]) -> Callable[[Target], None]:
    def by_supervisor(target: Target) -> None:
        restart_service(admin.data_dir, target.name)

    def by_command(target: Target) -> None:
        fields = {
            "service": target.kind,
            "id": target.id,
            "name": target.name,
            "host": urlsplit(target.url).hostname,
            "url": target.url,
        }
        argv = [word.format(**fields) for word in words]
        try:
            # Its output is progress: standard output has the command's own result.
            ended = subprocess.run(  # noqa: S603 - the operator's own command, no shell
                argv, check=False, stdin=subprocess.DEVNULL, stdout=sys.stderr
            )
        except OSError as problem:
            raise RuntimeError(f"{argv[0]}: {problem.strerror}") from problem
        if ended.returncode:
            raise RuntimeError(f"`{shlex.join(argv)}` ended with {ended.returncode}")

    return by_command if words else by_supervisor


def _print_rest(done: list[str]) -> None:
    skipped = "".join(f" --skip {name}" for name in done)
    print_note(f"to go on: the same command{' with' if done else ''}{skipped}")

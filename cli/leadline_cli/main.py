"""The `leadline` command. Each subcommand's module is imported when it is called."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

_COMMANDS: Final = {
    "up": "up:up",
    "demo": "demo:demo",
    "doctor": "doctor:doctor",
    "topics": "topics:app",
    "partitions": "partitions:app",
    "brokers": "brokers:app",
    "metadata": "cluster:metadata",
    "elect": "cluster:elect",
    "configs": "configs:app",
    "audit": "audit:audit",
    "explain": "audit:explain",
    "failed-brokers": "failed_brokers:failed_brokers",
    "plan": "plans:plan",
    "reassign": "reassign:app",
    "tasks": "tasks:app",
    "produce": "records:produce",
    "consume": "records:consume",
    "groups": "groups:app",
    "spark": "spark:app",
    "zookeeper": "services:zookeeper",
    "controller": "services:controller",
    "broker": "services:broker",
    "coordinator": "services:coordinator",
}
"""Subcommand: module of `leadline_cli.commands`, and the function or group in it."""


class LazyGroup(TyperGroup):
    """Knows its subcommands by name, and loads one when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as overridden
        """Return the names, in the order of the help text."""
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as overridden
        """Import and return one subcommand."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        found = getattr(import_module(f"leadline_cli.commands.{module}"), attribute)
        group = found
        if not isinstance(found, typer.Typer):
            group = typer.Typer(add_completion=False)
            group.command(cmd_name)(found)
        command = typer.main.get_command(group)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Leadline: a replicated log whose control plane is plain HTTP.",
    epilog="Exit codes: 0 done; 1 refused, or the answer is no; 2 usage; 3 the outcome is unknown: "
    "look before you repeat it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("leadline-cli"))
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Run clusters, look at them, and change them."""

"""The `leadline` command. Each subcommand's module is imported only when that subcommand runs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from leadline_cli.local_extra import PackageMissing
from leadline_cli.lost_output import OutputLost, without_lost_messages
from leadline_cli.plain_values import NO_HELP, convert_without_pydantic


class _Subcommand(NamedTuple):
    """Where a subcommand is defined (`module:function or group`), and its line in the help."""

    target: str
    summary: str


SUBCOMMANDS: Final = {
    "up": _Subcommand(
        "up:up", "Run a cluster until Ctrl-C; the same directory resumes the same cluster."
    ),
    "demo": _Subcommand(
        "demo:demo",
        "Stream a file through a cluster, kill its leaders meanwhile, then check every line.",
    ),
    "doctor": _Subcommand(
        "doctor:doctor", "Check this machine and the cluster; exit with 1 if something is wrong."
    ),
    "topics": _Subcommand("topics:app", "List, create, describe and delete topics."),
    "partitions": _Subcommand("partitions:app", "Add partitions to a topic, or remove some."),
    "brokers": _Subcommand(
        "brokers:app", "List brokers, check whether one can stop, drain it, and restart it."
    ),
    "cluster": _Subcommand(
        "roll:app", "Prepare hosts, back up and restore, and restart all services of a cluster."
    ),
    "metadata": _Subcommand(
        "cluster:metadata", "Show the cluster metadata as one consistent snapshot."
    ),
    "elect": _Subcommand(
        "cluster:elect", "Elect leaders: the preferred replica, or with unclean any live one."
    ),
    "configs": _Subcommand(
        "configs:app", "Show and change settings of the cluster, a broker or a topic."
    ),
    "credentials": _Subcommand(
        "credentials:app", "Make the certificates and users by which services prove who they are."
    ),
    "users": _Subcommand("users:app", "Create users, grant them roles, and make their tokens."),
    "audit": _Subcommand(
        "audit:audit", "List audit entries, newest first; with --json one entry per line."
    ),
    "explain": _Subcommand(
        "audit:explain",
        "Explain a partition's leader: show every change with its reason and cause.",
    ),
    "failed-brokers": _Subcommand(
        "brokers:failed_brokers",
        "List brokers that are down and their self-healing, or the history of failures.",
    ),
    "plan": _Subcommand(
        "reassign:plan", "Plan to balance brokers, to expand to new ones, or to drain some."
    ),
    "reassign": _Subcommand(
        "reassign:app", "Start, list, follow, throttle and cancel reassignments."
    ),
    "tasks": _Subcommand("tasks:app", "List, follow, throttle and cancel long-running tasks."),
    "produce": _Subcommand(
        "produce:produce",
        "Send each line as a record as it arrives; with acks=all no record is stored twice.",
    ),
    "consume": _Subcommand(
        "consume:consume",
        "Print records, each partition in order, up to the current end unless --follow.",
    ),
    "groups": _Subcommand("groups:app", "Show and change consumer groups."),
    "spark": _Subcommand("spark:app", "Run Spark jobs on this machine or on a cluster (--master)."),
    "host": _Subcommand(
        "hosts:host", "Run the services of one host until Ctrl-C; one that ends is started again."
    ),
    "zookeeper": _Subcommand("services:zookeeper", "Run a ZooKeeper server on loopback."),
    "controller": _Subcommand(
        "services:controller",
        "Run a controller: it elects leaders and manages topics. One of several is active.",
    ),
    "broker": _Subcommand(
        "services:broker", "Run a broker: it holds replicas and serves produce and fetch."
    ),
    "coordinator": _Subcommand(
        "services:coordinator",
        "Run a group coordinator: it assigns partitions to consumers. One of several is active.",
    ),
    "close-session": _Subcommand(
        "close_session:close_session",
        "Close the ZooKeeper session that a dead service left, so that others take over at once.",
    ),
}
"""The subcommands in the order of the help text.

The summaries are repeated here so that `leadline --help` imports no command. A unit test compares
them with the commands' own help.
"""


_NEAR: Final = 0.75
"""How similar a name must be to be suggested."""

_EXIT_USAGE: Final = 2
_EXIT_UNKNOWN: Final = 3

_UTF_8: Final = re.compile("utf-?8", re.IGNORECASE)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def load(name: str) -> Any:
    """Import a subcommand and return it as click's command."""
    module, _, attribute = SUBCOMMANDS[name].target.partition(":")
    found = getattr(import_module(f"leadline_cli.commands.{module}"), attribute)
    if "structlog" in sys.modules:  # It has imported parts of the services, which log.
        import_module("leadline_cli.log_lines").warn_on_stderr()
    group = found
    if not isinstance(found, typer.Typer):
        group = typer.Typer(add_completion=False)
        group.command(name)(found)
    command = typer.main.get_command(group)
    command.name = name
    convert_without_pydantic(command)
    return command


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Print errors of usage as lines: a frame would break the commands and addresses in them.

    Of the options that typer suggests, only near ones are left.
    """
    try:
        yield
    except TyperException as error:
        usage: Any = error
        if possible := getattr(usage, "possibilities", None):
            usage.possibilities = _near(usage.option_name, possible)
        with without_lost_messages():
            usage.show()
        raise typer.Exit(error.exit_code) from None
    except PackageMissing as missing:
        _print_error(str(missing))
        raise typer.Exit(_EXIT_USAGE) from None
    except OutputLost as problem:
        # Not 1: a script that repeats after that would do again what was done.
        what = f"cannot write the result ({problem}): look what was done before you repeat it"
        _print_error(what)
        raise typer.Exit(_EXIT_UNKNOWN) from None
    except UnicodeEncodeError as error:
        # Python keeps what is not UTF-8 in arguments as halves of surrogate pairs. Only names of
        # files may have them.
        if not _SURROGATE.search(error.object):
            raise
        _print_error("an argument is not valid UTF-8")
        raise typer.Exit(_EXIT_USAGE) from None


def _print_error(text: str) -> None:
    with without_lost_messages():
        typer.echo(f"error: {text}", err=True)


def _open_streams() -> None:
    """Give a process that lacks a standard stream an empty one, in the order of their numbers.

    Commands use them. Their descriptors would otherwise become those of some sockets.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _escape_what_is_not_encoded() -> None:
    """Print letters that the encoding of the terminal lacks as escapes, instead of failing."""
    output = sys.stdout
    if isinstance(output, TextIOWrapper) and not _UTF_8.fullmatch(output.encoding):
        output.reconfigure(errors="backslashreplace")


def _forget_a_width_of_zero() -> None:
    """Take `COLUMNS=0`, which some containers and editors set, for an unknown width.

    Python does so, too. Rich would print nothing at all: no help, no table and no error.
    """
    if "COLUMNS" in os.environ and not os.environ["COLUMNS"].strip("0"):
        del os.environ["COLUMNS"]


def _near(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names of which `name` may be a misspelling."""
    return get_close_matches(name, list(known), 2, _NEAR)


class LazyGroup(TyperGroup):
    """A group that lists its subcommands without importing them."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments of the command itself."""
        _open_streams()
        _escape_what_is_not_encoded()
        _forget_a_width_of_zero()
        with _plain_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        with _plain_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as overridden
        """Return the names, in the order of the help text."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as overridden
        """Return a placeholder with the subcommand's name and summary."""
        if cmd_name not in SUBCOMMANDS:
            return None
        return TyperCommand(cmd_name, help=SUBCOMMANDS[cmd_name].summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the subcommand that is about to run, and return it with its arguments."""
        if args[0] not in SUBCOMMANDS and (near := _near(args[0], SUBCOMMANDS)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load(name), rest


app = typer.Typer(
    cls=LazyGroup,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Leadline: a replicated log whose control plane is plain HTTP.",
    epilog="Exit codes: 0 done; 1 refused, or the answer is no; 2 usage; 3 the outcome is unknown: "
    "look before you repeat it.",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "default_map": NO_HELP | {"install_completion": False, "show_completion": False},
    },
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(import_module("importlib.metadata").version("leadline-cli"))
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
    """Run, inspect and change clusters."""

"""What commands print, and how they end.

Tables for people, JSON for scripts. Exit codes: 0 done, 1 refused, 2 usage, 3 unknown outcome, also
of a command whose result could not be printed: a script may repeat after 1, and must look first
after 3.

Rich is imported only when something is printed that needs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import typer

from leadline_cli.lost_output import lose_messages, lose_pipe, without_lost_messages, written
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    BrokerFenced,
    CoordinatorNotAvailable,
    GroupNotEmpty,
    InternalError,
    LeaderNotAvailable,
    LeadlineError,
    LogTruncated,
    NoController,
    NotEnoughReplicas,
    OffsetOutOfRange,
    OutcomeUnknown,
    ReassignmentInProgress,
    StaleVersion,
    StorageFailed,
    TaskIsOver,
    TopicDeletionPending,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
    Unreachable,
)
from leadline_client.wire import NO_LEADER, PartitionInfo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNKNOWN: Final = 3
EXIT_INTERRUPTED: Final = 130

_ADVICE: Final[dict[type[LeadlineError], str]] = {
    Unreachable: "check the address (--bootstrap, --data-dir) and that the cluster runs",
    NoController: "wait for a controller to take over; `leadline doctor` says which processes run",
    LeaderNotAvailable: "start a broker of the partition's ISR again; see `leadline doctor`",
    NotEnoughReplicas: "start the missing followers again, or accept a lower min.insync.replicas",
    BrokerFenced: "wait until the broker has joined the cluster again; `leadline doctor` says "
    "what prevents it",
    UnknownTopic: "see `leadline topics list` for the existing topics",
    UnknownPartition: "see `leadline topics describe` for the existing partitions",
    TopicDeletionPending: "wait for the deletion to finish, then try again",
    AllKnownBrokersNotAvailable: "start the cluster (`leadline up`), or give the address of "
    "another (--bootstrap, --data-dir); `leadline doctor` looks for the cause",
    CoordinatorNotAvailable: "wait for a coordinator to take over, or start one (`leadline up "
    "--coordinators 2`); `leadline doctor` says which run",
    GroupNotEmpty: "stop the group's consumers first; `leadline groups describe` names them",
    UnknownGroup: "see `leadline groups list` for the existing groups",
    UnknownMember: "see `leadline groups describe` for the current members",
    OffsetOutOfRange: "use --from earliest or --from latest",
    LogTruncated: "undo what came of the records that are gone, and read on with --from N; in a "
    "group: `leadline groups reset GROUP --offset TOPIC-PARTITION=N`",
    ReassignmentInProgress: "see `leadline tasks list` and `leadline reassign list`: wait for "
    "it, or cancel it first",
    TaskIsOver: "see `leadline tasks status` for its outcome",
    StaleVersion: "read the current state, then decide again",
    StorageFailed: "free space on the broker's disk, or replace the disk",
    InternalError: "search the service's log for the cause id",
}
_WIDEST: Final = 100_000
_NO_ANSWER: Final = "ask another broker (--bootstrap); `leadline doctor` looks for the cause"
_LOOK_FIRST: Final = "the request may or may not have been applied: look before you repeat it"


def advice_for(error: LeadlineError) -> str | None:
    """Return advice for the user about an error."""
    if isinstance(error, OutcomeUnknown):
        return _LOOK_FIRST
    return _ADVICE.get(type(error))


@cache
def console(*, stderr: bool = False) -> Console:
    """Return the console of standard output or standard error.

    It prints text as it is: a group `env:key:prod` has no emoji in its name, and the pattern
    `orders-[a-z]+` no markup.
    """
    made: Console = import_module("rich.console").Console(
        stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False
    )
    # Rich would exit with 1.
    made.__dict__["on_broken_pipe"] = lose_messages if stderr else lose_pipe
    return made


@contextmanager
def reported(*, as_json: bool, reads: bool = False) -> Iterator[None]:
    """Turn an error into a message and the exit code that goes with its outcome.

    `reads`: the block changes nothing, so that only an answer can be lost.
    """
    try:
        yield
    except LeadlineError as error:
        lost = isinstance(error, OutcomeUnknown)
        print_error(error, as_json=as_json, reads=reads)
        raise typer.Exit(EXIT_UNKNOWN if lost and not reads else EXIT_REFUSED) from None


def print_error(error: LeadlineError, *, as_json: bool, reads: bool = False) -> None:
    """Print code, message and advice to standard error; `reads` as for `reported`."""
    only_read = reads and isinstance(error, OutcomeUnknown)
    advice = _NO_ANSWER if only_read else advice_for(error)
    outcome = {"outcome": "refused"} if only_read else {}
    _print_error(error, outcome, advice, as_json=as_json)


def print_lost(error: LeadlineError, advice: str, *, as_json: bool) -> None:
    """Print an error in the middle of work that was accepted, and so has an unknown outcome."""
    _print_error(error, {"outcome": "unknown"}, advice, as_json=as_json)


def _print_error(
    error: LeadlineError, outcome: dict[str, str], advice: str | None, *, as_json: bool
) -> None:
    if as_json:
        body = error.body() | outcome | ({"advice": advice} if advice else {})
        print_note(json.dumps(body, default=str))
        return
    print_problem(f"error {error.code}: {error.message}")
    if advice:
        print_note(f"  what to do: {advice}")


def print_line(text: str) -> None:
    """Print a line to standard output."""
    with written():
        typer.echo(text)


def print_note(text: str) -> None:
    """Print a line to standard error."""
    with without_lost_messages():
        typer.echo(text, err=True)


def print_warning(text: str) -> None:
    """Print a line to standard error, in yellow on a terminal."""
    with without_lost_messages():
        console(stderr=True).print(text, style="yellow")


def print_problem(text: str) -> None:
    """Print a line to standard error, in red on a terminal."""
    with without_lost_messages():
        console(stderr=True).print(text, style="red")


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before an action that cannot be undone, unless `yes`; exit with 1 on a no."""
    if not yes:
        typer.confirm(question, abort=True)


def print_json(document: Any) -> None:
    """Print one line of JSON, at once: it may go to a program that waits for it."""
    with written():
        typer.echo(json.dumps(document))
        sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as a table, or one line if there are none."""
    table = table_of(title, columns, rows)
    if table.row_count:
        show_table(table)
    else:
        print_line(f"{title}: none")


def show_table(table: Table) -> None:
    """Print a table so that no word of it is broken, such as an address or a setting's name.

    Through a pipe no line is broken either, so that `grep` finds whole rows. A terminal breaks
    lines between words, and itself where the words are too long for it.
    """
    output = console()
    measure = import_module("rich.measure").Measurement.get
    wide = output.options.update(max_width=_WIDEST)
    size = measure(output, wide, table)
    fitting = max(output.width, size.minimum) if output.is_terminal else size.maximum
    table.width = min(fitting, size.maximum)
    with written():
        output.print(table)


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return rows as a table; a cell is a Rich text, or anything else with a `str` of its own."""
    text = import_module("rich.text").Text
    table: Table = import_module("rich.table").Table(title=title, title_justify="left")
    cells = [[cell if isinstance(cell, text) else text(str(cell)) for cell in row] for row in rows]
    for index, column in enumerate(columns):
        words = [word for row in cells for word in row[index].plain.split()]
        # A narrow terminal breaks lines between words: it breaks no word, and cuts nothing off.
        table.add_column(
            column,
            overflow="fold",
            min_width=max(map(len, (*words, *column.split())), default=0),
            no_wrap=not any(" " in row[index].plain for row in cells),
        )
    for row in cells:
        table.add_row(*row)
    return table


def leader_name(broker_id: int) -> str:
    """Return a leader as people read it."""
    return "none" if broker_id == NO_LEADER else str(broker_id)


def partition_cells(row: PartitionInfo) -> tuple[str, ...]:
    """Return partition, leader, leader epoch, in-sync replicas and all replicas."""
    return (
        str(row.partition),
        leader_name(row.leader),
        str(row.leader_epoch),
        numbers(row.isr),
        numbers(row.replicas),
    )


def numbers(values: Iterable[int]) -> str:
    """Return replica ids as people read them: `1 2 3`."""
    return " ".join(map(str, values))

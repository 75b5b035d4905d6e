"""What admin commands print, and how they end.

Tables for people, JSON for scripts. Exit codes: 0 done, 1 refused, 2 usage, 3
unknown outcome: a script may repeat after 1, and must look first after 3.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    BrokerFenced,
    CoordinatorNotAvailable,
    GroupNotEmpty,
    InternalError,
    InvalidRequest,
    LeaderNotAvailable,
    LeadlineError,
    NoController,
    NotEnoughReplicas,
    OffsetOutOfRange,
    OutcomeUnknown,
    PolicyViolation,
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

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNKNOWN: Final = 3
EXIT_INTERRUPTED: Final = 130

Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
"""For what cannot be undone."""

# What is printed is printed as it is: a group `env:key:prod` has no emoji in its name, and the
# pattern `orders-[a-z]+` no markup.
out = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)

_ADVICE: Final[dict[type[LeadlineError], str]] = {
    Unreachable: "check the address (--bootstrap, --data-dir) and that the cluster runs",
    NoController: "wait for a controller to take over; `leadline doctor` says which processes run",
    LeaderNotAvailable: "bring a broker of the partition's ISR back; see `leadline doctor`",
    NotEnoughReplicas: "bring followers back, or lower min.insync.replicas knowingly",
    BrokerFenced: "wait for the broker to be back in the cluster; `leadline doctor` says what "
    "keeps it",
    UnknownTopic: "see `leadline topics list` for the names there are",
    UnknownPartition: "see `leadline topics describe` for the partitions there are",
    TopicDeletionPending: "wait for the deletion to finish, then try again",
    AllKnownBrokersNotAvailable: "start the cluster (`leadline up`), or give the address of "
    "another (--bootstrap, --data-dir); `leadline doctor` looks into it",
    CoordinatorNotAvailable: "wait for a coordinator to take over, or start one (`leadline up "
    "--coordinators 2`); `leadline doctor` says which run",
    GroupNotEmpty: "stop the group's consumers first; `leadline groups describe` names them",
    UnknownGroup: "see `leadline groups list` for the groups there are",
    UnknownMember: "see `leadline groups describe` for the members there are",
    OffsetOutOfRange: "use --from earliest or --from latest",
    ReassignmentInProgress: "see `leadline tasks list` and `leadline reassign list`: wait for "
    "that, or cancel it first",
    TaskIsOver: "see `leadline tasks status` for how it ended",
    PolicyViolation: "change the request as the message says",
    StaleVersion: "look again at what has changed, then decide anew",
    InvalidRequest: "change the request as the message says",
    StorageFailed: "make room on the broker's disk, or replace it",
    InternalError: "look into the service's log for the cause id",
}
_LOOK_FIRST: Final = "it may or may not have happened: look before you repeat it"


def advice_for(error: LeadlineError) -> str | None:
    """Return what somebody at the terminal can do about an error."""
    if isinstance(error, OutcomeUnknown):
        return _LOOK_FIRST
    return _ADVICE.get(type(error))


@contextmanager
def reported(*, as_json: bool) -> Iterator[None]:
    """Turn an error into a message and the exit code that goes with its outcome."""
    try:
        yield
    except LeadlineError as error:
        print_error(error, as_json=as_json)
        code = EXIT_UNKNOWN if isinstance(error, OutcomeUnknown) else EXIT_REFUSED
        raise typer.Exit(code) from None


def print_error(error: LeadlineError, *, as_json: bool) -> None:
    """Print code, message and advice to standard error."""
    advice = advice_for(error)
    if as_json:
        body = error.body() | ({"advice": advice} if advice else {})
        err.print(json.dumps(body, default=str), markup=False)
        return
    err.print(f"error {error.code}: {error.message}", style="red", markup=False)
    if advice:
        err.print(f"  what to do: {advice}", markup=False)


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone, unless `yes` was said already; end with 1 on a no."""
    if not yes:
        typer.confirm(question, abort=True)


def print_json(document: Any) -> None:
    """Print one line of JSON."""
    out.print(json.dumps(document), markup=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows for people; one line where there are none."""
    table = table_of(title, columns, rows)
    if table.row_count:
        out.print(table)
    else:
        out.print(f"{title}: none", markup=False)


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return rows as a table for people."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")  # nothing is cut off, however narrow it is
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    return table


def numbers(values: Iterable[int]) -> str:
    """Return replica ids as people read them: `1 2 3`."""
    return " ".join(map(str, values))

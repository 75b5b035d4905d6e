"""`leadline tasks`: long-running work, its progress, its throttle and its cancellation."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from leadline_cli.admin import AdminContext, admin_command, command_group
from leadline_cli.output import (
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    console,
    print_json,
    print_line,
    print_lost,
    print_note,
    print_table,
)
from leadline_client.errors import LeadlineError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from leadline_client.client import Client

app = command_group("List, follow, throttle and cancel long-running tasks.")

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]
Watch = Annotated[
    bool,
    typer.Option("--watch", help="Follow the task to its end; exit with 1 unless it is done."),
]
_OPEN: Final = ("preparing", "accepted", "running", "cancelling")
_POLL_S: Final = 0.5


@app.command("list")
@admin_command
def list_tasks(admin: AdminContext) -> None:
    """List open tasks, and the latest finished ones."""
    with admin.connect(reads=True) as client:
        found = client.administer("GET", "/v1/tasks")
    admin.show(found, _print_tasks)


@app.command()
@admin_command
def status(admin: AdminContext, task: TaskId, *, watch: Watch = False) -> None:
    """Show the progress of a task."""
    with admin.connect(reads=True) as client:
        found = _read(client, task)
        if watch:
            found = follow(client, task, as_json=admin.as_json)
    show_task(found, as_json=admin.as_json, over=watch)


@app.command()
@admin_command
def cancel(admin: AdminContext, task: TaskId) -> None:
    """Cancel a task: partitions in the middle of a move return to their original replicas."""
    with admin.connect() as client:
        found = client.administer("DELETE", _path(task), once=True)
    show_task(found, as_json=admin.as_json)


@app.command()
@admin_command
def throttle(
    admin: AdminContext,
    task: TaskId,
    bytes_per_s: Annotated[
        str, typer.Argument(metavar="BYTES_PER_S|none", help="What each broker may move.")
    ],
) -> None:
    """Change or remove the throttle of a running task."""
    if bytes_per_s != "none" and not bytes_per_s.isdecimal():
        raise typer.BadParameter(f"takes a number of bytes, or none; not {bytes_per_s!r}")
    change = {"throttle_bytes_per_s": None if bytes_per_s == "none" else int(bytes_per_s)}
    with admin.connect() as client:
        found = client.administer("PATCH", _path(task), change, repeatable=True)
    show_task(found, as_json=admin.as_json)


def follow(client: Client, task_id: str, *, as_json: bool) -> dict[str, Any]:
    """Show the progress of a task that was accepted until it is over, and return it.

    A task that continues in another one is followed to the last of them.

    Raises:
        typer.Exit: with 130 on Ctrl-C, and with 3 if nobody answers any more, after saying that the
            task continues.

    """
    continues = f"the task continues: `leadline tasks status {task_id} --watch`"
    try:
        if not console(stderr=True).is_terminal:
            return _followed(client, task_id, _report_changes())
        with _progress() as progress:
            return _followed(client, task_id, partial(_draw, progress, _add_bar(progress)))
    except KeyboardInterrupt:
        print_note(continues)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except LeadlineError as error:
        print_lost(error, continues, as_json=as_json)
        raise typer.Exit(EXIT_UNKNOWN) from None


def _progress() -> Progress:
    rich = import_module("rich.progress")
    made: Progress = rich.Progress(
        rich.TextColumn("task {task.fields[name]}: {task.fields[state]}"),
        rich.BarColumn(),
        rich.TextColumn("{task.completed:.0f}/{task.total:.0f} partitions"),
        rich.TextColumn("{task.fields[speed]}"),
        rich.TimeElapsedColumn(),
        rich.TextColumn("{task.fields[waits]}"),
        console=console(stderr=True),
        transient=True,
    )
    return made


def _add_bar(progress: Progress) -> TaskID:
    return progress.add_task("", total=1, name="", state="", speed="", waits="")


def _draw(progress: Progress, bar: TaskID, task: dict[str, Any]) -> None:
    partitions = task["partitions"]
    progress.update(
        bar,
        name=task["id"],
        total=partitions["total"],
        completed=partitions["done"] + partitions["failed"],
        state=task["state"],
        speed=_speed(task),
        waits=_waits(task),
    )


def _report_changes() -> Callable[[dict[str, Any]], None]:
    """Return what prints a line whenever a task has changed, for a pipe or a log."""
    printed = ""

    def report(task: dict[str, Any]) -> None:
        nonlocal printed
        counts = task["partitions"]
        waits = f", {_waits(task)}" if _waits(task) else ""
        line = (
            f"task {task['id']}: {task['state']}, {counts['done']} of {counts['total']} "
            f"partitions done{waits}"
        )
        if line != printed:
            print_note(line)
            printed = line

    return report


def _waits(task: dict[str, Any]) -> str:
    return f"waits: {task['waits_for']}" if task.get("waits_for") else ""


def _followed(
    client: Client, task_id: str, show: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    while True:
        task = _read(client, task_id)
        show(task)
        if task["state"] not in _OPEN and not _has_more(task):
            return task
        # A task that is too large for one node continues in another, once that is accepted.
        if "continued" in task["details"]:
            task_id = task["details"]["continued"]
        time.sleep(_POLL_S)


def show_task(task: dict[str, Any], *, as_json: bool, over: bool = False) -> None:
    """Print a task: one line of JSON, or a few for people.

    Raises:
        typer.Exit: with 1 if the task is `over` and not done.

    """
    if as_json:
        print_json(task)
    else:
        _print_task(task)
    if over and task["state"] != "done":
        raise typer.Exit(EXIT_REFUSED)


def _print_task(task: dict[str, Any]) -> None:
    counts = task["partitions"]
    name = "dry run: no change made" if task["dry_run"] else f"task {task['id']}"
    print_line(f"{name} ({task['kind']}): {task['state']}")
    print_line(
        f"  {counts['done']} of {counts['total']} partitions done, {counts['moving']} moving, "
        f"{counts['waiting']} waiting, {counts['failed']} failed"
    )
    if task["state"] in _OPEN and not task["dry_run"]:
        print_line(f"  {_speed(task)}")
    if task["reason"]:
        print_line(f"  {task['reason']}")
    if task["details"].get("more"):
        following = task["details"].get("continued", "another task, after this one")
        print_line(f"  too large for one task: continues with {following}")
    if _waits(task):
        print_line(f"  {_waits(task)}")


def _has_more(task: dict[str, Any]) -> bool:
    """Tell whether another task continues this one, as in a large drain."""
    return task["state"] == "done" and bool(task["details"].get("more"))


def _read(client: Client, task_id: str) -> dict[str, Any]:
    return client.administer("GET", _path(task_id))


def _path(task_id: str) -> str:
    return f"/v1/tasks/{quote(task_id, safe='')}"


def _print_tasks(found: dict[str, Any]) -> None:
    columns = ("task", "kind", "state", "done", "left", "rate", "limit", "ETA")
    print_table("Tasks", columns, map(_row, found["tasks"]))


def _row(task: dict[str, Any]) -> tuple[object, ...]:
    counts = task["partitions"]
    is_open = task["state"] in _OPEN
    return (
        task["id"],
        task["kind"],
        task["state"],
        f"{counts['done']}/{counts['total']}",
        _size(task["bytes_left"]) if is_open else "",
        f"{_size(task['rate_bytes_per_s'])}/s" if is_open else "",
        _limit(task) or "none",
        _eta(task),
    )


def _speed(task: dict[str, Any]) -> str:
    words = f"{_size(task['bytes_left'])} left, {_size(task['rate_bytes_per_s'])}/s"
    if _limit(task):
        words += f" (limit {_limit(task)})"
    return words + (f", ETA {_eta(task)}" if task["eta_ms"] is not None else "")


def _limit(task: dict[str, Any]) -> str:
    """Return the rate that each broker may move, and what binds it; "" for no limit."""
    if task["bound_by"] is None:
        own = task["throttle_bytes_per_s"]
        return "" if own is None else f"{_size(own)}/s"
    rate = f"{_size(task['allotted_bytes_per_s'])}/s"
    return rate if task["bound_by"] == "own" else f"{rate}: {task['bound_by'].replace('_', ' ')}"


def _eta(task: dict[str, Any]) -> str:
    return "" if task["eta_ms"] is None else f"{task['eta_ms'] / 1000:.0f} s"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"

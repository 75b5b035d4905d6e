"""`leadline tasks`: long work, how far it is, how fast it may be, and how to stop it."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import (
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    err,
    out,
    print_json,
    print_table,
    reported,
)
from leadline_client.client import LeadlineClient

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="List, follow, throttle, cancel long work."
)

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]
Watch = Annotated[
    bool,
    typer.Option("--watch", help="Follow it until it is over; exit code 1 if it was not done."),
]
_OPEN: Final = ("preparing", "accepted", "running", "cancelling")
_POLL_S: Final = 0.5


@app.command("list")
def list_tasks(
    bootstrap: Bootstrap = None, data_dir: DataDir = DEFAULT_DATA_DIR, as_json: Json = False
) -> None:
    """List tasks that are under way, and the latest of those that are over."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.administer("GET", "/v1/tasks")
    if as_json:
        print_json(found)
        return
    columns = ("task", "kind", "state", "done", "left", "rate", "throttle", "ETA")
    print_table("Tasks", columns, [_row(task) for task in found["tasks"]])


@app.command()
def status(
    task: TaskId,
    *,
    watch: Watch = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show how far a task is."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = follow(client, task) if watch else _read(client, task)
    show_task(found, as_json=as_json, over=watch)


@app.command()
def cancel(
    task: TaskId,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Send back what a task has half-way moved, and begin nothing more of it."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.administer("DELETE", _path(task))
    show_task(found, as_json=as_json)


@app.command()
def throttle(
    task: TaskId,
    bytes_per_s: Annotated[
        str, typer.Argument(metavar="BYTES_PER_S|none", help="What each broker may move.")
    ],
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Change or lift a task's throttle while it runs."""
    if bytes_per_s != "none" and not bytes_per_s.isdecimal():
        raise typer.BadParameter(f"takes a number of bytes, or none; not {bytes_per_s!r}")
    change = {"throttle_bytes_per_s": None if bytes_per_s == "none" else int(bytes_per_s)}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.administer("PATCH", _path(task), change, repeatable=True)
    show_task(found, as_json=as_json)


def follow(client: LeadlineClient, task_id: str) -> dict[str, Any]:
    """Show a task's progress until it is over, and return it, or its last one, as it then is.

    Raises:
        typer.Exit: with 130 on Ctrl-C, after saying that the task goes on.

    """
    try:
        return _followed(client, task_id)
    except KeyboardInterrupt:
        err.print(f"the task goes on: `leadline tasks status {task_id} --watch`", markup=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _followed(client: LeadlineClient, task_id: str) -> dict[str, Any]:
    with Progress(
        TextColumn("task {task.fields[name]}: {task.fields[state]}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} partitions"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    ) as progress:
        bar = progress.add_task("", total=1, name=task_id, state="", speed="")
        while True:
            task = _read(client, task_id)
            partitions = task["partitions"]
            progress.update(
                bar,
                name=task_id,
                total=partitions["total"],
                completed=partitions["done"] + partitions["failed"],
                state=task["state"],
                speed=_speed(task),
            )
            if task["state"] not in _OPEN and not _has_more(task):
                return task
            # What one task could not hold goes on with another, once that is accepted.
            if "continued" in task["details"]:
                task_id = task["details"]["continued"]
            time.sleep(_POLL_S)


def show_task(task: dict[str, Any], *, as_json: bool, over: bool = False) -> None:
    """Print a task: one line of JSON, or a few for people.

    Raises:
        typer.Exit: with 1 where it was followed until it was `over`, and it was not done.

    """
    if as_json:
        print_json(task)
    else:
        _print_task(task)
    if over and task["state"] != "done":
        raise typer.Exit(EXIT_REFUSED)


def _print_task(task: dict[str, Any]) -> None:
    counts = task["partitions"]
    name = "dry run: nothing is begun" if task["dry_run"] else f"task {task['id']}"
    out.print(f"{name} ({task['kind']}): {task['state']}", markup=False)
    out.print(
        f"  {counts['done']} of {counts['total']} partitions done, {counts['moving']} moving, "
        f"{counts['waiting']} waiting, {counts['failed']} failed",
        markup=False,
    )
    if task["state"] in _OPEN and not task["dry_run"]:
        out.print(f"  {_speed(task)}", markup=False)
    if task["reason"]:
        out.print(f"  {task['reason']}", markup=False)
    if task["details"].get("more"):
        following = task["details"].get("continued", "another task, after this one")
        out.print(f"  too large for one task: goes on with {following}", markup=False)
    if task["state"] == "preparing" and "waits_for" in task["details"]:
        out.print(f"  waits: {task['details']['waits_for']}", markup=False)


def _has_more(task: dict[str, Any]) -> bool:
    """Tell whether another task takes what this one has left over, as with large drains."""
    return task["state"] == "done" and bool(task["details"].get("more"))


def _read(client: LeadlineClient, task_id: str) -> dict[str, Any]:
    return client.administer("GET", _path(task_id))


def _path(task_id: str) -> str:
    return f"/v1/tasks/{quote(task_id, safe='')}"


def _row(task: dict[str, Any]) -> tuple[object, ...]:
    counts, throttle = task["partitions"], task["throttle_bytes_per_s"]
    is_open = task["state"] in _OPEN
    return (
        task["id"],
        task["kind"],
        task["state"],
        f"{counts['done']}/{counts['total']}",
        _size(task["bytes_left"]) if is_open else "",
        f"{_size(task['rate_bytes_per_s'])}/s" if is_open else "",
        "none" if throttle is None else f"{_size(throttle)}/s",
        _eta(task),
    )


def _speed(task: dict[str, Any]) -> str:
    words = f"{_size(task['bytes_left'])} left, {_size(task['rate_bytes_per_s'])}/s"
    if task["throttle_bytes_per_s"] is not None:
        words += f" (throttle {_size(task['throttle_bytes_per_s'])}/s)"
    return words + (f", ETA {_eta(task)}" if task["eta_ms"] is not None else "")


def _eta(task: dict[str, Any]) -> str:
    return "" if task["eta_ms"] is None else f"{task['eta_ms'] / 1000:.0f} s"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"

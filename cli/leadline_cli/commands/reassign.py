"""`leadline plan|reassign`: plan new replica assignments, and carry them out during use."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from leadline_cli.admin import AdminContext, DryRun, admin_command, command_group
from leadline_cli.arguments import topic_partition
from leadline_cli.commands import tasks
from leadline_cli.output import numbers, print_line, print_table
from leadline_common.reassignments import PlanKind, ReassignmentAlgorithm

_SHOWN_PARTITIONS = 20

app = command_group("Start, list, follow, throttle and cancel reassignments.")


@admin_command
def plan(
    admin: AdminContext,
    kind: PlanKind,
    brokers: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="BROKER",
            help="The brokers to balance over, to expand to, or to drain. By default all live "
            "ones; for expand, those without replicas.",
        ),
    ] = None,
    *,
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; repeatable.")] = None,
    exclude: Annotated[
        list[int] | None, typer.Option(help="A broker that gets no replicas; repeatable.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Carry out the plan.")] = False,
    throttle: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES_PER_S", help="For --apply, per broker.")
    ] = None,
    algorithm: Annotated[
        ReassignmentAlgorithm, typer.Option(help="For --apply.")
    ] = ReassignmentAlgorithm.INCREMENTAL,
) -> None:
    """Plan to balance brokers, to expand to new ones, or to drain some."""
    wanted = {"kind": kind.value, "brokers": brokers, "topics": topic, "exclude": exclude}
    wanted = {name: value for name, value in wanted.items() if value}
    how = {"algorithm": algorithm.value, "throttle_bytes_per_s": throttle}
    with admin.connect() as client:
        made = client.administer("POST", "/v1/plans", wanted, once=True)
        task = None
        if apply and made["partitions"]:
            task = client.administer("POST", f"/v1/plans/{made['id']}/apply", how, once=True)
    admin.show({"plan": made, "task": task}, _print_plan)


@app.command()
@admin_command
def start(
    admin: AdminContext,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Kafka's reassignment JSON; - is standard input."),
    ] = None,
    *,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC-0=1:2:3", help="Instead of FILE: a partition's new replicas; repeatable."
        ),
    ] = None,
    algorithm: ReassignmentAlgorithm = ReassignmentAlgorithm.INCREMENTAL,
    throttle: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES_PER_S", help="Per broker and direction.")
    ] = None,
    retarget: Annotated[
        bool, typer.Option("--retarget", help="Include partitions in reassignment already.")
    ] = False,
    same_count: Annotated[
        bool, typer.Option("--same-count", help="Refuse targets with more or fewer replicas.")
    ] = False,
    watch: tasks.Watch = False,
    dry_run: DryRun = False,
) -> None:
    """Start a reassignment; it continues even if this command is interrupted."""
    body = {
        "partitions": _rows(file, partition),
        "algorithm": algorithm.value,
        "throttle_bytes_per_s": throttle,
        "retarget": retarget,
        "allow_replication_factor_change": not same_count,
        "dry_run": dry_run,
    }
    with admin.connect() as client:
        task = client.administer("POST", "/v1/reassignments", body, repeatable=dry_run, once=True)
        if watch and not dry_run:
            task = tasks.follow(client, task["id"], as_json=admin.as_json)
    tasks.show_task(task, as_json=admin.as_json, over=watch and not dry_run)


@app.command("list")
@admin_command
def list_reassignments(
    admin: AdminContext,
    topic: Annotated[str | None, typer.Option(help="Only partitions of this topic.")] = None,
) -> None:
    """List partitions in reassignment, and what each waits for."""
    params = {} if topic is None else {"topic": topic}
    with admin.connect(reads=True) as client:
        found = client.administer("GET", "/v1/reassignments", params=params)
    admin.show(found, _print_reassignments)


@app.command("cancel-partition")
@admin_command
def cancel_partition(
    admin: AdminContext,
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION")],
) -> None:
    """Return one partition to its original replicas; its task continues with the others."""
    topic, number = topic_partition(partition)
    with admin.connect() as client:
        path = f"/v1/reassignments/{quote(topic, safe='')}/{number}"
        answer = client.administer("DELETE", path, once=True)
    admin.show(answer, f"{partition} returns to {numbers(answer['start'])}")


app.command("status")(tasks.status)
app.command("cancel")(tasks.cancel)
app.command("throttle")(tasks.throttle)


def _rows(file: Path | None, partitions: list[str] | None) -> list[dict[str, Any]]:
    """Return the rows of a request, from a file or from options."""
    if (file is None) == (not partitions):
        raise typer.BadParameter("give either FILE or --partition")
    if file is None:
        return [_target(text) for text in partitions or ()]
    try:
        # As bytes: json knows each Unicode encoding, and the marks that editors put before it.
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        document = json.loads(content, object_pairs_hook=_each_once)
        rows: list[dict[str, Any]] = document["partitions"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise typer.BadParameter(f"{file} is not Kafka's reassignment JSON: {problem}") from None
    return rows


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; of two fields of one name, one would be ignored."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {twice!r} twice")
    return found


def _target(text: str) -> dict[str, Any]:
    name, _, replicas = text.partition("=")
    topic, number = topic_partition(name)
    try:
        brokers = [int(broker) for broker in replicas.split(":")]
    except ValueError:
        raise typer.BadParameter(f"a target is written TOPIC-0=1:2:3, not {text!r}") from None
    return {"topic": topic, "partition": number, "replicas": brokers}


def _print_reassignments(found: dict[str, Any]) -> None:
    columns = ("partition", "replicas", "adding", "removing", "target", "state", "waits for")
    print_table("Reassignments", columns, map(_reassignment_row, found["reassignments"]))


def _reassignment_row(row: dict[str, Any]) -> tuple[object, ...]:
    waits = numbers(row["waiting_for"])
    return (
        f"{row['topic']}-{row['partition']}",
        numbers(row["current"]),
        numbers(row["adding"]),
        numbers(row["removing"]),
        numbers(row["start"] if row["cancelled"] else row["target"]),
        f"back: {row['state']}" if row["cancelled"] else row["state"],
        f"{row['reason'] or ''} {waits}".strip(),
    )


def _print_plan(document: dict[str, Any]) -> None:
    made, task = document["plan"], document["task"]
    figures, partitions = made["figures"], made["partitions"]
    columns = ("broker", "replicas", "after", "leaders", "after")
    print_table(f"Plan {made['id']}", columns, [tuple(row.values()) for row in made["brokers"]])
    rows = [
        (f"{row['topic']}-{row['partition']}", numbers(row["current"]), numbers(row["replicas"]))
        for row in partitions[:_SHOWN_PARTITIONS]
    ]
    if rows:
        print_table("Partitions", ("partition", "replicas", "after"), rows)
    if len(partitions) > _SHOWN_PARTITIONS:
        print_line(f"… and {len(partitions) - _SHOWN_PARTITIONS} more: --json shows all")
    print_line(
        f"{figures['moves']} replicas move (the least possible is {figures['least_moves']}); "
        f"{figures['leader_changes']} partitions get another preferred leader"
    )
    if made["down"]:
        print_line(f"down, and given nothing: brokers {numbers(made['down'])}")
    print_line(_next_step(task, partitions))


def _next_step(task: dict[str, Any] | None, partitions: list[Any]) -> str:
    if task is None:
        return "no change made: repeat with --apply" if partitions else "nothing needs to move"
    parts = task["details"].get("parts", 1)
    if parts == 1:
        return f"task {task['id']} carries it out"
    return f"{parts} tasks carry it out, from {task['id']} on: see `leadline tasks list`"

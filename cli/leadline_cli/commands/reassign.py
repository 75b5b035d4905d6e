"""`leadline reassign`: give partitions other replicas while they are in use."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from leadline_cli.commands import tasks
from leadline_cli.commands.cluster import topic_partition
from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import numbers, out, print_json, print_table, reported
from leadline_common.reassignments import ReassignmentAlgorithm

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Start, list, follow, throttle, cancel reassignments.",
)


@app.command()
def start(
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
        bool, typer.Option("--retarget", help="Also those that are being reassigned already.")
    ] = False,
    same_count: Annotated[
        bool, typer.Option("--same-count", help="Refuse targets with more or fewer replicas.")
    ] = False,
    watch: tasks.Watch = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check.")] = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Start a reassignment; it is carried out whatever happens to this command."""
    body = {
        "partitions": _rows(file, partition),
        "algorithm": algorithm.value,
        "throttle_bytes_per_s": throttle,
        "retarget": retarget,
        "allow_replication_factor_change": not same_count,
        "dry_run": dry_run,
    }
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        task = client.administer("POST", "/v1/reassignments", body, repeatable=dry_run)
        if watch and not dry_run:
            task = tasks.follow(client, task["id"])
    tasks.show_task(task, as_json=as_json, over=watch and not dry_run)


@app.command("list")
def list_reassignments(
    topic: Annotated[str | None, typer.Option(help="Only those of this topic.")] = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """List partitions that are on their way, and what they wait for."""
    params = {} if topic is None else {"topic": topic}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.administer("GET", "/v1/reassignments", params=params)
    if as_json:
        print_json(found)
        return
    columns = ("partition", "replicas", "adding", "removing", "target", "state", "waits for")
    print_table("Reassignments", columns, [_row(row) for row in found["reassignments"]])


@app.command("cancel-partition")
def cancel_partition(
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION")],
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Send one partition back to the replicas that it had; its task goes on with the others."""
    topic, number = topic_partition(partition)
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        answer = client.administer("DELETE", f"/v1/reassignments/{quote(topic, safe='')}/{number}")
    if as_json:
        print_json(answer)
    else:
        out.print(f"{partition} goes back to {numbers(answer['start'])}", markup=False)


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
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        rows: list[dict[str, Any]] = json.loads(text)["partitions"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise typer.BadParameter(f"{file} is not Kafka's reassignment JSON: {problem}") from None
    return rows


def _target(text: str) -> dict[str, Any]:
    name, _, replicas = text.partition("=")
    topic, number = topic_partition(name)
    try:
        brokers = [int(broker) for broker in replicas.split(":")]
    except ValueError:
        raise typer.BadParameter(f"a target is written TOPIC-0=1:2:3, not {text!r}") from None
    return {"topic": topic, "partition": number, "replicas": brokers}


def _row(row: dict[str, Any]) -> tuple[object, ...]:
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

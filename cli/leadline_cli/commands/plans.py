"""`leadline plan`: what it would take to balance, expand or drain, and doing it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import numbers, out, print_json, print_table, reported
from leadline_common.reassignments import PlanKind, ReassignmentAlgorithm

_SHOWN = 20


def plan(
    kind: PlanKind,
    brokers: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="BROKER",
            help="Those to balance over, to expand to, or to drain. Unnamed: all live ones; for "
            "expand those without replicas.",
        ),
    ] = None,
    *,
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; repeatable.")] = None,
    exclude: Annotated[
        list[int] | None, typer.Option(help="A broker that gets nothing; repeatable.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Carry the plan out.")] = False,
    throttle: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES_PER_S", help="For --apply, per broker.")
    ] = None,
    algorithm: Annotated[
        ReassignmentAlgorithm, typer.Option(help="For --apply.")
    ] = ReassignmentAlgorithm.INCREMENTAL,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Plan to balance brokers, to give new ones their share, or to move everything off some."""
    wanted = {"kind": kind.value, "brokers": brokers, "topics": topic, "exclude": exclude}
    wanted = {name: value for name, value in wanted.items() if value}
    how = {"algorithm": algorithm.value, "throttle_bytes_per_s": throttle}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        made = client.administer("POST", "/v1/plans", wanted)
        task = None
        if apply and made["partitions"]:
            task = client.administer("POST", f"/v1/plans/{made['id']}/apply", how)
    if as_json:
        print_json({"plan": made, "task": task})
        return
    _show(made)
    if task is not None:
        out.print(_carried_out_by(task), markup=False)
    elif made["partitions"]:
        out.print("nothing is changed yet: repeat this with --apply", markup=False)
    else:
        out.print("nothing needs to move", markup=False)


def _carried_out_by(task: dict[str, Any]) -> str:
    parts = task["details"].get("parts", 1)
    if parts == 1:
        return f"task {task['id']} carries it out"
    return f"{parts} tasks carry it out, from {task['id']} on: see `leadline tasks list`"


def _show(made: dict[str, Any]) -> None:
    figures, partitions = made["figures"], made["partitions"]
    columns = ("broker", "replicas", "after", "leaders", "after")
    print_table(f"Plan {made['id']}", columns, [tuple(row.values()) for row in made["brokers"]])
    rows = [
        (f"{row['topic']}-{row['partition']}", numbers(row["current"]), numbers(row["replicas"]))
        for row in partitions[:_SHOWN]
    ]
    if rows:
        print_table("Partitions", ("partition", "replicas", "after"), rows)
    if len(partitions) > _SHOWN:
        out.print(f"… and {len(partitions) - _SHOWN} more: --json shows all", markup=False)
    out.print(
        f"{figures['moves']} replicas move (the least possible is {figures['least_moves']}); "
        f"{figures['leader_changes']} partitions get another preferred leader",
        markup=False,
    )

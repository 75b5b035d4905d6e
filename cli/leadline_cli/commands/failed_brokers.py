"""`leadline failed-brokers`: which brokers are down, and the history of their failures."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import out, print_json, print_table, reported
from leadline_cli.times import shown

_PATH = "/v1/failed-brokers"


def failed_brokers(
    *,
    history: Annotated[bool, typer.Option("--history", help="Past failures too.")] = False,
    broker: Annotated[int | None, typer.Option(help="With --history: only of this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="With --history: how many.")] = 50,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """List the brokers that are down and what is done about it, or every failure so far."""
    params = {"limit": str(limit)} | ({} if broker is None else {"broker": str(broker)})
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        if history:
            found = client.administer("GET", f"{_PATH}/history", params=params)
        else:
            found = client.administer("GET", _PATH)
    if as_json:
        print_json(found)
    elif history:
        _print_history(found["failures"])
    else:
        _print_failed(found)


def _print_failed(found: dict[str, Any]) -> None:
    columns = ("broker", "failed (UTC)", "heals from (UTC)", "partitions", "chunks left")
    rows = [
        (
            row["id"],
            _time(row["failed_at"]),
            _time(row["due_at"]),
            row["partitions"],
            len(row["chunks"]),
        )
        for row in found["brokers"]
    ]
    print_table("Brokers that are down or being healed", columns, rows)
    if any(row["partitions"] and not row["chunks"] for row in found["brokers"]):
        out.print(
            "partitions that are in no chunk wait: for the time to come, for a leader to copy"
        )
        out.print("from, or for a broker that has none of them yet")
    if found["suspended"]:
        out.print("healing is suspended: more brokers are down than the budget allows")
    if found["interval_ms"] < 0:
        out.print("healing is switched off (failed.broker.interval.ms is -1)", markup=False)


def _print_history(failures: list[dict[str, Any]]) -> None:
    columns = (
        "broker",
        "failed (UTC)",
        "outcome",
        "returned (UTC)",
        "chunks",
        "partitions",
        "healing s",
    )
    rows = [
        (
            row["broker"],
            _time(row["failed_at"]),
            row["outcome"],
            _time(row["returned_at"]),
            _share(row, "chunks_over", "chunks"),
            _share(row, "partitions_moved", "partitions"),
            "" if row["healing_ms"] is None else f"{row['healing_ms'] / 1000:.1f}",
        )
        for row in failures
    ]
    print_table("Failures of brokers", columns, rows)


def _share(row: dict[str, Any], done: str, total: str) -> str:
    """Show how much of all is done; how much that is stands fast when all of it is queued."""
    if row["queued_at"] is not None:
        return f"{row[done]}/{row[total]}"
    return f"{row[done]} so far" if row[done] else ""


def _time(unix_ms: int | None) -> str:
    return "" if unix_ms is None else shown(unix_ms)

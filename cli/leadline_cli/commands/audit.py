"""`leadline audit|explain`: what changed, when, by whom and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import numbers, out, print_json, print_table, reported
from leadline_client.client import LeadlineClient

_PAGE = 1000


def audit(
    *,
    topic: Annotated[str | None, typer.Option(help="Entries about a topic.")] = None,
    partition: Annotated[int | None, typer.Option(help="Of that topic.")] = None,
    broker: Annotated[int | None, typer.Option(help="Entries about a broker.")] = None,
    actor: Annotated[
        str | None, typer.Option(help="operator, controller-1, `broker 2`, ….")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="What kind of change.")] = None,
    cause: Annotated[str | None, typer.Option(help="A cause id, as in logs and answers.")] = None,
    outcome: Annotated[str | None, typer.Option(help="done, refused, dry_run.")] = None,
    since: Annotated[datetime | None, typer.Option(help="From then on (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Before then (UTC).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest.")] = 50,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """List what changed, newest first; with --json one entry on each line."""
    wanted: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "broker": broker,
        "actor": actor,
        "kind": kind,
        "cause": cause,
        "outcome": outcome,
        "since": _milliseconds(since),
        "until": _milliseconds(until),
    }
    params = {name: str(value) for name, value in wanted.items() if value is not None}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        entries = list(_entries(client, params, limit))
    if as_json:
        for entry in entries:
            print_json(entry)
        return
    columns = ("id", "time (UTC)", "what", "about", "outcome", "by", "reason", "cause")
    print_table("Audit", columns, [_row(entry) for entry in entries])


def explain(
    topic: Annotated[str, typer.Argument()],
    partition: Annotated[int, typer.Argument(min=0)],
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Say why a partition's leader is who it is: every change with its reason and cause."""
    path = f"/v1/topics/{topic}/partitions/{partition}/history"
    changes: list[dict[str, Any]] = []
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        cursor: str | None = ""
        while cursor is not None:
            params = {"page_size": str(_PAGE)} | ({"cursor": cursor} if cursor else {})
            page = client.administer("GET", path, params=params)
            changes += page["changes"]
            cursor = page["next_cursor"]
    if as_json:
        print_json({"topic": topic, "partition": partition, "changes": changes})
        return
    columns = ("time (UTC)", "leader", "epoch", "in sync", "reason", "event", "by", "cause")
    print_table(f"{topic}-{partition}", columns, [_change_row(change) for change in changes])
    if not changes:
        out.print("nothing is known of this partition", markup=False)


def _entries(
    client: LeadlineClient, params: dict[str, str], limit: int
) -> Iterator[dict[str, Any]]:
    left = limit
    cursor: str | None = ""
    while cursor is not None and left > 0:
        asked = params | {"page_size": str(min(left, _PAGE))}
        page = client.administer(
            "GET", "/v1/audit", params=asked | ({"cursor": cursor} if cursor else {})
        )
        yield from page["entries"]
        left -= len(page["entries"])
        cursor = page["next_cursor"]


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    return (
        entry["id"],
        _time(entry["time"]),
        entry["kind"],
        _about(entry),
        entry["outcome"],
        entry["actor"],
        entry["reason"],
        entry["cause"],
    )


def _about(entry: dict[str, Any]) -> str:
    """Name what an entry is about, or count the partitions that it changed."""
    changes, total = entry["changes"], entry["changes_total"]
    if total == 1:
        return f"{changes[0]['topic']}-{changes[0]['partition']}"
    if total > 1:
        return f"{total} partitions"
    named = ("topic", "partition", "broker", "group", "config", "task")
    return " ".join(
        f"{name} {entry['resource'][name]}" for name in named if name in entry["resource"]
    )


def _change_row(change: dict[str, Any]) -> tuple[object, ...]:
    before, after = change["before"], change["after"]
    event = f"{change['kind']}: {change['why']}" if change["why"] else change["kind"]
    return (
        _time(change["time"]),
        _moved(before and before["leader"], after["leader"]),
        after["leader_epoch"],
        _moved(before and numbers(before["isr"]), numbers(after["isr"])),
        change["reason"],
        event,
        change["actor"],
        change["cause"],
    )


def _moved(before: object, after: object) -> str:
    """Show a value, and what it was where that is news."""
    shown, was = (("none" if value == -1 else str(value)) for value in (after, before))
    return shown if before is None or before == after else f"{was} → {shown}"


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _milliseconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.replace(tzinfo=UTC).timestamp() * 1000)

"""`leadline audit|explain`: what changed, when, by whom and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

import typer

from leadline_cli.commands.cluster import topic_partition
from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import numbers, out, print_json, reported
from leadline_cli.times import TIME_HELP, shown, unix_ms
from leadline_client.client import LeadlineClient

_PAGE = 1000


def audit(
    *,
    topic: Annotated[str | None, typer.Option(help="Entries about a topic.")] = None,
    partition: Annotated[int | None, typer.Option(help="Of that topic.")] = None,
    broker: Annotated[int | None, typer.Option(help="Entries about a broker.")] = None,
    group: Annotated[str | None, typer.Option(help="Entries about a consumer group.")] = None,
    config: Annotated[str | None, typer.Option(help="cluster: entries about its settings.")] = None,
    actor: Annotated[
        str | None, typer.Option(help="operator, controller-1, `broker 2`, ….")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="What kind of change.")] = None,
    cause: Annotated[str | None, typer.Option(help="A cause id, as in logs and answers.")] = None,
    outcome: Annotated[str | None, typer.Option(help="done, refused, dry_run.")] = None,
    since: Annotated[
        int | None,
        typer.Option(parser=unix_ms, metavar="TIME", help=f"From then on: {TIME_HELP}."),
    ] = None,
    until: Annotated[
        int | None, typer.Option(parser=unix_ms, metavar="TIME", help="Before then.")
    ] = None,
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
        "group": group,
        "config": config,
        "actor": actor,
        "kind": kind,
        "cause": cause,
        "outcome": outcome,
        "since": since,
        "until": until,
    }
    params = {name: str(value) for name, value in wanted.items() if value is not None}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        entries = list(_entries(client, params, limit))
    if as_json:
        for entry in entries:
            print_json(entry)
        return
    for entry in entries:
        out.print(_entry_lines(entry), markup=False)
    if not entries:
        out.print("no entry is like that", markup=False)


def explain(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Or TOPIC-0, as in other tables.")],
    partition: Annotated[
        int | None, typer.Argument(metavar="PARTITION", min=0, help="Unless TOPIC-0 was given.")
    ] = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Say why a partition's leader is who it is: every change with its reason and cause."""
    if partition is None:
        topic, partition = topic_partition(topic)
    path = f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/history"
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
    for change in changes:
        out.print(_change_lines(change), markup=False)
    if not changes:
        out.print(f"nothing is known of {topic}-{partition}", markup=False)


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


def _entry_lines(entry: dict[str, Any]) -> str:
    """Say what changed, and below it how it ended, by whom and why."""
    what = f"{entry['id']}  {_when(entry)}  {entry['kind']}  {_about(entry)}".rstrip()
    why = f": {entry['reason']}" if entry["reason"] else ""
    return f"{what}\n    {entry['outcome']} by {entry['actor']}{why} (cause {entry['cause']})"


def _about(entry: dict[str, Any]) -> str:
    """Name what an entry is about, or count the partitions that it changed."""
    changes, total = entry["changes"], entry["changes_total"]
    if total == 1:
        return f"{changes[0]['topic']}-{changes[0]['partition']}"
    if total > 1:
        return f"{total} partitions"
    if entry["kind"] == "brokers_changed":
        return f"live: {numbers(entry['after']['brokers'])}"
    named = ("topic", "partition", "broker", "group", "config", "task")
    return " ".join(
        f"{name} {entry['resource'][name]}" for name in named if name in entry["resource"]
    )


def _change_lines(change: dict[str, Any]) -> str:
    """Say who led and who was in sync, and below it why and by whom that was changed."""
    before, after = change["before"], change["after"]
    leader = _moved(before and before["leader"], after["leader"])
    in_sync = _moved(before and numbers(before["isr"]), numbers(after["isr"]))
    is_news = change["why"] and change["why"] != change["reason"]
    event = f"{change['kind']}, {change['why']}" if is_news else change["kind"]
    return (
        f"{_when(change)}  leader {leader}, epoch {after['leader_epoch']}, "
        f"in sync {in_sync}\n"
        f"    {change['reason']}: {event}; by {change['actor']} (cause {change['cause']})"
    )


def _moved(before: object, after: object) -> str:
    """Show a value, and what it was where that is news."""
    shown, was = (("none" if value == -1 else str(value)) for value in (after, before))
    return shown if before is None or before == after else f"{was} → {shown}"


def _when(row: dict[str, Any]) -> str:
    return shown(row["time"], timespec="milliseconds") + "Z"

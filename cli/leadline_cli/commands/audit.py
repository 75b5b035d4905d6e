"""`leadline audit|explain`: what changed, when, by whom and why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from leadline_cli.admin import AdminContext, admin_command
from leadline_cli.arguments import TIME_HELP, shown, topic_partition, unix_ms
from leadline_cli.output import leader_name, numbers, print_json, print_line
from leadline_client.errors import UnknownTopic

if TYPE_CHECKING:
    from leadline_client.client import Client

_PAGE = 1000


@admin_command
def audit(
    admin: AdminContext,
    *,
    topic: Annotated[str | None, typer.Option(help="Entries about a topic.")] = None,
    partition: Annotated[int | None, typer.Option(help="Of that topic.")] = None,
    broker: Annotated[int | None, typer.Option(help="Entries about a broker.")] = None,
    group: Annotated[str | None, typer.Option(help="Entries about a consumer group.")] = None,
    config: Annotated[str | None, typer.Option(help="cluster: entries about its settings.")] = None,
    actor: Annotated[
        str | None, typer.Option(help="operator, controller-1, `broker 2`, ….")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Kind of change.")] = None,
    cause: Annotated[str | None, typer.Option(help="A cause id, as in logs and responses.")] = None,
    outcome: Annotated[str | None, typer.Option(help="done, refused, dry_run.")] = None,
    since: Annotated[
        int | None,
        typer.Option(parser=unix_ms, metavar="TIME", help=f"At or after this time: {TIME_HELP}."),
    ] = None,
    until: Annotated[
        int | None, typer.Option(parser=unix_ms, metavar="TIME", help="Before this time.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest.")] = 50,
) -> None:
    """List audit entries, newest first; with --json one entry per line."""
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
        "page_size": min(limit, _PAGE),
    }
    params = {name: str(value) for name, value in wanted.items() if value is not None}
    with admin.connect(reads=True) as client:
        entries = list(islice(_rows(client, "/v1/audit", params, "entries"), limit))
    for entry in entries:
        if admin.as_json:
            print_json(entry)
        else:
            print_line(_entry_lines(entry))
    if not entries and not admin.as_json:
        print_line("no entries match")


@admin_command
def explain(
    admin: AdminContext,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Or TOPIC-0, as in other tables.")],
    partition: Annotated[
        int | None,
        typer.Argument(metavar="PARTITION", min=0, help="Required unless TOPIC-0 was given."),
    ] = None,
) -> None:
    """Explain a partition's leader: show every change with its reason and cause."""
    if partition is None:
        topic, partition = topic_partition(topic)
    path = f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/history"
    with admin.connect(reads=True) as client:
        changes = list(_rows(client, path, {"page_size": str(_PAGE)}, "changes"))
        misplaced = _misplaced(client, topic, partition)
    lines = [*map(_change_lines, changes), *map(_misplaced_line, misplaced)]
    admin.show(
        {"topic": topic, "partition": partition, "changes": changes, "misplaced": misplaced},
        "\n".join(lines) or f"no changes of {topic}-{partition} are known",
    )


def _misplaced(client: Client, topic: str, partition: int) -> list[int]:
    """Return the members that are live without the log directory of their membership."""
    try:
        found = client.administer("GET", f"/v1/topics/{quote(topic, safe='')}/partitions")
    except UnknownTopic:  # its history outlives it
        return []
    rows: dict[int, list[int]] = {r["partition"]: r["misplaced"] for r in found["partitions"]}
    return rows.get(partition, [])


def _misplaced_line(broker: int) -> str:
    return (
        f"now: broker {broker} registered with another log directory than it was in sync with, or "
        "without the log or its end, as its own log says: only an unclean election would make it "
        "the leader"
    )


def _rows(
    client: Client, path: str, params: dict[str, str], member: str
) -> Iterator[dict[str, Any]]:
    """Give the rows of a paged list; each page is requested when its first row is."""
    cursor: str | None = ""
    while cursor is not None:
        asked = params | ({"cursor": cursor} if cursor else {})
        page = client.administer("GET", path, params=asked)
        yield from page[member]
        cursor = page["next_cursor"]


def _entry_lines(entry: dict[str, Any]) -> str:
    """Return what changed, and on a second line the outcome, the actor and the reason."""
    what = f"{entry['id']}  {_when(entry)}  {entry['kind']}  {_about(entry)}".rstrip()
    why = f": {entry['reason']}" if entry["reason"] else ""
    return f"{what}\n    {entry['outcome']} by {entry['actor']}{why} (cause {entry['cause']})"


def _about(entry: dict[str, Any]) -> str:
    """Name the resource of an entry, or count the partitions that it changed."""
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
    """Return leader and ISR, and on a second line the reason and the actor."""
    before, after = change["before"], change["after"]
    leader = _moved(before and leader_name(before["leader"]), leader_name(after["leader"]))
    in_sync = _moved(before and numbers(before["isr"]), numbers(after["isr"]))
    adds = change["why"] and change["why"] != change["reason"]
    event = f"{change['kind']}, {change['why']}" if adds else change["kind"]
    return (
        f"{_when(change)}  leader {leader}, epoch {after['leader_epoch']}, "
        f"in sync {in_sync}\n"
        f"    {change['reason']}: {event}; by {change['actor']} (cause {change['cause']})"
    )


def _moved(before: str | None, after: str) -> str:
    """Return a value, preceded by the earlier one if that was another."""
    return after if before is None or before == after else f"{before} → {after}"


def _when(row: dict[str, Any]) -> str:
    return shown(row["time"], timespec="milliseconds") + "Z"

"""`leadline groups`: consumer groups, their members, their lag and their committed offsets."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from leadline_cli.admin import AdminContext, Yes, admin_command, command_group
from leadline_cli.arguments import TIME_HELP, unix_ms
from leadline_cli.output import (
    confirmed,
    console,
    print_json,
    print_line,
    print_table,
    show_table,
    table_of,
)
from leadline_client.groups import ResetTo
from leadline_client.wire import TopicPartition

if TYPE_CHECKING:
    from rich.table import Table

    from leadline_client.client import Client

app = command_group("Show and change consumer groups.")
_GROUP_COLUMNS: Final = ("group", "state", "members", "generation", "assignor", "protocol")
_LAG_COLUMNS: Final = ("topic", "partition", "committed", "end", "lag", "member")
_MEMBER_COLUMNS: Final = ("member", "instance", "client", "subscribes to", "threads", "owns")
_OFFSET_COLUMNS: Final = ("topic", "partition", "offset")
_RESET_COLUMNS: Final = ("topic", "partition", "previous", "offset")


@app.command("list")
@admin_command
def list_groups(admin: AdminContext) -> None:
    """List groups with their states."""
    with admin.connect(reads=True) as client:
        found = client.list_groups()
    admin.show(found, lambda _: _print_rows("Groups", _GROUP_COLUMNS, found["groups"]))


@app.command()
@admin_command
def describe(admin: AdminContext, group: str) -> None:
    """Show a group's state, and what each member subscribes to and owns."""
    with admin.connect(reads=True) as client:
        found = client.describe_group(group)
    admin.show(found, lambda _: _print_group(group, found))


@app.command()
@admin_command
def lag(
    admin: AdminContext,
    group: str,
    watch: Annotated[bool, typer.Option("--watch", help="Update it until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 2.0,
) -> None:
    """Show how many records each committed offset is behind the end of its partition."""
    with admin.connect(reads=True) as client:
        if watch:
            _watch_lag(client, group, interval, as_json=admin.as_json)
            return
        found = client.group_lag(group)
    admin.show(found, lambda _: show_table(_lag_table(group, found)))


@app.command()
@admin_command
def offsets(admin: AdminContext, group: str) -> None:
    """Show a group's committed offsets."""
    with admin.connect(reads=True) as client:
        found = client.group_offsets(group)
    title = f"Committed offsets of {group}"
    admin.show(found, lambda _: _print_rows(title, _OFFSET_COLUMNS, found["offsets"]))


@app.command()
@admin_command
def reset(
    admin: AdminContext,
    group: str,
    *,
    to: Annotated[
        str | None,
        typer.Option(metavar="earliest|latest|TIME", help=f"TIME: {TIME_HELP}."),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC-PARTITION=N", help="A partition's offset; repeatable."),
    ] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Only these topics; repeatable.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")] = False,
    yes: Yes = False,
) -> None:
    """Reset a group's committed offsets; the group must have no members."""
    target = _reset_target(to, offset, topic)
    confirmed(f"Reset the committed offsets of group {group}?", yes=yes or dry_run)
    with admin.connect() as client:
        answer = client.reset_offsets(group, target, dry_run=dry_run)
    title = "Would be reset" if answer.get("dry_run") else "Reset"
    admin.show(answer, lambda _: _print_rows(title, _RESET_COLUMNS, answer["offsets"]))


@app.command()
@admin_command
def rebalance(admin: AdminContext, group: str) -> None:
    """Trigger a rebalance; it moves partitions only if the assignment is out of date."""
    with admin.connect() as client:
        answer = client.rebalance_group(group)
    admin.show(answer, f"rebalance of group {group} triggered")


@app.command()
@admin_command
def delete(admin: AdminContext, group: str, yes: Yes = False) -> None:
    """Delete a group with its committed offsets; the group must have no members."""
    confirmed(f"Delete group {group} with its committed offsets?", yes=yes)
    with admin.connect() as client:
        answer = client.delete_group(group)
    admin.show(answer, f"group {group} is deleted")


@app.command("delete-offsets")
@admin_command
def delete_offsets(
    admin: AdminContext,
    group: str,
    *,
    topic: Annotated[str | None, typer.Option(help="Only offsets of this topic.")] = None,
    yes: Yes = False,
) -> None:
    """Delete a group's committed offsets; the group must have no members."""
    what = "" if topic is None else f" for {topic}"
    confirmed(f"Delete the committed offsets of group {group}{what}?", yes=yes)
    params = {} if topic is None else {"topic": topic}
    with admin.connect() as client:
        path = f"/v1/groups/{quote(group, safe='')}/offsets"
        answer = client.administer("DELETE", path, params=params)
    admin.show(answer, f"{answer['deleted']} offsets of group {group} deleted")


@app.command()
@admin_command
def evict(admin: AdminContext, group: str, member: str) -> None:
    """Evict a member: the others get its partitions. A live member joins again."""
    with admin.connect() as client:
        answer = client.evict_member(group, member)
    admin.show(answer, f"{member} is evicted from group {group}")


def _print_rows(title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    print_table(title, columns, [_cells(row, columns) for row in rows])


def _print_group(group: str, found: Mapping[str, Any]) -> None:
    print_line(
        f"group {group}: {found['state']}, generation {found['generation']}, "
        f"{found['assignor']} ({found['protocol']}), coordinator epoch "
        f"{found['coordinator_epoch']}"
    )
    if found.get("last_rebalance"):
        print_line(f"last rebalance: {found['last_rebalance']}")
    if found.get("last_error"):
        console().print(f"last error: {found['last_error']}", style="red")
    members = table_of("Members", _MEMBER_COLUMNS, map(_member_row, found["members"]))
    show_table(members)


def _watch_lag(client: Client, group: str, interval_s: float, *, as_json: bool) -> None:
    try:
        if as_json:
            while True:
                print_json(client.group_lag(group))
                time.sleep(interval_s)
        if not console().is_terminal:
            while True:
                show_table(_lag_table(group, client.group_lag(group)))
                sys.stdout.flush()
                time.sleep(interval_s)
        with import_module("rich.live").Live(console=console(), auto_refresh=False) as live:
            while True:
                live.update(_lag_table(group, client.group_lag(group)), refresh=True)
                time.sleep(interval_s)
    except KeyboardInterrupt:
        return


def _lag_table(group: str, found: Mapping[str, Any]) -> Table:
    rows = [_cells(row, _LAG_COLUMNS) for row in found["partitions"]]
    unknown = sum(row.get("lag") is None for row in found["partitions"])
    more = f", without {unknown} partitions that have no committed offset" if unknown else ""
    return table_of(f"Lag of {group}: {found['total']} records{more}", _LAG_COLUMNS, rows)


def _member_row(member: Mapping[str, Any]) -> tuple[object, ...]:
    suffix = "" if member["connected"] else " (disconnected)"
    return (
        member["id"],
        member.get("instance_id") or "",
        member.get("client_id") or "",
        _subscribed(member),
        _threads(member),
        _owned(member["owned"]) + suffix,
    )


def _subscribed(member: Mapping[str, Any]) -> str:
    pattern = member.get("pattern")
    return " ".join([*(member.get("topics") or ()), *([pattern] if pattern else [])])


def _threads(member: Mapping[str, Any]) -> str:
    counts = (f"{topic}={count}" for topic, count in (member.get("topic_threads") or {}).items())
    return " ".join([str(member["threads"]), *counts])


def _owned(rows: Iterable[tuple[str, Sequence[int]]]) -> str:
    return ", ".join(f"{topic}: {' '.join(map(str, numbers))}" for topic, numbers in rows)


def _cells(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[object, ...]:
    return tuple("" if row.get(name) is None else row[name] for name in columns)


def _reset_target(to: str | None, offsets: list[str] | None, topics: list[str] | None) -> ResetTo:
    if (to is None) == (not offsets):
        raise typer.BadParameter("give either --to or --offset", param_hint="--to")
    names = tuple(topics) if topics else None
    if offsets:
        return ResetTo("offsets", offsets=dict(map(_partition_offset, offsets)), topics=names)
    if to == "earliest":
        return ResetTo("earliest", topics=names)
    if to == "latest":
        return ResetTo("latest", topics=names)
    return ResetTo("timestamp", timestamp=unix_ms(to or ""), topics=names)


def _partition_offset(text: str) -> tuple[TopicPartition, int]:
    name, _, offset = text.rpartition("=")
    topic, _, number = name.rpartition("-")
    if not (topic and number.isdecimal() and offset.isdecimal()):
        raise typer.BadParameter(f"is written TOPIC-0=42, not {text!r}", param_hint="--offset")
    return TopicPartition(topic, int(number)), int(offset)

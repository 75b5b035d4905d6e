"""`leadline groups`: who consumes what, how far behind they are, and their offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.live import Live
from rich.table import Table

from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import (
    Yes,
    confirmed,
    out,
    print_json,
    print_table,
    reported,
    table_of,
)
from leadline_cli.times import TIME_HELP, unix_ms
from leadline_client.client import LeadlineClient
from leadline_client.groups import ResetTo
from leadline_client.wire import TopicPartition

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Look at consumer groups, and change them."
)
_LAG_COLUMNS: Final = ("topic", "partition", "committed", "end", "lag", "member")


@app.command("list")
def list_groups(
    bootstrap: Bootstrap = None, data_dir: DataDir = DEFAULT_DATA_DIR, as_json: Json = False
) -> None:
    """List the groups with their states."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        document = client.list_groups()
    if as_json:
        print_json(document)
        return
    columns = ("group", "state", "members", "generation", "assignor", "protocol")
    print_table("Groups", columns, [_cells(row, columns) for row in document["groups"]])


@app.command()
def describe(
    group: str,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show a group's state, and what each member subscribes to and owns."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.describe_group(group)
    if as_json:
        print_json(found)
        return
    out.print(
        f"group {group}: {found['state']}, generation {found['generation']}, "
        f"{found['assignor']} ({found['protocol']}), coordinator epoch "
        f"{found['coordinator_epoch']}",
        markup=False,
    )
    if found.get("last_rebalance"):
        out.print(f"last rebalance: {found['last_rebalance']}", markup=False)
    if found.get("last_error"):
        out.print(f"last error: {found['last_error']}", style="red", markup=False)
    columns = ("member", "instance", "client", "subscribes to", "threads", "owns")
    members = table_of("Members", columns, [_member_row(one) for one in found["members"]])
    members.columns[0].no_wrap = True  # to be copied into `leadline groups evict`
    out.print(members)


@app.command()
def lag(
    group: str,
    watch: Annotated[bool, typer.Option("--watch", help="Show it live, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show how many records each partition's committed offset is behind its end."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        if watch:
            _watch_lag(client, group, interval, as_json=as_json)
            return
        found = client.group_lag(group)
    if as_json:
        print_json(found)
        return
    out.print(_lag_table(group, found))


@app.command()
def offsets(
    group: str,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show the committed offsets."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.group_offsets(group)
    if as_json:
        print_json(found)
        return
    columns = ("topic", "partition", "offset")
    title = f"Committed offsets of {group}"
    print_table(title, columns, [_cells(row, columns) for row in found["offsets"]])


@app.command()
def reset(
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
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Put a group's committed offsets elsewhere; it must have no members."""
    where = _where(to, offset, topic)
    confirmed(f"Put the committed offsets of group {group} elsewhere?", yes=yes or dry_run)
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        answer = client.reset_offsets(group, where, dry_run=dry_run)
    if as_json:
        print_json(answer)
        return
    _print_answer(answer)


@app.command()
def rebalance(
    group: str,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Have the partitions shared out anew, where the assignment is not what it should be."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        answer = client.rebalance_group(group)
    _say(answer, f"group {group} is to be rebalanced", as_json=as_json)


@app.command()
def delete(
    group: str,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Forget a group and its committed offsets; it must have no members."""
    confirmed(f"Delete group {group} with its committed offsets?", yes=yes)
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        answer = client.delete_group(group)
    _say(answer, f"group {group} is deleted", as_json=as_json)


@app.command()
def evict(
    group: str,
    member: str,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Put a member out: its partitions go to the others. If it lives, it joins again."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        answer = client.evict_member(group, member)
    _say(answer, f"{member} is out of group {group}", as_json=as_json)


def _watch_lag(client: LeadlineClient, group: str, interval_s: float, *, as_json: bool) -> None:
    try:
        if as_json:
            while True:
                print_json(client.group_lag(group))
                time.sleep(interval_s)
        with Live(console=out, auto_refresh=False) as live:
            while True:
                live.update(_lag_table(group, client.group_lag(group)), refresh=True)
                time.sleep(interval_s)
    except KeyboardInterrupt:
        return


def _lag_table(group: str, found: Mapping[str, Any]) -> Table:
    rows = [_cells(row, _LAG_COLUMNS) for row in found["partitions"]]
    unknown = sum(row.get("lag") is None for row in found["partitions"])
    more = f", and what {unknown} partitions without a committed offset have" if unknown else ""
    return table_of(f"Lag of {group}: {found['total']} records{more}", _LAG_COLUMNS, rows)


def _member_row(member: Mapping[str, Any]) -> tuple[object, ...]:
    away = "" if member["connected"] else " (away)"
    return (
        member["id"],
        member.get("instance_id") or "",
        member.get("client_id") or "",
        member.get("pattern") or " ".join(member.get("topics") or ()),
        member["threads"],
        _owned(member["owned"]) + away,
    )


def _owned(rows: Iterable[tuple[str, Sequence[int]]]) -> str:
    return ", ".join(f"{topic}: {' '.join(map(str, numbers))}" for topic, numbers in rows)


def _cells(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[object, ...]:
    return tuple("" if row.get(name) is None else row[name] for name in columns)


def _say(answer: Mapping[str, Any], sentence: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        out.print(sentence, markup=False)


def _print_answer(answer: Mapping[str, Any]) -> None:
    columns = ("topic", "partition", "previous", "offset")
    title = "Would be reset" if answer.get("dry_run") else "Reset"
    print_table(title, columns, [_cells(row, columns) for row in answer["offsets"]])


def _where(to: str | None, offsets: list[str] | None, topics: list[str] | None) -> ResetTo:
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
    if not (topic and number.isdigit() and offset.isdigit()):
        raise typer.BadParameter(f"is written TOPIC-0=42, not {text!r}", param_hint="--offset")
    return TopicPartition(topic, int(number)), int(offset)

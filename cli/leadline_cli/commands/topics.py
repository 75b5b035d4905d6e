"""`leadline topics`: list, create, describe and delete topics, and show their offsets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from leadline_cli.admin import AdminContext, DryRun, Yes, admin_command, command_group
from leadline_cli.arguments import TIME_HELP, name_value, replica_lists, unix_ms
from leadline_cli.output import confirmed, numbers, partition_cells, print_table
from leadline_client.wire import NO_LEADER, NewTopic, PartitionInfo, TopicInfo

app = command_group("List, create, describe and delete topics.")


@app.command("list")
@admin_command
def list_topics(admin: AdminContext) -> None:
    """List topics with their partitions, replicas, and offline or under-replicated partitions."""
    with admin.connect(reads=True) as client:
        topics = client.list_topics()
    admin.show({"topics": [_summary(topic) for topic in topics]}, _print_topics)


@app.command()
@admin_command
def describe(admin: AdminContext, topic: str) -> None:
    """Show each partition: leader, leader epoch, in-sync and assigned replicas."""
    with admin.connect(reads=True) as client:
        found = client.describe(topic)
    admin.show(_topic_json(found), lambda _: _print_topic(found))


@app.command()
@admin_command
def create(
    admin: AdminContext,
    topic: str,
    *,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many; by default num.partitions.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, help="Replicas of each; by default default.replication.factor."),
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option(
            metavar="1:2:3,2:3:1", help="Replicas of each partition, preferred leader first."
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A topic config; repeatable.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Create a topic; wait until every partition has a leader and the brokers know it."""
    replicas = (
        None if assignment is None else dict(enumerate(map(tuple, replica_lists(assignment))))
    )
    configs = dict(name_value(pair, "--config") for pair in config or ())
    wanted = NewTopic(topic, partitions, replication_factor, replicas, configs)
    with admin.connect() as client:
        answer = client.create_topic(wanted, dry_run=dry_run)
    admin.show(answer, f"{'would create' if dry_run else 'created'} {topic}")


@app.command()
@admin_command
def delete(admin: AdminContext, topic: str, yes: Yes = False) -> None:
    """Delete a topic with all its records."""
    confirmed(f"Delete topic {topic} with all its records?", yes=yes)
    with admin.connect() as client:
        answer = client.delete_topic(topic)
    admin.show(answer, f"deleted {topic}")


@app.command()
@admin_command
def offsets(
    admin: AdminContext,
    topics: Annotated[list[str], typer.Argument(help="One or more topics")],
    *,
    at: Annotated[
        int | None,
        typer.Option(
            parser=unix_ms,
            metavar="TIME",
            help=f"Also show the first offset at or after this time: {TIME_HELP}.",
        ),
    ] = None,
) -> None:
    """Show the first and the end offset of each partition, as its leader knows them."""
    question = {"topics": topics, "timestamp": at}
    with admin.connect(reads=True) as client:
        found = client.administer("POST", "/v1/offsets", question, repeatable=True)
    admin.show(found, lambda document: _print_offsets(document, searched=at is not None))


def _print_topics(document: dict[str, Any]) -> None:
    columns = ("topic", "partitions", "replicas", "offline", "under-replicated")
    print_table("Topics", columns, [tuple(row.values()) for row in document["topics"]])


def _print_topic(topic: TopicInfo) -> None:
    print_table(
        f"{topic.name} ({topic.topic_id})",
        ("partition", "leader", "epoch", "in sync", "replicas", "out of sync"),
        [_partition_row(row) for row in topic.partitions],
    )


def _print_offsets(document: dict[str, Any], *, searched: bool) -> None:
    print_table(
        "Offsets",
        ("topic", "partition", "start", "end", "records", "at that time", "leader"),
        [_offsets_row(row, searched=searched) for row in document["partitions"]],
    )


def _offsets_row(row: dict[str, Any], *, searched: bool) -> tuple[object, ...]:
    """Return a row; `end` is the high watermark, where consumers stop reading."""
    topic_partition = row["topic"], row["partition"]
    offsets = row["offsets"]
    if offsets is None:
        return *topic_partition, "-", "-", "-", "-", row["message"]
    start, end = offsets["log_start_offset"], offsets["high_watermark"]
    then = "none yet" if offsets["offset"] is None else offsets["offset"]
    return *topic_partition, start, end, end - start, then if searched else "-", row["leader"]["id"]


def _summary(topic: TopicInfo) -> dict[str, Any]:
    rows = topic.partitions
    return {
        "topic": topic.name,
        "partitions": len(rows),
        "replication_factor": max((len(row.replicas) for row in rows), default=0),
        "offline": sum(row.leader == NO_LEADER for row in rows),
        "under_replicated": sum(len(row.isr) < len(row.replicas) for row in rows),
    }


def _topic_json(topic: TopicInfo) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [asdict(row) for row in topic.partitions],
    }


def _partition_row(row: PartitionInfo) -> tuple[object, ...]:
    lagging = [broker for broker in row.replicas if broker not in row.isr]
    return (*partition_cells(row), numbers(lagging))

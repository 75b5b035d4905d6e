"""`leadline topics`: list, create, describe and delete topics, and show their offsets."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import Yes, confirmed, numbers, out, print_json, print_table, reported
from leadline_cli.times import TIME_HELP, unix_ms
from leadline_client.wire import NO_LEADER, NewTopic, PartitionInfo, TopicInfo

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="List, create, describe, delete topics."
)


@app.command("list")
def list_topics(
    bootstrap: Bootstrap = None, data_dir: DataDir = DEFAULT_DATA_DIR, as_json: Json = False
) -> None:
    """List the topics: partitions, replicas, and how many partitions lack something."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        topics = client.list_topics()
    rows = [_summary(topic) for topic in topics]
    if as_json:
        print_json({"topics": rows})
        return
    columns = ("topic", "partitions", "replicas", "offline", "under-replicated")
    print_table("Topics", columns, [tuple(row.values()) for row in rows])


@app.command()
def describe(
    topic: str,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show each partition: leader, leader epoch, in-sync and assigned replicas."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.describe(topic)
    if as_json:
        print_json(_topic_json(found))
        return
    print_table(
        f"{found.name} ({found.topic_id})",
        ("partition", "leader", "epoch", "in sync", "replicas", "out of sync"),
        [_partition_row(row) for row in found.partitions],
    )


@app.command()
def create(
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check.")] = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Create a topic; done when every partition has a leader and the brokers know it."""
    wanted = NewTopic(
        topic, partitions, replication_factor, _parse_assignment(assignment), _parse_configs(config)
    )
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        answer = client.create_topic(wanted, dry_run=dry_run)
    if as_json:
        print_json(answer)
    else:
        out.print(f"{'would create' if dry_run else 'created'} {topic}", markup=False)


@app.command()
def delete(
    topic: str,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Delete a topic with all its records."""
    confirmed(f"Delete topic {topic} with all its records?", yes=yes)
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        answer = client.delete_topic(topic)
    if as_json:
        print_json(answer)
    else:
        out.print(f"deleted {topic}", markup=False)


@app.command()
def offsets(
    topics: Annotated[list[str], typer.Argument(help="One or more topics")],
    *,
    at: Annotated[
        int | None,
        typer.Option(
            parser=unix_ms,
            metavar="TIME",
            help=f"Also the first offset of then or later: {TIME_HELP}.",
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show where each partition begins and ends, as its leader knows it."""
    question = {"topics": topics, "timestamp": at}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.administer("POST", "/v1/offsets", question, repeatable=True)
    if as_json:
        print_json(found)
        return
    print_table(
        "Offsets",
        ("topic", "partition", "start", "end", "records", "at that time", "leader"),
        [_offsets_row(row, searched=at is not None) for row in found["partitions"]],
    )


def _offsets_row(row: dict[str, Any], *, searched: bool) -> tuple[object, ...]:
    """Return a row; `end` is the high watermark, as readers see it."""
    name = row["topic"], row["partition"]
    ends = row["offsets"]
    if ends is None:
        return *name, "-", "-", "-", "-", row["message"]
    start, end = ends["log_start_offset"], ends["high_watermark"]
    then = "none yet" if ends["offset"] is None else ends["offset"]
    return *name, start, end, end - start, then if searched else "-", row["leader"]["id"]


def _parse_assignment(text: str | None) -> dict[int, tuple[int, ...]] | None:
    if text is None:
        return None
    try:
        rows = [tuple(int(broker) for broker in row.split(":")) for row in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"an assignment looks like 1:2:3,2:3:1, not {text!r}", param_hint="--assignment"
        ) from None
    return dict(enumerate(rows))


def _parse_configs(pairs: list[str] | None) -> dict[str, str]:
    configs = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"takes name=value, not {pair!r}", param_hint="--config")
        configs[name] = value
    return configs


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
        "partitions": [
            {
                "partition": row.partition,
                "leader": row.leader,
                "leader_epoch": row.leader_epoch,
                "isr": list(row.isr),
                "replicas": list(row.replicas),
            }
            for row in topic.partitions
        ],
    }


def _partition_row(row: PartitionInfo) -> tuple[object, ...]:
    leader = "none" if row.leader == NO_LEADER else row.leader
    lagging = [broker for broker in row.replicas if broker not in row.isr]
    return (
        row.partition,
        leader,
        row.leader_epoch,
        numbers(row.isr),
        numbers(row.replicas),
        numbers(lagging),
    )

"""`leadline metadata|elect`: the cluster as a whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import numbers, out, print_json, print_table, reported
from leadline_client.wire import NO_LEADER, Metadata


def metadata(
    topic: Annotated[list[str] | None, typer.Argument(help="Only these topics.")] = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show what a broker tells its clients: one consistent snapshot."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.metadata(topic)
    if as_json:
        print_json(metadata_json(found))
        return
    active = found.controller
    out.print(f"cluster {found.cluster_id}, version {found.version}", markup=False)
    out.print(
        f"controller {active.id} at {active.url}, epoch {active.epoch}"
        if active
        else "no controller",
        markup=False,
    )
    print_table(
        "Partitions",
        ("topic", "partition", "leader", "epoch", "in sync", "replicas"),
        [
            (
                name,
                row.partition,
                "none" if row.leader == NO_LEADER else row.leader,
                row.leader_epoch,
                numbers(row.isr),
                numbers(row.replicas),
            )
            for name, one in sorted(found.topics.items())
            for row in one.partitions
        ],
    )


def elect(
    kind: Annotated[
        Literal["preferred", "unclean"],
        typer.Argument(help="unclean may lose acknowledged records: it is audited."),
    ],
    partition: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC-PARTITION", help="Which; by default every one in need."),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say who would lead, and what may be lost.")
    ] = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Elect leaders: the preferred replica, or (unclean) any live one."""
    names = [topic_partition(text) for text in partition or ()]
    rows = [{"topic": topic, "partition": number} for topic, number in names]
    wanted = {"type": kind, "partitions": rows or None, "dry_run": dry_run}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        answer = client.administer("POST", "/v1/elections", wanted, repeatable=dry_run)
    if as_json:
        print_json(answer)
        return
    print_table(
        "Would be elected" if dry_run else "Elected",
        ("topic", "partition", "leader", "epoch", "before", "why", "may lose what only these hold"),
        [_elected_row(row) for row in answer["elected"]],
    )


def _elected_row(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        row["topic"],
        row["partition"],
        row["leader"],
        row["leader_epoch"],
        "none" if row["previous_leader"] == NO_LEADER else row["previous_leader"],
        row["reason"],
        numbers(row["may_lose"]),
    )


def metadata_json(document: Metadata) -> dict[str, Any]:
    """Return a snapshot in the shape of `GET /v1/metadata`."""
    return {
        "cluster_id": document.cluster_id,
        "version": document.version,
        "controller": asdict(document.controller) if document.controller else None,
        "brokers": [asdict(broker) for broker in document.brokers.values()],
        "topics": {
            name: {
                "topic_id": topic.topic_id,
                "partitions": [
                    [row.partition, row.leader, row.leader_epoch, list(row.isr), list(row.replicas)]
                    for row in topic.partitions
                ],
            }
            for name, topic in document.topics.items()
        },
    }


def topic_partition(text: str) -> tuple[str, int]:
    """Parse a partition's name as people write it: `TOPIC-0`."""
    topic, _, number = text.rpartition("-")
    if not topic or not number.isdigit():
        raise typer.BadParameter(f"a partition is written TOPIC-0, not {text!r}")
    return topic, int(number)

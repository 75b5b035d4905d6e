"""`leadline metadata|elect`: the cluster as a whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from leadline_cli.admin import AdminContext, admin_command
from leadline_cli.arguments import topic_partition
from leadline_cli.output import leader_name, numbers, partition_cells, print_line, print_table
from leadline_client.wire import Metadata


@admin_command
def metadata(
    admin: AdminContext,
    topic: Annotated[list[str] | None, typer.Argument(help="Only these topics.")] = None,
) -> None:
    """Show the cluster metadata as one consistent snapshot."""
    with admin.connect(reads=True) as client:
        found = client.metadata(topic)
    admin.show(_metadata_json(found), lambda _: _print_metadata(found))


@admin_command
def elect(
    admin: AdminContext,
    kind: Annotated[
        Literal["preferred", "unclean"],
        typer.Argument(help="unclean may lose acknowledged records: it is audited."),
    ],
    partition: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC-PARTITION", help="Which; by default every partition that needs it."
        ),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the new leaders and what may be lost.")
    ] = False,
) -> None:
    """Elect leaders: the preferred replica, or with unclean any live one."""
    rows = [topic_partition(text)._asdict() for text in partition or ()]
    wanted = {"type": kind, "partitions": rows or None, "dry_run": dry_run}
    with admin.connect() as client:
        answer = client.administer("POST", "/v1/elections", wanted, repeatable=dry_run, once=True)
    title = "Would be elected" if dry_run else "Elected"
    admin.show(answer, lambda document: _print_elected(title, document))


def _print_metadata(found: Metadata) -> None:
    active = found.controller
    print_line(f"cluster {found.cluster_id}, version {found.version}")
    print_line(
        f"controller {active.id} at {active.url}, epoch {active.epoch}"
        if active
        else "no controller"
    )
    print_table(
        "Partitions",
        ("topic", "partition", "leader", "epoch", "in sync", "replicas"),
        [
            (name, *partition_cells(row))
            for name, topic in sorted(found.topics.items())
            for row in topic.partitions
        ],
    )


def _print_elected(title: str, document: dict[str, Any]) -> None:
    print_table(
        title,
        ("topic", "partition", "leader", "epoch", "before", "why", "may lose what only these hold"),
        [_elected_row(row) for row in document["elected"]],
    )


def _elected_row(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        row["topic"],
        row["partition"],
        row["leader"],
        row["leader_epoch"],
        leader_name(row["previous_leader"]),
        row["reason"],
        numbers(row["may_lose"]),
    )


def _metadata_json(document: Metadata) -> dict[str, Any]:
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

"""`leadline partitions`: add partitions to a topic, and remove its highest ones."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from leadline_cli.admin import AdminContext, DryRun, Yes, admin_command, command_group
from leadline_cli.arguments import replica_lists
from leadline_cli.output import confirmed, numbers, print_table

app = command_group("Add partitions to a topic, or remove some.")


@app.command()
@admin_command
def add(
    admin: AdminContext,
    topic: str,
    total: Annotated[int, typer.Argument(min=1, help="The new number of partitions.")],
    *,
    assignment: Annotated[
        str | None,
        typer.Option(
            metavar="1:2:3,2:3:1",
            help="Replicas of each new partition, preferred leader first; needs --from.",
        ),
    ] = None,
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="Number of the first new partition.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Bring a topic to TOTAL partitions. From then on, keys may map to other partitions."""
    body = {
        "partitions": total,
        "replica_assignment": _parse_assignment(assignment, first),
        "dry_run": dry_run,
    }
    with admin.connect() as client:
        answer = client.administer("POST", _path(topic), body, repeatable=dry_run, once=True)
    title = f"{'Would be added' if dry_run else 'Added'} to {topic}"
    admin.show(answer, lambda document: _print_added(title, document))


@app.command()
@admin_command
def remove(
    admin: AdminContext,
    topic: str,
    partition: Annotated[
        list[int], typer.Argument(help="The highest partitions; at least one must remain.")
    ],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove partitions of a topic with all their records."""
    question = f"Remove partitions {numbers(partition)} of {topic} with all their records?"
    confirmed(question, yes=yes or dry_run)
    body = {"partitions": partition, "dry_run": dry_run}
    with admin.connect() as client:
        answer = client.administer("DELETE", _path(topic), body, repeatable=dry_run, once=True)
    done = "removed" if answer["complete"] else "accepted, removal in progress:"
    words = "would remove" if dry_run else done
    admin.show(answer, f"{words} {topic} {numbers(answer['partitions'])}")


def _path(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}/partitions"


def _print_added(title: str, document: dict[str, Any]) -> None:
    rows = [(number, numbers(replicas)) for number, replicas in document["added"].items()]
    print_table(title, ("partition", "replicas"), rows)


def _parse_assignment(text: str | None, first: int | None) -> dict[str, list[int]] | None:
    if text is None:
        return None
    if first is None:
        raise typer.BadParameter("needs --from, the number of the first new partition")
    return {str(number): row for number, row in enumerate(replica_lists(text), first)}

"""`leadline partitions`: add partitions to a topic, and remove its highest ones."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import Yes, confirmed, numbers, out, print_json, print_table, reported

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Add partitions to a topic, or remove some."
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check.")]


@app.command()
def add(
    topic: str,
    total: Annotated[int, typer.Argument(min=1, help="How many it is to have.")],
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
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Bring a topic to TOTAL partitions; keys may go to other partitions from then on."""
    body = {
        "partitions": total,
        "replica_assignment": _parse_assignment(assignment, first),
        "dry_run": dry_run,
    }
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        path = f"/v1/topics/{quote(topic, safe='')}/partitions"
        answer = client.administer("POST", path, body, repeatable=dry_run)
    if as_json:
        print_json(answer)
        return
    title = f"{'Would be added' if dry_run else 'Added'} to {topic}"
    rows = [(number, numbers(replicas)) for number, replicas in answer["added"].items()]
    print_table(title, ("partition", "replicas"), rows)


@app.command()
def remove(
    topic: str,
    partition: Annotated[list[int], typer.Argument(help="The highest ones; at least one stays.")],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Remove partitions of a topic with all their records."""
    question = f"Remove partitions {numbers(partition)} of {topic} with all their records?"
    confirmed(question, yes=yes or dry_run)
    body = {"partitions": partition, "dry_run": dry_run}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        path = f"/v1/topics/{quote(topic, safe='')}/partitions"
        answer = client.administer("DELETE", path, body, repeatable=dry_run)
    if as_json:
        print_json(answer)
        return
    done = "removed" if answer["complete"] else "ordered, and under way: removing"
    words = "would remove" if dry_run else done
    out.print(f"{words} {topic} {numbers(answer['partitions'])}", markup=False)


def _parse_assignment(text: str | None, first: int | None) -> dict[str, list[int]] | None:
    if text is None:
        return None
    if first is None:
        raise typer.BadParameter("needs --from, the number of the first new partition")
    try:
        rows = [[int(broker) for broker in row.split(":")] for row in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"an assignment looks like 1:2:3,2:3:1, not {text!r}", param_hint="--assignment"
        ) from None
    return {str(first + place): row for place, row in enumerate(rows)}

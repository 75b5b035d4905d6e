"""`leadline brokers`: list them, and take them out of service."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from leadline_cli.commands.tasks import follow, show_task
from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import EXIT_REFUSED, out, print_json, print_table, reported
from leadline_client.wire import Metadata

app = typer.Typer(
    add_completion=False, help="List the brokers; see whether one may stop; empty it."
)

BrokerId = Annotated[int, typer.Argument(metavar="BROKER", help="The broker's id.")]

_WORDS: Final = {
    "no_successor": "would lose their leader: nobody else is in sync",
    "offline": "have no leader, and wait for this broker",
    "below_min_insync": "would refuse acks=all: too few would be in sync",
    "under_replicated": "lack a replica already",
}


@app.callback(invoke_without_command=True)
def brokers(
    context: typer.Context,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """List the live brokers and what each leads and follows."""
    if context.invoked_subcommand is None:
        list_brokers(bootstrap, data_dir, as_json)


@app.command("list")
def list_brokers(
    bootstrap: Bootstrap = None, data_dir: DataDir = DEFAULT_DATA_DIR, as_json: Json = False
) -> None:
    """List the live brokers and what each leads and follows: as `leadline brokers` does."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        metadata = client.metadata()
    rows = _broker_rows(metadata)
    if as_json:
        print_json({"brokers": rows})
        return
    columns = ("broker", "address", "rack", "incarnation", "leads", "replicas")
    print_table("Brokers", columns, [tuple(row.values()) for row in rows])


@app.command("can-stop")
def can_stop(
    broker: BrokerId,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Say whether a broker may stop now without harm; exit code 1 if not."""
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.administer("GET", f"/v1/brokers/{broker}/can-stop")
    if as_json:
        print_json(found)
    else:
        _print_risks(broker, found)
    if not found["can_stop"]:
        raise typer.Exit(EXIT_REFUSED)


@app.command()
def drain(
    broker: BrokerId,
    *,
    leaders_only: Annotated[
        bool, typer.Option("--leaders-only", help="Until it is cancelled; replicas stay.")
    ] = False,
    throttle: Annotated[
        int | None, typer.Option(min=1, help="Bytes per second and broker for moving replicas.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only plan.")] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Follow it until it is over; exit code 1 if it was not done."),
    ] = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Empty a broker: all leaders at once, then all replicas, as a task."""
    wanted = {"leaders_only": leaders_only, "throttle_bytes_per_s": throttle, "dry_run": dry_run}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        task = client.administer("POST", f"/v1/brokers/{broker}/drain", wanted, repeatable=dry_run)
        if watch and not dry_run:
            task = follow(client, task["id"])
    show_task(task, as_json=as_json, over=watch and not dry_run)
    if dry_run and not as_json:
        details = task["details"]
        out.print(
            f"  {details['leaders']} leaders would move, "
            f"{details['leaders_that_stay']} only with their replicas",
            markup=False,
        )


def _print_risks(broker: int, found: dict[str, Any]) -> None:
    if found["can_stop"]:
        out.print(f"broker {broker} may stop", markup=False)
        return
    out.print(f"broker {broker} should not stop now:", markup=False)
    for row in found["reasons"]:
        names = [f"{one['topic']}-{one['partition']}" for one in row["partitions"]]
        more = ", …" if row["total"] > len(names) else ""
        out.print(f"  {row['total']} partitions {_WORDS[row['reason']]}", markup=False)
        out.print(f"    {', '.join(names)}{more}", markup=False)


def _broker_rows(document: Metadata) -> list[dict[str, Any]]:
    rows = [row for topic in document.topics.values() for row in topic.partitions]
    return [
        {
            "id": broker.id,
            "url": broker.url,
            "rack": broker.rack or "",
            "incarnation": broker.incarnation,
            "leads": sum(row.leader == broker.id for row in rows),
            "replicas": sum(broker.id in row.replicas for row in rows),
        }
        for broker in sorted(document.brokers.values(), key=lambda one: one.id)
    ]

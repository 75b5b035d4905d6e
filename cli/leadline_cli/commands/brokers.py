"""`leadline brokers|failed-brokers`: list brokers, drain them, and follow their failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from leadline_cli.admin import AdminContext, admin_command, known_cluster
from leadline_cli.arguments import shown
from leadline_cli.commands.tasks import Watch, follow, show_task
from leadline_cli.output import (
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    print_line,
    print_note,
    print_problem,
    print_table,
    reported,
)
from leadline_cli.restart_requests import RestartProblem, restart_broker
from leadline_client.errors import LeadlineError
from leadline_client.retry import RetryPolicy
from leadline_client.wire import Metadata

app = typer.Typer(
    add_completion=False,
    help="List brokers, check whether one can stop, drain it, and restart it.",
)

BrokerId = Annotated[int, typer.Argument(metavar="BROKER", help="The broker's id.")]

_FAILED_BROKERS: Final = "/v1/failed-brokers"
_HEALED: Final = "healed"
"""The state of a broker without any replica left on it."""
_BRIEF: Final = RetryPolicy(timeout_s=3.0, first_contact_s=1.5)
"""Listing brokers does not wait out an outage: that is when somebody looks."""
_ASK_ONCE: Final = RetryPolicy(timeout_s=2.0, first_contact_s=1.5)
_RISKS: Final = {
    "no_successor": "would lose their leader: no other replica is in sync",
    "offline": "have no leader, and wait for this broker",
    "below_min_insync": "would refuse acks=all: too few replicas would be in sync",
    "under_replicated": "are under-replicated already",
}


@app.callback(invoke_without_command=True)
@admin_command
def brokers(admin: AdminContext, context: typer.Context) -> None:
    """List live brokers with the partitions that each leads and follows."""
    if context.invoked_subcommand is None:
        _list(admin)


@app.command("list")
@admin_command
def list_brokers(admin: AdminContext) -> None:
    """List live brokers with what each leads and follows, as `leadline brokers` does."""
    _list(admin)


@app.command("can-stop")
@admin_command
def can_stop(admin: AdminContext, broker: BrokerId) -> None:
    """Check whether a broker can stop now without harm; exit with 1 if not."""
    with admin.connect(reads=True) as client:
        found = client.administer("GET", f"/v1/brokers/{broker}/can-stop")
    admin.show(found, lambda document: _print_risks(broker, document))
    if not found["can_stop"]:
        raise typer.Exit(EXIT_REFUSED)


@app.command()
@admin_command
def drain(
    admin: AdminContext,
    broker: BrokerId,
    *,
    leaders_only: Annotated[
        bool,
        typer.Option("--leaders-only", help="Move leaders until cancelled; replicas stay."),
    ] = False,
    throttle: Annotated[
        int | None, typer.Option(min=1, help="Bytes per second and broker for moving replicas.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only plan.")] = False,
    watch: Watch = False,
) -> None:
    """Drain a broker: move all its leaders at once, then all its replicas, as a task."""
    wanted = {"leaders_only": leaders_only, "throttle_bytes_per_s": throttle, "dry_run": dry_run}
    with admin.connect() as client:
        task = client.administer(
            "POST", f"/v1/brokers/{broker}/drain", wanted, repeatable=dry_run, once=True
        )
        if watch and not dry_run:
            task = follow(client, task["id"], as_json=admin.as_json)
    show_task(task, as_json=admin.as_json, over=watch and not dry_run)
    if dry_run and not admin.as_json:
        details = task["details"]
        print_line(
            f"  {details['leaders']} leaders would move, "
            f"{details['leaders_that_stay']} only with their replicas"
        )


@app.command()
@admin_command
def forget(admin: AdminContext, broker: BrokerId) -> None:
    """Stop listing a broker that is down and will not return; refused while it has replicas."""
    with admin.connect() as client:
        found = client.administer("DELETE", f"{_FAILED_BROKERS}/{broker}", once=True)
    admin.show(found, f"broker {broker} is forgotten")


@app.command()
@admin_command
def restart(
    admin: AdminContext,
    broker: BrokerId,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Even if `can-stop` says that it should not stop now.")
    ] = False,
) -> None:
    """Restart a broker that `leadline up` started, whether it runs or has ended; wait for it."""
    cluster = known_cluster(admin.data_dir)
    if broker not in {row.id for row in cluster.brokers} if cluster else True:
        raise typer.BadParameter(f"`leadline up` in {admin.data_dir} has no broker {broker}")
    if not force:
        _check_can_stop(admin, broker)
    try:
        with reported(as_json=admin.as_json):
            pid = restart_broker(admin.data_dir, broker)
    except RestartProblem as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_REFUSED) from None
    except TimeoutError as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_UNKNOWN) from None
    admin.show({"id": broker, "pid": pid}, f"broker {broker} runs again as process {pid}")


@admin_command
def failed_brokers(
    admin: AdminContext,
    *,
    history: Annotated[bool, typer.Option("--history", help="Show past failures too.")] = False,
    broker: Annotated[
        int | None, typer.Option(help="With --history: only failures of this broker.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="With --history: how many.")] = 50,
) -> None:
    """List brokers that are down and their self-healing, or the history of failures."""
    params = {"limit": str(limit)} | ({} if broker is None else {"broker": str(broker)})
    with admin.connect(reads=True) as client:
        if history:
            found = client.administer("GET", f"{_FAILED_BROKERS}/history", params=params)
        else:
            found = client.administer("GET", _FAILED_BROKERS)
    admin.show(found, _print_history if history else _print_failed)


def _check_can_stop(admin: AdminContext, broker: int) -> None:
    """Exit with 1 if a live broker should not stop now."""
    path = f"/v1/brokers/{broker}/can-stop"
    try:
        with admin.client(_ASK_ONCE) as client:
            if broker not in {row.id for row in client.brokers()}:
                return
            found = client.administer("GET", path)
    except LeadlineError:
        return  # The cluster is in a bad way, and a restart may be what it needs.
    if not found["can_stop"]:
        _print_risks(broker, found)
        print_note("--force restarts it all the same")
        raise typer.Exit(EXIT_REFUSED)


def _list(admin: AdminContext) -> None:
    with admin.connect(reads=True) as client:
        metadata = client.metadata()
    releases = _releases(admin)
    document = {"brokers": _broker_rows(metadata, releases), "down": _down_rows(admin, metadata)}
    admin.show(document, _print_brokers)


def _print_brokers(document: dict[str, Any]) -> None:
    columns = ("broker", "address", "rack", "incarnation", "leads", "replicas", "release")
    rows: list[tuple[Any, ...]] = [tuple(row.values()) for row in document["brokers"]]
    rows += [
        (row["id"], f"down: {row['state']}", "", "", 0, row["replicas"], "")
        for row in document["down"]
    ]
    rows.sort(key=lambda row: int(row[0]))
    print_table("Brokers", columns, rows)
    if any(row["state"] == _HEALED for row in document["down"]):
        print_line(
            "a healed broker is listed until it returns, or `leadline brokers forget BROKER`"
        )


def _down_rows(admin: AdminContext, metadata: Metadata) -> list[dict[str, Any]]:
    """Return the brokers that are down; without a controller those that have replicas."""
    rows = [row for topic in metadata.topics.values() for row in topic.partitions]
    replicas = Counter(broker for row in rows for broker in row.replicas)
    states = dict.fromkeys((b for b in replicas if b not in metadata.brokers), "unknown")
    with suppress(LeadlineError), admin.client(_BRIEF) as client:
        found = client.administer("GET", _FAILED_BROKERS)["brokers"]
        states |= {row["id"]: row["state"] for row in found if row["id"] not in metadata.brokers}
    return [
        {"id": broker, "state": states[broker], "replicas": replicas[broker]}
        for broker in sorted(states)
    ]


def _print_risks(broker: int, found: dict[str, Any]) -> None:
    if found["can_stop"]:
        print_line(f"broker {broker} may stop")
        return
    print_line(f"broker {broker} should not stop now:")
    for row in found["reasons"]:
        partitions = [f"{one['topic']}-{one['partition']}" for one in row["partitions"]]
        more = ", …" if row["total"] > len(partitions) else ""
        print_line(f"  {row['total']} partitions {_RISKS[row['reason']]}")
        print_line(f"    {', '.join(partitions)}{more}")


def _releases(admin: AdminContext) -> dict[int, str]:
    """Return the releases of live brokers; nothing without a controller.

    A controller up to release 0.1.0, which a rolling upgrade restarts last, does not name them.
    """
    with suppress(LeadlineError), admin.client(_BRIEF) as client:
        found = client.administer("GET", "/v1/brokers")["brokers"]
        return {row["id"]: row.get("release", "") for row in found}
    return {}


def _broker_rows(metadata: Metadata, releases: Mapping[int, str]) -> list[dict[str, Any]]:
    rows = [row for topic in metadata.topics.values() for row in topic.partitions]
    return [
        {
            "id": broker.id,
            "url": broker.url,
            "rack": broker.rack or "",
            "incarnation": broker.incarnation,
            "leads": sum(row.leader == broker.id for row in rows),
            "replicas": sum(broker.id in row.replicas for row in rows),
            "release": releases.get(broker.id, ""),
        }
        for broker in sorted(metadata.brokers.values(), key=lambda broker: broker.id)
    ]


def _print_failed(found: dict[str, Any]) -> None:
    columns = ("broker", "state", "failed (UTC)", "since (UTC)", "partitions", "moved", "chunks")
    rows = [
        (
            row["id"],
            row["state"],
            _time(row["failed_at"]),
            _time(row["healed_at"] or row["queued_at"]),
            row["partitions"],
            row["partitions_moved"],
            len(row["chunks"]),
        )
        for row in found["brokers"]
    ]
    print_table("Brokers that are down", columns, rows)
    for row in found["brokers"]:
        until = f", {_time(row['due_at'])} UTC" if row["due_at"] else ""
        if row["waits_for"]:
            print_line(f"broker {row['id']} waits: {row['waits_for']}{until}")
    if any(row["state"] == _HEALED for row in found["brokers"]):
        print_line(
            "a healed broker is listed until it returns, or `leadline brokers forget BROKER`"
        )


def _print_history(found: dict[str, Any]) -> None:
    columns = (
        "broker",
        "failed (UTC)",
        "outcome",
        "returned (UTC)",
        "chunks",
        "partitions",
        "healing s",
    )
    rows = [
        (
            row["broker"],
            _time(row["failed_at"]),
            row["outcome"],
            _time(row["returned_at"]),
            _share(row, "chunks_over", "chunks"),
            _share(row, "partitions_moved", "partitions"),
            "" if row["healing_ms"] is None else f"{row['healing_ms'] / 1000:.1f}",
        )
        for row in found["failures"]
    ]
    print_table("Broker failures", columns, rows)


def _share(row: dict[str, Any], done: str, total: str) -> str:
    """Show what is done of the total, which is known once all partitions are queued."""
    if row["queued_at"] is not None:
        return f"{row[done]}/{row[total]}"
    return f"{row[done]} so far" if row[done] else ""


def _time(unix_ms: int | None) -> str:
    return "" if unix_ms is None else shown(unix_ms)

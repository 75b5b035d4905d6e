"""`leadline configs`: show and change settings of the cluster, a broker or a topic."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

import typer

from leadline_cli.admin import AdminContext, DryRun, admin_command, command_group
from leadline_cli.arguments import name_value
from leadline_cli.output import print_line, print_table, print_warning

app = command_group("Show and change settings of the cluster, a broker or a topic.")

_NEAR: Final = 0.75
"""How similar a name must be to be suggested for a misspelt one."""

Topic: TypeAlias = Annotated[str | None, typer.Option(help="Settings of this topic.")]
Broker: TypeAlias = Annotated[int | None, typer.Option(min=0, help="Settings of this broker.")]
Cluster: TypeAlias = Annotated[
    bool, typer.Option("--cluster", help="Settings of the whole cluster (the default).")
]


@app.command()
@admin_command
def describe(
    admin: AdminContext,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these settings.")
    ] = None,
    *,
    topic: Topic = None,
    broker: Broker = None,
    cluster: Cluster = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that differ from their default.")
    ] = False,
) -> None:
    """Show settings: the effective value, its source, and where it can be changed."""
    path = _path(topic, broker, cluster=cluster)
    with admin.connect(reads=True) as client:
        found = client.administer("GET", path)
    _check_names(names or [], found["configs"])
    found["configs"] = [row for row in found["configs"] if _is_wanted(row, names, changed=changed)]
    admin.show(found, _print_configs)


@app.command("set")
@admin_command
def set_configs(
    admin: AdminContext,
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE")],
    *,
    topic: Topic = None,
    broker: Broker = None,
    cluster: Cluster = False,
    dry_run: DryRun = False,
) -> None:
    """Change settings, all or none; they take effect within moments, without a restart."""
    changes = dict(name_value(text, "NAME=VALUE") for text in settings)
    _alter(admin, _path(topic, broker, cluster=cluster), {"set": changes, "dry_run": dry_run})


@app.command()
@admin_command
def unset(
    admin: AdminContext,
    names: Annotated[list[str], typer.Argument(metavar="NAME")],
    *,
    topic: Topic = None,
    broker: Broker = None,
    cluster: Cluster = False,
    dry_run: DryRun = False,
) -> None:
    """Remove settings, all or none; the next weaker value of each takes effect."""
    _alter(admin, _path(topic, broker, cluster=cluster), {"remove": names, "dry_run": dry_run})


def _alter(admin: AdminContext, path: str, body: dict[str, Any]) -> None:
    with admin.connect() as client:
        altered = client.administer("PATCH", path, body, repeatable=True)
    admin.show(altered, _print_altered)


def _path(topic: str | None, broker: int | None, *, cluster: bool) -> str:
    """Return the path of the settings of a topic, a broker or the cluster.

    Raises:
        typer.BadParameter: more than one of them is given.

    """
    if sum((topic is not None, broker is not None, cluster)) > 1:
        raise typer.BadParameter("give one of --topic, --broker and --cluster")
    if topic is not None:
        return f"/v1/topics/{quote(topic, safe='')}/configs"
    return "/v1/configs" if broker is None else f"/v1/brokers/{broker}/configs"


def _check_names(names: list[str], rows: list[dict[str, Any]]) -> None:
    """Refuse names that no setting of this level has.

    Raises:
        typer.BadParameter: one of them is unknown.

    """
    known = {name for row in rows for name in (row["name"], *row["aliases"])}
    for name in names:
        if name not in known:
            near = get_close_matches(name, sorted(known), 1, _NEAR)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise typer.BadParameter(f"there is no setting {name} here{hint}", param_hint="NAME")


def _is_wanted(row: dict[str, Any], names: list[str] | None, *, changed: bool) -> bool:
    if names and row["name"] not in names and not set(names) & set(row["aliases"]):
        return False
    return not changed or row["source"] != "default"


def _print_configs(found: dict[str, Any]) -> None:
    columns = ("setting", "value", "unit", "from", "scope", "default")
    title = f"Settings of {found['level']} {found['name']}".strip()
    print_table(title, columns, [_row(row) for row in found["configs"]])
    for name, problem in found["problems"].items():
        print_warning(f"ignored: {name or 'the whole node'}: {problem}")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    value = "(hidden)" if row["sensitive"] else row["value"] or ""
    return (
        row["name"],
        value,
        row["unit"],
        row["source"],
        row["scope"],
        row["default"] or "",
    )


def _print_altered(altered: dict[str, Any]) -> None:
    did = "would change" if altered["dry_run"] else "changed"
    if not altered["changed"]:
        print_line("nothing to change")
    for row in altered["changed"]:
        before, after = (row[when] or "not set" for when in ("before", "after"))
        print_line(f"{did} {row['name']}: {before} -> {after}")

"""`leadline configs`: show and change settings of the cluster, of a broker, of a topic."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from leadline_cli.connection import DEFAULT_DATA_DIR, Bootstrap, DataDir, Json, connect
from leadline_cli.output import err, out, print_json, print_table, reported

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Show and change settings of the cluster, of a broker, of a topic.",
)

Topic: TypeAlias = Annotated[str | None, typer.Option(help="Settings of this topic.")]
Broker: TypeAlias = Annotated[int | None, typer.Option(min=0, help="Settings of this broker.")]
Cluster: TypeAlias = Annotated[
    bool, typer.Option("--cluster", help="Settings of the whole cluster (the default).")
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only check.")]


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these settings.")
    ] = None,
    *,
    topic: Topic = None,
    broker: Broker = None,
    cluster: Cluster = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what is not at its default.")
    ] = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show settings: the value in force, where it comes from, and where it may be changed."""
    path = _path(topic, broker, cluster=cluster)
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        found = client.administer("GET", path)
    _check_names(names or [], found["configs"])
    found["configs"] = [row for row in found["configs"] if _is_wanted(row, names, changed=changed)]
    if as_json:
        print_json(found)
        return
    columns = ("setting", "value", "unit", "from", "scope", "default")
    print_table(_title(found), columns, [_row(row) for row in found["configs"]])
    for name, problem in found["problems"].items():
        err.print(f"not obeyed: {name or 'all of it'}: {problem}", style="yellow", markup=False)


@app.command("set")
def set_configs(
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE")],
    *,
    topic: Topic = None,
    broker: Broker = None,
    cluster: Cluster = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Set settings, all or none; they are in force within moments, without a restart."""
    path = _path(topic, broker, cluster=cluster)
    body = {"set": dict(map(_pair, settings)), "dry_run": dry_run}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        altered = client.administer("PATCH", path, body, repeatable=True)
    _show(altered, as_json=as_json)


@app.command()
def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME")],
    *,
    topic: Topic = None,
    broker: Broker = None,
    cluster: Cluster = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Take settings away, all or none; the value behind each holds again."""
    path = _path(topic, broker, cluster=cluster)
    body = {"remove": names, "dry_run": dry_run}
    with reported(as_json=as_json), connect(bootstrap, data_dir) as client:
        altered = client.administer("PATCH", path, body, repeatable=True)
    _show(altered, as_json=as_json)


def _path(topic: str | None, broker: int | None, *, cluster: bool) -> str:
    """Return the path of the settings that are meant.

    Raises:
        typer.BadParameter: more than one level is.

    """
    if sum((topic is not None, broker is not None, cluster)) > 1:
        raise typer.BadParameter("give one of --topic, --broker and --cluster")
    if topic is not None:
        return f"/v1/topics/{quote(topic, safe='')}/configs"
    return "/v1/configs" if broker is None else f"/v1/brokers/{broker}/configs"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"takes name=value, not {text!r}", param_hint="NAME=VALUE")
    return name.strip(), value.strip()


def _check_names(names: list[str], rows: list[dict[str, Any]]) -> None:
    """Refuse names that no setting of this level has.

    Raises:
        typer.BadParameter: one of them is not known here.

    """
    known = {name for row in rows for name in (row["name"], *row["aliases"])}
    for name in names:
        if name not in known:
            near = get_close_matches(name, sorted(known), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise typer.BadParameter(f"there is no setting {name} here{hint}", param_hint="NAME")


def _is_wanted(row: dict[str, Any], names: list[str] | None, *, changed: bool) -> bool:
    if names and row["name"] not in names and not set(names) & set(row["aliases"]):
        return False
    return not changed or row["source"] != "default"


def _title(found: dict[str, Any]) -> str:
    return f"Settings of {found['level']} {found['name']}".strip()


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    value = "(hidden)" if row["sensitive"] else _text(row["value"])
    return (
        row["name"],
        value,
        row["unit"],
        row["source"],
        row["scope"],
        _text(row["default"]),
    )


def _show(altered: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(altered)
        return
    did = "would change" if altered["dry_run"] else "changed"
    if not altered["changed"]:
        out.print("all is so already", markup=False)
    for row in altered["changed"]:
        before, after = (_text(row[when]) or "not set" for when in ("before", "after"))
        out.print(f"{did} {row['name']}: {before} -> {after}", markup=False)


def _text(value: str | None) -> str:
    return "" if value is None else value

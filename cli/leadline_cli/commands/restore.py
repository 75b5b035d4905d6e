"""`leadline cluster restore` and `survey`: a cluster from a backup and its brokers' logs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from leadline_cli.admin import DataDir, DryRun, Json, known_cluster
from leadline_cli.cluster_file import DEFAULT_DATA_DIR, FILE_NAME, ClusterFile
from leadline_cli.commands.backup import (
    HISTORIES,
    Certificate,
    Credentials,
    ZkCa,
    ZkHosts,
    login_from,
)
from leadline_cli.output import (
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    print_json,
    print_line,
    print_note,
    print_problem,
)
from leadline_client.errors import LeadlineError
from leadline_common.identity import UnusableCredentials
from leadline_common.private_files import keep_files_private
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import ZkError

if TYPE_CHECKING:
    from leadline_cli.backup.restoring import Prepared, RestoreReport, Sources

_AGAIN: Final = "Until it is complete, services wait: run the same command again"
_PROBLEMS: Final = (
    UnusableCredentials,
    LeadlineError,
    ZkError,
    ValueError,
    OSError,
    RuntimeError,
)


def survey(
    log_dir: Annotated[Path, typer.Argument(help="The log.dir of a broker that is stopped.")],
    file: Annotated[Path, typer.Argument(help="What to write.")],
    *,
    as_json: Json = False,
) -> None:
    """Write what a broker's logs hold to a file, for `leadline cluster restore` elsewhere."""
    keep_files_private()
    try:
        found = import_module("leadline_cli.backup.restoring").write_survey(log_dir, file)
    except _PROBLEMS as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_REFUSED) from None
    summary = {"broker": found.broker_id, "logs": len(found.logs), "lost": len(found.lost)}
    if as_json:
        print_json(summary)
    else:
        lost = f", {len(found.lost)} lost" if found.lost else ""
        print_line(f"{file} written: broker {found.broker_id}, {len(found.logs)} logs{lost}")


def restore(
    file: Annotated[Path, typer.Argument(help="A backup that `leadline cluster backup` wrote.")],
    *,
    zookeeper: ZkHosts = None,
    credentials: Credentials = None,
    ca: ZkCa = None,
    certificate: Certificate = None,
    logs: Annotated[
        list[Path] | None,
        typer.Option(
            "--logs",
            metavar="PATH",
            help="A broker's log.dir or survey; repeatable. With --data-dir they are found.",
        ),
    ] = None,
    histories: Annotated[
        list[Path] | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="A controller's history.db as it is now; repeatable. With --data-dir: found.",
        ),
    ] = None,
    accept_loss: Annotated[
        list[int] | None,
        typer.Option(metavar="BROKER", help="Go on although logs of this broker are lost."),
    ] = None,
    topic_id: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC=ID", help="Which of several topics of that name is restored."),
    ] = None,
    dry_run: DryRun = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Restore a cluster whose ZooKeeper is lost, from a backup and the logs of all brokers.

    All services must be stopped, and ZooKeeper empty.
    """
    keep_files_private()
    known = _known(data_dir) if zookeeper is None else None
    restoring = import_module("leadline_cli.backup.restoring")
    choices = restoring.Choices(frozenset(accept_loss or ()), _topic_ids(topic_id or ()))
    sources: Sources = restoring.Sources(
        file,
        logs or (_log_directories(known) if known else []),
        histories or (sorted(data_dir.glob(HISTORIES)) if known else []),
        data_dir if known else None,
        choices,
    )
    with _reported(writes=not dry_run):
        login = login_from(credentials, ca, certificate, data_dir, found=known is not None)
        target = None if dry_run else _Target(zookeeper, login, known, data_dir)
        report = _restore(sources, target)
    _show(report, as_json=as_json, dry_run=dry_run)


@contextmanager
def _reported(*, writes: bool) -> Iterator[None]:
    """Turn the errors of a restore into messages and exit codes; `writes`: it is no dry run."""
    try:
        yield
    except import_module("leadline_cli.backup.writing").Unfinished as problem:
        print_problem(f"{problem}. {_AGAIN}")
        raise typer.Exit(EXIT_UNKNOWN) from None
    except KeyboardInterrupt:
        print_note(f"interrupted. {_AGAIN}" if writes else "interrupted")
        raise
    except _PROBLEMS as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_REFUSED) from None


class _Target(NamedTuple):
    """Where to restore to: a ZooKeeper that runs, or that of a known cluster, which is stopped."""

    zookeeper: str | None
    login: ZkCredentials | None
    known: ClusterFile | None
    data_dir: Path


def _restore(sources: Sources, target: _Target | None) -> RestoreReport:
    """Decide, and write to the target if there is one."""
    restoring = import_module("leadline_cli.backup.restoring")
    local = import_module("leadline_cli.backup.local_zookeeper")
    workspace = import_module("leadline_cli.backup.workspace")
    with (
        workspace.workspace(Path(tempfile.gettempdir())) as directory,
        local.stopped_cluster(sources.data_dir),
    ):
        prepared: Prepared = restoring.prepare_restore(sources, directory)
        if target is not None and target.known is not None:
            with local.zookeeper_of(target.known, target.data_dir):
                prepared.write(target.known.zookeeper, target.login)
        elif target is not None and target.zookeeper is not None:
            prepared.write(target.zookeeper, target.login)
    return prepared.report


def _topic_ids(pairs: Sequence[str]) -> dict[str, str]:
    found = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    if not all(found.values()):
        raise typer.BadParameter("--topic-id takes TOPIC=ID")
    return found


def _known(data_dir: Path) -> ClusterFile:
    known = known_cluster(data_dir)
    if known is None:
        raise typer.BadParameter(
            f"no cluster to restore: give --zookeeper, or --data-dir with a {FILE_NAME} "
            f"(there is none in {data_dir})"
        )
    return known


def _log_directories(known: ClusterFile) -> list[Path]:
    named = (Path(broker.log_dir) for broker in known.brokers if broker.log_dir)
    return [path for path in named if path.exists()]


def _show(report: RestoreReport, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json({"dry_run": dry_run, **import_module("msgspec").to_builtins(report)})
        return
    print_line(
        f"cluster {report.cluster_id} {'can be' if dry_run else 'is'} restored: {report.topics} "
        f"topics, {report.partitions} partitions, {report.nodes} nodes"
    )
    for name in report.new_topics:
        print_note(
            f"{name} is known from its logs alone: it keeps all records until you set its "
            "retention, and has the default of every other setting"
        )
    for parent, count in report.left_out.items():
        print_note(f"{count} below {parent} not restored: order it again if it is still wanted")
    for path in report.histories:
        print_note(f"{path} put back from the backup")

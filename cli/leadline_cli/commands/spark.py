"""`leadline spark`: run jobs on Spark, on this machine or on a cluster."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from leadline_cli.admin import Bootstrap, DataDir, command_group, find_bootstrap
from leadline_cli.cluster_file import DEFAULT_DATA_DIR
from leadline_cli.output import print_line
from leadline_cli.spark_submit import (
    LOCAL,
    ZIP_NAME,
    run_here,
    submit_command,
    submit_environment,
    write_package,
)


class Job(NamedTuple):
    """A job: its module, its help, and the options that name its input.

    If none of `inputs` is given, the job gets the addresses of the cluster that all commands find.
    `bare` jobs need no Spark.
    """

    module: str
    help: str
    inputs: tuple[str, ...] = ()
    bare: bool = False


JOBS: Final = {
    "archive": Job(
        "leadline_spark.jobs.archive", "Archive topics as Parquet, exactly once.", ("--bootstrap",)
    ),
    "verify": Job("leadline_spark.jobs.verify", "Check an archive; needs no Spark.", bare=True),
    "compact": Job("leadline_spark.jobs.compact", "Merge an archive's small files."),
    "replay": Job(
        "leadline_spark.jobs.replay", "Write an archive back into a topic.", ("--bootstrap",)
    ),
    "analytics": Job(
        "leadline_spark.jobs.analytics.job",
        "Compute statistics and a report from the audit history.",
        ("--bootstrap", "--history"),
    ),
    "balance": Job(
        "leadline_spark.jobs.balance",
        "Balance leaders and replicas by load; a dry run unless --apply.",
        ("--bootstrap",),
    ),
}

_LAUNCHING: Final = """
launching (options of the command, before or after those of the job):
  --master URL          a Spark cluster's (spark://…, k8s://…, yarn), or local[N]; default local[*]
  --conf NAME=VALUE     a setting of Spark; repeatable
  --print-command       only print the commands that submit the job
  --data-dir DIR        read the brokers' addresses from its cluster.json, in place of --bootstrap
"""

app = command_group("Run Spark jobs on this machine or on a cluster (--master).")


@app.command("package")
def package(
    path: Annotated[Path, typer.Argument(help="The zip to write.")] = Path(ZIP_NAME),
) -> None:
    """Write the zip that executors need, for `spark-submit --py-files`."""
    write_package(path)
    print_line(str(path))


def _command(job: Job) -> Callable[..., None]:
    """Return the command that runs a job; it passes options that it does not know on to the job."""

    def run(
        context: typer.Context,
        master: Annotated[str, typer.Option()] = LOCAL,
        conf: Annotated[list[str] | None, typer.Option()] = None,
        bootstrap: Bootstrap = None,
        data_dir: DataDir = DEFAULT_DATA_DIR,
        print_command: Annotated[bool, typer.Option("--print-command")] = False,
    ) -> None:
        if {"--help", "-h"} & set(context.args):
            typer.echo(import_module(job.module).parser().format_help() + _LAUNCHING)
            return
        arguments = [*context.args, *_input(job, context.args, bootstrap, data_dir)]
        if print_command:
            words = submit_command(job.module, arguments, master, conf or [], Path(ZIP_NAME))
            print_line(f"leadline spark package {ZIP_NAME}\n{shlex.join(words)}")
        elif job.bare:
            raise typer.Exit(import_module(job.module).main(arguments))
        elif master.startswith("local"):
            raise typer.Exit(run_here(job.module, arguments, master, conf or []))
        else:
            raise typer.Exit(_submit(job, arguments, master, conf or []))

    return run


def _input(job: Job, given: list[str], bootstrap: str | None, data_dir: Path) -> list[str]:
    """Return the option that names the cluster, unless the job has another input."""
    names = {word.partition("=")[0] for word in given}
    if bootstrap is None and (not job.inputs or names & set(job.inputs)):
        return []
    return ["--bootstrap", ",".join(find_bootstrap(bootstrap, data_dir))]


def _submit(job: Job, arguments: list[str], master: str, conf: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="leadline-spark-") as folder:
        zipped = Path(folder) / ZIP_NAME
        write_package(zipped)
        words = submit_command(job.module, arguments, master, conf, zipped)
        environment = submit_environment(zipped)
        return subprocess.run(words, env=environment, check=False).returncode  # noqa: S603 - our own command


_PASSING_ON: Final[dict[str, Any]] = {"allow_extra_args": True, "ignore_unknown_options": True}

for _name, _job in JOBS.items():
    app.command(_name, help=_job.help, context_settings=_PASSING_ON, add_help_option=False)(
        _command(_job)
    )

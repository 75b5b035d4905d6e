"""`leadline spark`: run jobs on Spark, on this machine's cores or on a cluster.

On a cluster, the package is submitted as a zip: executors need Python and pyarrow, and nothing of
Leadline installed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from leadline_cli.admin import (
    Bootstrap,
    CaFile,
    CertificateFile,
    DataDir,
    TokenFile,
    command_group,
    find_bootstrap,
    find_security,
)
from leadline_cli.cluster_file import DEFAULT_DATA_DIR
from leadline_cli.files import replacement
from leadline_cli.java_runtime import package_directory, spark_java_home
from leadline_cli.output import EXIT_REFUSED, print_line, print_problem
from leadline_cli.spark_progress import watching
from leadline_client.security import Security

PACKAGES: Final = ("leadline_client", "leadline_spark")
ZIP_NAME: Final = "leadline-spark.zip"
LOCAL: Final = "local[*]"

_LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Little output, and loopback only; --conf overrides them."""


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
  --data-dir DIR        read the brokers' addresses from its cluster.json, in place of --bootstrap,
                        and find the files of the authorities and of the token there
"""

app = command_group("Run Spark jobs on this machine or on a cluster (--master).")


@app.command("package")
def package(
    path: Annotated[Path, typer.Argument(help="The zip to write.")] = Path(ZIP_NAME),
) -> None:
    """Write the zip that executors need, for `spark-submit --py-files`."""
    try:
        write_package(path)
    except OSError as problem:
        print_problem(f"cannot write {path} ({problem.strerror})")
        raise typer.Exit(EXIT_REFUSED) from None
    print_line(str(path))


def _command(job: Job) -> Callable[..., None]:
    """Return the command that runs a job; it passes options that it does not know on to the job."""

    def run(
        context: typer.Context,
        *,
        master: Annotated[str, typer.Option()] = LOCAL,
        conf: Annotated[list[str] | None, typer.Option()] = None,
        bootstrap: Bootstrap = None,
        data_dir: DataDir = DEFAULT_DATA_DIR,
        ca_file: CaFile = None,
        token_file: TokenFile = None,
        certificate_file: CertificateFile = None,
        print_command: Annotated[bool, typer.Option("--print-command")] = False,
    ) -> None:
        package_directory("leadline_spark")
        if {"--help", "-h"} & set(context.args):
            typer.echo(import_module(job.module).parser().format_help() + _LAUNCHING)
            return
        given = Security(ca_file, None, token_file, certificate_file)
        arguments = [*context.args, *_input(job, context.args, bootstrap, data_dir, given)]
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


def _input(
    job: Job, given: list[str], bootstrap: str | None, data_dir: Path, security: Security
) -> list[str]:
    """Return the options that say where the cluster is and how to connect.

    There are none if the job has another input.
    """
    names = {word.partition("=")[0] for word in given}
    if bootstrap is None and (not job.inputs or names & set(job.inputs)):
        return []
    found = find_security(bootstrap, data_dir, security)
    files = {
        "--ca-file": found.ca_file,
        "--token-file": found.token_file,
        "--certificate-file": found.certificate_file,
    }
    named = ((option, file) for option, file in files.items() if file is not None)
    return ["--bootstrap", ",".join(find_bootstrap(bootstrap, data_dir)), *chain(*named)]


def _submit(job: Job, arguments: list[str], master: str, conf: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="leadline-spark-") as folder:
        zipped = Path(folder) / ZIP_NAME
        write_package(zipped)
        words = submit_command(job.module, arguments, master, conf, zipped)
        environment = submit_environment(zipped)
        return subprocess.run(words, env=environment, check=False).returncode  # noqa: S603 - our own command


def run_here(module: str, arguments: Sequence[str], master: str, conf: Sequence[str]) -> int:
    """Run a job in this process and return its exit code."""
    given = dict(setting.partition("=")[::2] for setting in conf)
    settings = [f"{name}={value}" for name, value in (_LOCAL_SETTINGS | given).items()]
    words = ["--master", master, *_conf_words(settings), "pyspark-shell"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(f'"{word}"' for word in words)
    os.environ["JAVA_HOME"] = str(spark_java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    job, command = import_module(module), import_module("leadline_spark.jobs.command")
    with watching(arguments) as started, command.observed(started):
        code: int = job.main(list(arguments))
    return code


def submit_environment(package: Path) -> dict[str, str]:
    """Return the environment of spark-submit: its Java, and this Python for the driver.

    PYTHONPATH contains the package because the process that plans a stream gets no `--py-files`.
    """
    given = os.environ.get("PYTHONPATH")
    return {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **os.environ,
        "JAVA_HOME": str(spark_java_home()),
        "PYTHONPATH": os.pathsep.join([str(package), *([given] if given else [])]),
    }


def submit_command(
    module: str,
    arguments: Sequence[str],
    master: str,
    conf: Sequence[str],
    package: Path,
) -> list[str]:
    """Return the spark-submit command for a job; `package` is the zip to submit with it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the Python module {module} is not installed")
    submit = package_directory("pyspark") / "bin" / "spark-submit"
    words = ["--master", master, *_conf_words(conf), "--py-files", str(package)]
    return [str(submit), *words, spec.origin, *arguments]


def write_package(path: Path) -> None:
    """Write the zip with the modules and data files of the pipeline and the client library.

    It appears whole or not at all.

    Raises:
        OSError: it cannot be written.

    """
    with replacement(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as package:
        for root in map(package_directory, PACKAGES):
            for file in sorted(root.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    package.write(file, file.relative_to(root.parent))


def _conf_words(conf: Sequence[str]) -> list[str]:
    return [word for setting in conf for word in ("--conf", setting)]


_PASSING_ON: Final[dict[str, Any]] = {"allow_extra_args": True, "ignore_unknown_options": True}

for _name, _job in JOBS.items():
    app.command(_name, help=_job.help, context_settings=_PASSING_ON, add_help_option=False)(
        _command(_job)
    )

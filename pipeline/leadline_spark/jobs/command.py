"""The command lines of jobs: options for the cluster, sessions, exit codes, and output."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline_client.errors import LeadlineError
from leadline_client.security import (
    CA_FILE_VARIABLE,
    CERTIFICATE_FILE_VARIABLE,
    TOKEN_FILE_VARIABLE,
)
from leadline_spark.cluster.cluster_client import Connection, reason
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options
from leadline_spark.registration import check_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE, FAILED, USAGE, UNKNOWN = 0, 1, 2, 3
"""Exit codes, the same as of all `leadline` commands."""

TOKEN_VARIABLE = "LEADLINE_TOKEN"  # noqa: S105 - the name of a variable, not a token
_FILES = (
    ("ca", CA_FILE_VARIABLE, "authorities (PEM) of the services' certificates"),
    ("token", TOKEN_FILE_VARIABLE, "file of the token to show"),
    ("certificate", CERTIFICATE_FILE_VARIABLE, "a certificate to show, and its key (PEM)"),
)
"""Files of the driver and of every executor: the option's first word, the variable, the meaning."""
_OBSERVER: ContextVar[Callable[[SparkSession], None]] = ContextVar(
    "observer", default=lambda _: None
)
_CODED_MESSAGE = re.compile(r"\[LEADLINE_[A-Z_]+\][^\n]*")


def job_parser(name: str, document: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a module's docstring as its help."""
    return argparse.ArgumentParser(
        prog=f"leadline spark {name}",
        description=document,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_cluster(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the options for the cluster."""
    parser.add_argument(
        "--bootstrap",
        required=required,
        metavar="URL[,URL]",
        help="addresses of brokers, any of them",
    )
    for file, variable, meaning in _FILES:
        parser.add_argument(
            f"--{file}-file",
            metavar="FILE",
            help=f"{meaning}; default: the variable {variable} of each machine",
        )


def add_archive(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the archive."""
    parser.add_argument("archive", metavar="DIR", help="directory or URI of the archive")


def options_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of `format("leadline")` for the cluster."""
    given = {f"{file}.file": getattr(arguments, f"{file}_file") for file, _, _ in _FILES}
    if not given["token.file"]:
        # No option of the command: all users of a machine see its arguments.
        given["token"] = os.environ.get(TOKEN_VARIABLE)
    options = {name: text for name, text in given.items() if text}
    return {"bootstrap": arguments.bootstrap, **options}


def connection_of(arguments: argparse.Namespace) -> Connection:
    """Return the connection to the cluster."""
    return Connection.of(Options(OPTIONS, options_of(arguments)))


def session(name: str) -> SparkSession:
    """Return the active session, or a new one: on all local cores unless submitted."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - help and usage errors need no JVM

    # Workers use this Python unless configured otherwise, because `python3` may be another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(name).getOrCreate()
    check_worker_python(spark)
    _OBSERVER.get()(spark)
    return spark


@contextmanager
def observed(observer: Callable[[SparkSession], None]) -> Iterator[None]:
    """Within the block, call `observer` with each session that a job gets from `session`."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def run(job: Callable[[], int]) -> int:
    """Run a job and return its exit code; print an error as one line instead of a traceback."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    try:
        return job()
    except LeadlineSparkError as failure:
        message = str(failure)
    except LeadlineError as error:
        message = reason(error)
    except OSError as failure:
        if failure.filename is None:
            raise
        message = cannot_use(failure)
    except PySparkException as failure:
        found = _CODED_MESSAGE.search(str(failure))
        if found is None:
            raise
        message = found[0]
    sys.stderr.write(f"error {message}\n")
    return FAILED


def cannot_use(failure: OSError) -> str:
    """Return what to say of a file that cannot be read or written."""
    return f"cannot use {failure.filename}: {failure.strerror}"


def print_path(path: Path) -> None:
    """Print the path of a file that a job has written; on a terminal, as a link that opens it.

    The link is OSC 8, which rich writes where it is installed; elsewhere the path stands alone.
    """
    if sys.stdout.isatty() and find_spec("rich") is not None:
        text = import_module("rich.text").Text(str(path), f"link {path.resolve().as_uri()}")
        console = import_module("rich.console").Console(soft_wrap=True, highlight=False)
        console.print(text)
    else:
        sys.stdout.write(f"{path}\n")


def report(document: Any) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(document) + "\n")

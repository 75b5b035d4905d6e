"""Analyse the audit history of a cluster: Parquet tables, summary.json and report.html.

leadline spark analytics --out DIR                      # the cluster on this machine
spark-submit …/analytics/job.py --bootstrap URL --out DIR
spark-submit …/analytics/job.py --history audit.ndjson --out DIR
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline_spark.jobs import command
from leadline_spark.jobs.analytics.history import (
    HistoryPeriod,
    read_cluster,
    read_files,
    take_history,
)
from leadline_spark.jobs.analytics.partitions import DEFAULT_MIN_INSYNC
from leadline_spark.jobs.analytics.report.data import collect_report
from leadline_spark.jobs.analytics.report.page import render
from leadline_spark.jobs.analytics.summary import summarise
from leadline_spark.jobs.analytics.tables import make_tables
from leadline_spark.registration import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Cluster report"
TABLES, SUMMARY, REPORT = "tables", "summary.json", "report.html"


def analyse(
    history: HistoryPeriod,
    out: Path,
    *,
    title: str = TITLE,
    default_min_insync: int = DEFAULT_MIN_INSYNC,
) -> dict[str, Any]:
    """Write the results for a history below `out`, and return the summary.

    `default_min_insync` is min.insync.replicas of topics for which the history has no value.
    """
    tables = make_tables(history, default_min_insync, str(out / TABLES))
    summary = summarise(history, tables)
    page = render(collect_report(history, tables, summary), title)
    (out / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    (out / REPORT).write_text(page, encoding="utf-8")
    return summary


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    job_parser = command.job_parser("analytics", __doc__)
    command.add_cluster(job_parser, required=False)
    job_parser.add_argument(
        "--history",
        metavar="FILE",
        nargs="+",
        help="instead of a cluster: files of `GET /v1/audit/export` (NDJSON, also .gz)",
    )
    job_parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where to write")
    job_parser.add_argument(
        "--until",
        type=int,
        metavar="MS",
        help="snapshot time in Unix ms (default: now, or the last entry of the files)",
    )
    job_parser.add_argument("--title", default=TITLE, help="heading of the report")
    job_parser.add_argument(
        "--min-insync-replicas",
        type=int,
        default=DEFAULT_MIN_INSYNC,
        metavar="N",
        help="where the history does not say it (default: %(default)s)",
    )
    return job_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Analyse a history, in the active session or a new one; return the exit code."""
    job_parser = parser()
    arguments = job_parser.parse_args(argv)
    if bool(arguments.history) == bool(arguments.bootstrap):
        job_parser.error("give either --bootstrap or --history")
    return command.run(lambda: _analyse(arguments))


def _analyse(arguments: argparse.Namespace) -> int:
    spark = command.session("leadline-analytics")
    until = arguments.until
    with _tuned_for_local(spark):
        if arguments.history:
            entries = read_files(spark, arguments.history)
        else:
            register(spark)
            until = until or time.time_ns() // 1_000_000
            entries = read_cluster(spark, command.options_of(arguments))
        analyse(
            take_history(entries, until),
            arguments.out,
            title=arguments.title,
            default_min_insync=arguments.min_insync_replicas,
        )
    command.print_path(arguments.out / REPORT)
    return command.DONE


@contextmanager
def _tuned_for_local(spark: SparkSession) -> Iterator[None]:
    """Disable what pays only on a cluster, so that many small queries take a fraction of the time.

    The 200 partitions of each shuffle and the compilation of each query would take most of it.
    """
    context = spark.sparkContext
    settings = {
        "spark.sql.shuffle.partitions": str(context.defaultParallelism),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
    }
    if not (context.master or "").startswith("local"):
        settings = {}
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


if __name__ == "__main__":
    sys.exit(main())

"""The data of the report, collected from the tables; small for a history of any size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics.history import HistoryPeriod
from leadline_spark.jobs.analytics.spans import bucket_of, counted, merged
from leadline_spark.jobs.analytics.summary import PROBLEMS
from leadline_spark.jobs.analytics.tables import LIFE, Tables

FINE = 320
"""Buckets of the curves."""
COARSE = 48
"""Buckets of the columns."""
MOST_ROWS = 24
"""Rows of a table or a timeline; the Parquet tables have all."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReportData:
    """The summary, and the rows of charts and tables, with the columns of the Parquet tables."""

    summary: Mapping[str, Any]
    curves: dict[str, list[int]]
    broker_spans: Sequence[Row]
    controller_terms: Sequence[Row]
    partitions: Sequence[Row]
    partition_spans: Sequence[Row]
    leaders_by_time: Sequence[Row]
    handovers: Sequence[Row]
    isr_by_time: Sequence[Row]
    gaps: Sequence[Row]
    unclean: Sequence[Row]
    outages: Sequence[Row]
    tasks: Sequence[Row]


def collect_report(
    history: HistoryPeriod, tables: Tables, summary: Mapping[str, Any]
) -> ReportData:
    """Collect the data; of too many rows the worst, the longest or the latest."""
    worst = _worst_partitions(tables)
    gaps, outages = tables.unavailable_spans, tables.broker_spans.where("state = 'failed'")
    unclean = tables.leader_changes.where("change_cause = 'unclean'")
    return ReportData(
        summary=summary,
        curves={name: _curve(tables.partition_spans, name, history) for name in PROBLEMS},
        broker_spans=_rows(tables.broker_spans.orderBy("broker", "started_at")),
        controller_terms=_rows(tables.controller_terms.orderBy("term")),
        partitions=worst,
        partition_spans=_spans_of(tables.partition_spans, worst),
        leaders_by_time=_by_time(tables.leader_changes, history, "change_cause"),
        handovers=_rows(tables.leader_changes.groupBy("from_leader", "to_leader").count()),
        isr_by_time=_by_time(tables.isr_changes, history, "direction", "change_cause"),
        gaps=_rows(gaps.orderBy(sf.desc("duration_ms"), *LIFE).limit(MOST_ROWS)),
        unclean=_rows(unclean.orderBy(sf.desc("audit_id")).limit(MOST_ROWS)),
        outages=_rows(outages.orderBy(sf.desc("duration_ms")).limit(MOST_ROWS)),
        tasks=_rows(tables.tasks.orderBy(sf.desc("started_at"), "task").limit(MOST_ROWS)),
    )


def _rows(table: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in table.collect()]


def _curve(spans: DataFrame, flag: str, history: HistoryPeriod) -> list[int]:
    """Return how many partitions had a problem: the maximum in each bucket."""
    counts = counted(merged(spans.where(flag), LIFE), history, FINE)
    found = {row["bucket"]: row for row in counts.collect()}
    curve, last = [], 0
    for bucket in range(FINE):
        row = found.get(bucket)
        curve.append(last if row is None else max(last, row["peak"]))
        last = last if row is None else row["last"]
    return curve


def _worst_partitions(tables: Tables) -> list[Row]:
    """Return the partitions that were without leader for longest, then under-replicated."""
    length = sf.col("duration_ms")
    times = [sf.sum(sf.when(sf.col(name), length).otherwise(0)).alias(name) for name in PROBLEMS]
    spans = tables.partition_spans.groupBy("topic", "partition").agg(*times)
    churn = tables.leader_changes.groupBy("topic", "partition").agg(
        sf.count_if(sf.col("to_leader") >= 0).alias("leader_changes")
    )
    rows = spans.join(churn, ["topic", "partition"], "left").fillna(0, ["leader_changes"])
    order = [sf.desc(name) for name in (*PROBLEMS, "leader_changes")]
    return _rows(rows.orderBy(*order, "topic", "partition").limit(MOST_ROWS))


def _spans_of(spans: DataFrame, partitions: Iterable[Row]) -> list[Row]:
    """Return the spans of problems of these partitions; adjacent ones of a kind are merged."""
    wanted = sf.lit(False)
    for row in partitions:
        is_it = (sf.col("topic") == row["topic"]) & (sf.col("partition") == row["partition"])
        wanted = wanted | is_it
    worst = sf.coalesce(*(sf.when(sf.col(name), name) for name in PROBLEMS))
    bad = spans.where(wanted).withColumn("wrong", worst).where("wrong is not null")
    return _rows(merged(bad, [*LIFE, "wrong"]).orderBy("started_at"))


def _by_time(changes: DataFrame, history: HistoryPeriod, *columns: str) -> list[Row]:
    bucket = bucket_of(sf.col("at"), history, COARSE).alias("bucket")
    return _rows(changes.groupBy(bucket, *columns).count())

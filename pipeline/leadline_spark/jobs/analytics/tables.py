"""The tables of an analysis: written first, so that figures and report come from the files."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics import brokers, changes, partitions, tasks
from leadline_spark.jobs.analytics.history import History
from leadline_spark.jobs.analytics.spans import merged

LIFE = ("topic", "partition", "life")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables; each field is a directory of Parquet of its name."""

    partition_spans: DataFrame
    unavailable_spans: DataFrame
    leader_changes: DataFrame
    isr_changes: DataFrame
    broker_spans: DataFrame
    broker_figures: DataFrame
    tasks: DataFrame
    partition_moves: DataFrame
    controller_terms: DataFrame


def make_tables(history: History, default_min_insync: int) -> Tables:
    """Return the tables of a history; see docs/analytics.md for what each row means."""
    events = partitions.partition_events(history).cache()
    spans = partitions.partition_spans(events, history, default_min_insync).cache()
    up_and_down = brokers.broker_spans(history).cache()
    return Tables(
        partition_spans=spans,
        unavailable_spans=merged(spans.where("no_leader"), LIFE),
        leader_changes=changes.leader_changes(events),
        isr_changes=changes.isr_changes(events),
        broker_spans=up_and_down,
        broker_figures=brokers.broker_figures(up_and_down, brokers.restarts(history)),
        tasks=tasks.task_figures(history),
        partition_moves=tasks.partition_moves(history),
        controller_terms=tasks.controller_terms(history),
    )


def write_tables(tables: Tables, directory: str) -> None:
    """Write Parquet, one directory for each table; what is there already is replaced."""
    for field in fields(tables):
        table: DataFrame = getattr(tables, field.name)
        rows = table.select(*(_as_timestamp(name) for name in table.columns)).coalesce(1)
        rows.write.mode("overwrite").parquet(f"{directory}/{field.name}", compression="zstd")


def read_tables(spark: SparkSession, directory: str) -> Tables:
    """Return the tables that were written to a directory, kept in memory as they are used."""
    found = {}
    for field in fields(Tables):
        table = spark.read.parquet(f"{directory}/{field.name}")
        rows = table.select(*(_as_millis(name) for name in table.columns))
        found[field.name] = rows.cache()
    return Tables(**found)


def _is_time(name: str) -> bool:
    return name == "at" or name.endswith("_at")


def _as_timestamp(name: str) -> Column:
    """Return a column for the file: times as timestamps, which other tools understand."""
    return sf.timestamp_millis(name).alias(name) if _is_time(name) else sf.col(name)


def _as_millis(name: str) -> Column:
    """Return a column for arithmetic: times in Unix ms."""
    return sf.unix_millis(name).alias(name) if _is_time(name) else sf.col(name)

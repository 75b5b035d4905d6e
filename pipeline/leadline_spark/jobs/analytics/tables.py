"""The tables of an analysis. They are written first; summary and report read the files."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics import brokers, changes, partitions, tasks
from leadline_spark.jobs.analytics.history import HistoryPeriod
from leadline_spark.jobs.analytics.spans import merged

LIFE = ("topic", "partition", "life")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables. Each field is a Parquet directory of the same name."""

    partition_events: DataFrame
    partition_spans: DataFrame
    unavailable_spans: DataFrame
    leader_changes: DataFrame
    isr_changes: DataFrame
    broker_spans: DataFrame
    broker_figures: DataFrame
    tasks: DataFrame
    partition_moves: DataFrame
    controller_terms: DataFrame


def make_tables(history: HistoryPeriod, default_min_insync: int, directory: str) -> Tables:
    """Write the tables of a history, and return them; docs/analytics.md describes their rows.

    Tables that others depend on are read back, so that they are computed only once.
    """

    def stored(name: str, table: DataFrame) -> DataFrame:
        path = f"{directory}/{name}"
        write_table(table, path)
        return read_table(table.sparkSession, path)

    events = stored("partition_events", partitions.partition_events(history))
    spans = partitions.partition_spans(events, history, default_min_insync)
    spans = stored("partition_spans", spans)
    broker_spans = stored("broker_spans", brokers.broker_spans(history))
    others = {
        "unavailable_spans": merged(spans.where("no_leader"), LIFE),
        "leader_changes": changes.leader_changes(events),
        "isr_changes": changes.isr_changes(events),
        "broker_figures": brokers.broker_stats(broker_spans, brokers.restarts(history)),
        "tasks": tasks.task_stats(history),
        "partition_moves": tasks.partition_moves(history),
        "controller_terms": tasks.controller_terms(history),
    }
    return Tables(
        partition_events=events,
        partition_spans=spans,
        broker_spans=broker_spans,
        **{name: stored(name, table) for name, table in others.items()},
    )


def write_table(table: DataFrame, path: str) -> None:
    """Write a table as Parquet, and replace an existing one."""
    rows = table.select(*(_as_timestamp(name) for name in table.columns)).coalesce(1)
    rows.write.mode("overwrite").parquet(path, compression="zstd")


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """Return a written table, cached on first use."""
    table = spark.read.parquet(path)
    return table.select(*(_as_millis(name) for name in table.columns)).cache()


def _is_time(name: str) -> bool:
    return name == "at" or name.endswith("_at")


def _as_timestamp(name: str) -> Column:
    """Return a column for the file, times as timestamps for other tools."""
    return sf.timestamp_millis(name).alias(name) if _is_time(name) else sf.col(name)


def _as_millis(name: str) -> Column:
    """Return a column for arithmetic, times as Unix ms."""
    return sf.unix_millis(name).alias(name) if _is_time(name) else sf.col(name)

"""All tables of an analysis, each a DataFrame that is made once and kept."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics import brokers, changes, partitions, tasks
from leadline_spark.jobs.analytics.history import History
from leadline_spark.jobs.analytics.spans import merged

LIFE = ("topic", "partition", "life")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables; each field becomes a directory of Parquet of its name."""

    partition_spans: DataFrame
    unavailable_spans: DataFrame
    leader_changes: DataFrame
    isr_changes: DataFrame
    broker_spans: DataFrame
    broker_figures: DataFrame
    tasks: DataFrame
    partition_moves: DataFrame
    controller_terms: DataFrame

    def write(self, directory: str) -> None:
        """Write Parquet, one directory for each table; what is there already is replaced."""
        for field in fields(self):
            table: DataFrame = getattr(self, field.name)
            with_times(table).coalesce(1).write.mode("overwrite").parquet(
                f"{directory}/{field.name}", compression="zstd"
            )


def make_tables(history: History, default_min_insync: int) -> Tables:
    """Return the tables of a history; see docs/analytics.md for what each row means."""
    events = partitions.partition_events(history).cache()
    spans = partitions.partition_spans(events, history, default_min_insync).cache()
    up_and_down = brokers.broker_spans(history).cache()
    return Tables(
        partition_spans=spans,
        unavailable_spans=merged(spans.where("no_leader"), LIFE).cache(),
        leader_changes=changes.leader_changes(events).cache(),
        isr_changes=changes.isr_changes(events).cache(),
        broker_spans=up_and_down,
        broker_figures=brokers.broker_figures(up_and_down, brokers.restarts(history)).cache(),
        tasks=tasks.task_figures(history).cache(),
        partition_moves=tasks.partition_moves(history).cache(),
        controller_terms=tasks.controller_terms(history).cache(),
    )


def with_times(table: DataFrame) -> DataFrame:
    """Turn the columns of Unix ms into timestamps: they are those that end in `at`."""
    is_time = {name for name in table.columns if name == "at" or name.endswith("_at")}
    return table.select(
        *(
            sf.timestamp_millis(name).alias(name) if name in is_time else name
            for name in table.columns
        )
    )

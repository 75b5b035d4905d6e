"""Spans of time as rows: [`started_at`, `ended_at`) in Unix ms, `censored` if still open."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics.history import HistoryPeriod


def length() -> Column:
    """Return the length of a span in ms."""
    return sf.col("ended_at") - sf.col("started_at")


def merged(spans: DataFrame, keys: Sequence[str] = ()) -> DataFrame:
    """Return the union of the spans of each key, as spans that neither touch nor overlap.

    In order of starts, a span begins a new one if it starts after the latest end before it.
    """
    rows = spans.select(*keys, "started_at", "ended_at", "censored")
    rows = rows.where(sf.col("ended_at") > sf.col("started_at"))
    by_start = Window.partitionBy(*keys, sf.lit(0)).orderBy("started_at", "ended_at")
    earlier = by_start.rowsBetween(Window.unboundedPreceding, -1)
    latest_end = sf.max("ended_at").over(earlier)
    is_first = latest_end.isNull() | (sf.col("started_at") > latest_end)
    rows = rows.withColumn("_is_first", is_first.cast("int"))
    rows = rows.withColumn("_span", sf.sum("_is_first").over(by_start))
    together = rows.groupBy(*keys, "_span").agg(
        sf.min("started_at").alias("started_at"),
        sf.max("ended_at").alias("ended_at"),
        sf.max("censored").alias("censored"),
    )
    return together.drop("_span").withColumn("duration_ms", length())


def counted(spans: DataFrame, history: HistoryPeriod, buckets: int) -> DataFrame:
    """Return how many spans were open in each bucket: the maximum, and the number at its end.

    Rows: `bucket` (0 to `buckets` - 1, equal parts of the period), `peak`, `last`. A bucket without
    a start or an end has no row: `last` of the previous one applies.
    """
    begun = spans.select(sf.col("started_at").alias("at"), sf.lit(1).alias("step"))
    ended = spans.select(sf.col("ended_at").alias("at"), sf.lit(-1).alias("step"))
    steps = begun.unionAll(ended).groupBy("at").agg(sf.sum("step").alias("step"))
    in_order = Window.partitionBy(sf.lit(0)).orderBy("at")
    steps = steps.withColumn("open", sf.sum("step").over(in_order))
    steps = steps.withColumn("before", sf.lag("open", 1, 0).over(in_order))
    bucket = bucket_of(sf.col("at"), history, buckets)
    return (
        steps.withColumn("bucket", bucket)
        .groupBy("bucket")
        .agg(
            sf.greatest(sf.max("open"), sf.min_by("before", "at")).alias("peak"),
            sf.max_by("open", "at").alias("last"),
        )
    )


def bucket_of(at: Column, history: HistoryPeriod, buckets: int) -> Column:
    """Return the bucket of a time, one of `buckets` equal parts of the period."""
    width = max(1, history.until_ms - history.since_ms) / buckets
    number = sf.floor((at - sf.lit(history.since_ms)) / sf.lit(width))
    return sf.greatest(sf.lit(0), sf.least(sf.lit(buckets - 1), number)).cast("int")

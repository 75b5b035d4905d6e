"""Spans of time as rows: [`started_at`, `ended_at`) in Unix ms, `censored` where still open."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics.history import AuditHistory


def length() -> Column:
    """Return how long a span is, in ms."""
    return sf.col("ended_at") - sf.col("started_at")


def merged(spans: DataFrame, keys: Sequence[str] = ()) -> DataFrame:
    """Return the union of the spans of each key: none of them touches or overlaps another.

    Sorted by start, a span begins a new one where it starts after the latest end before it.
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


def counted(spans: DataFrame, history: AuditHistory, buckets: int) -> DataFrame:
    """Return how many spans were open: in each bucket the most at a time, and at its end.

    Rows: `bucket` (0 to `buckets` - 1, equal parts of the period), `peak`, `last`. A bucket in
    which none began or ended has no row: the `last` of the one before holds.
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


def bucket_of(at: Column, history: AuditHistory, buckets: int) -> Column:
    """Return which of `buckets` equal parts of the period a time lies in."""
    width = max(1, history.until_ms - history.since_ms) / buckets
    number = sf.floor((at - sf.lit(history.since_ms)) / sf.lit(width))
    return sf.greatest(sf.lit(0), sf.least(sf.lit(buckets - 1), number)).cast("int")

"""The summary of an analysis as one JSON document. Times are Unix ms, durations ms."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics import brokers
from leadline_spark.jobs.analytics.changes import (
    EXPANSION_CAUSES,
    LEADER_CAUSES,
    PLANNED,
    SHRINK_CAUSES,
)
from leadline_spark.jobs.analytics.history import HistoryPeriod
from leadline_spark.jobs.analytics.spans import merged
from leadline_spark.jobs.analytics.tables import LIFE, Tables

PROBLEMS = ("no_leader", "below_min_isr", "under_replicated")
"""The problems of a partition: the flags of `partition_spans`, the worst first."""
VERSION = 1
"""The version of the document. New members keep it, changed ones increase it."""


def summarise(history: HistoryPeriod, tables: Tables) -> dict[str, Any]:
    """Return the summary; docs/analytics.md has the formula of each number."""
    return {
        "version": VERSION,
        "period": {
            "since": history.since_ms,
            "until": history.until_ms,
            "duration_ms": history.until_ms - history.since_ms,
            "entries": history.count,
            "first_id": history.first_id,
            "missing": history.missing,
        },
        "partitions": _partitions(tables),
        "leadership": _leadership(tables),
        "elections": _elections(tables),
        "isr": _isr(tables),
        "brokers": _brokers(tables),
        "reassignments": _reassignments(tables),
        "controllers": _controllers(tables),
    }


def quantiles(values: Column) -> Column:
    """Return [p50, p99, max], interpolated linearly between nearest ranks; null without rows."""
    return sf.percentile(values, [0.5, 0.99, 1.0])


def _partitions(tables: Tables) -> dict[str, Any]:
    spans = tables.partition_spans
    observed = _one(
        spans.agg(
            sf.count_distinct("topic", "partition").alias("count"),
            sf.coalesce(sf.sum("duration_ms"), sf.lit(0)).alias("observed"),
        )
    )
    total, bad = observed["observed"], _problem_times(spans)
    return {
        "count": observed["count"],
        "observed_partition_ms": total,
        "availability": 1 - bad["no_leader"]["partition_ms"] / total if total else None,
        **bad,
    }


def _problem_times(spans: DataFrame) -> dict[str, dict[str, Any]]:
    """Return how long each problem lasted: for any partition, and the sum over all."""
    flags = [sf.when(sf.col(name), name) for name in PROBLEMS]
    bad = spans.select("*", sf.explode(sf.array_compact(sf.array(*flags))).alias("wrong")).cache()
    anywhere = merged(bad, ["wrong"]).groupBy("wrong").agg(sf.sum("duration_ms").alias("union_ms"))
    each = merged(bad, ["wrong", *LIFE]).groupBy("wrong")
    added = each.agg(
        sf.sum("duration_ms").alias("partition_ms"),
        sf.count("*").alias("spans"),
        sf.count_if("censored").alias("censored"),
        sf.max("duration_ms").alias("longest_ms"),
    )
    found = {row.wrong: row.asDict() for row in anywhere.join(added, "wrong").collect()}
    nothing = {"union_ms": 0, "partition_ms": 0, "spans": 0, "censored": 0, "longest_ms": None}
    return {name: {key: found.get(name, nothing)[key] for key in nothing} for name in PROBLEMS}


def _leadership(tables: Tables) -> dict[str, Any]:
    counts = _counts(tables.leader_changes, "change_cause", LEADER_CAUSES)
    return {
        "changes": sum(counts.values()) - counts["lost"],
        "planned": sum(counts[cause] for cause in PLANNED),
        "by_cause": counts,
    }


def _elections(tables: Tables) -> dict[str, Any]:
    decision = sf.col("decision_ms")
    totals = _one(
        tables.leader_changes.agg(
            sf.count(decision).alias("timed"), quantiles(decision).alias("decision")
        )
    )
    return {"timed": totals["timed"], **_named("decision", totals["decision"])}


def _isr(tables: Tables) -> dict[str, Any]:
    found = {}
    for name, causes in (("shrink", SHRINK_CAUSES), ("expansion", EXPANSION_CAUSES)):
        rows = tables.isr_changes.where(sf.col("direction") == name)
        counts = _counts(rows, "change_cause", causes)
        found[f"{name}s"] = {"count": sum(counts.values()), "by_cause": counts}
    return found


def _brokers(tables: Tables) -> dict[str, Any]:
    together = _one(brokers.with_means(tables.broker_spans.agg(*brokers.aggregates())))
    each = [row.asDict() for row in tables.broker_figures.orderBy("broker").collect()]
    return {
        "count": len(each),
        "restarts": sum(row["restarts"] for row in each),
        **together,
        "each": each,
    }


def _reassignments(tables: Tables) -> dict[str, Any]:
    over = ~sf.col("censored")
    done = sf.when(over, sf.col("duration_ms"))
    tasks = _one(
        tables.tasks.agg(
            sf.count("*").alias("tasks"),
            sf.count_if("censored").alias("open"),
            quantiles(done).alias("duration"),
            sf.sum("moved_bytes").alias("moved_bytes"),
            sf.sum(sf.when(over & sf.col("moved_bytes").isNotNull(), sf.col("moving_ms"))).alias(
                "took"
            ),
        )
    )
    moves = _one(
        tables.partition_moves.agg(
            sf.count("*").alias("moves"),
            sf.count_if("censored").alias("open"),
            quantiles(done).alias("duration"),
        )
    )
    return {
        "tasks": tasks["tasks"],
        "tasks_open": tasks["open"],
        **_named("task", tasks["duration"]),
        "partitions": moves["moves"],
        "partitions_open": moves["open"],
        **_named("partition", moves["duration"]),
        "moved_bytes": tasks["moved_bytes"],
        "bytes_per_s": _rate(tasks["moved_bytes"], tasks["took"]),
    }


def _controllers(tables: Tables) -> dict[str, Any]:
    totals = _one(
        tables.controller_terms.agg(
            sf.count("*").alias("terms"),
            sf.count_if("is_failover").alias("failovers"),
            quantiles(sf.when(sf.col("is_failover"), sf.col("takeover_ms"))).alias("takeover"),
        )
    )
    return {
        "terms": totals["terms"],
        "failovers": totals["failovers"],
        **_named("takeover", totals["takeover"]),
    }


def _one(rows: DataFrame) -> dict[str, Any]:
    """Return the only row of an aggregate."""
    row = rows.first()
    return {} if row is None else row.asDict()


def _counts(rows: DataFrame, column: str, names: tuple[str, ...]) -> dict[str, int]:
    """Return the number of rows with each of these values."""
    found = {row[column]: row["count"] for row in rows.groupBy(column).count().collect()}
    return {name: found.get(name, 0) for name in names}


def _named(name: str, values: list[float] | None) -> dict[str, float | None]:
    found: list[float | None] = [None, None, None] if values is None else [*values]
    return dict(zip((f"{name}_p50_ms", f"{name}_p99_ms", f"{name}_max_ms"), found, strict=True))


def _rate(moved_bytes: int | None, took_ms: int | None) -> float | None:
    return moved_bytes * 1000 / took_ms if moved_bytes and took_ms else None

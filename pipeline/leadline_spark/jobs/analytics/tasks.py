"""Tasks that move replicas, moves of single partitions, and terms of controllers."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics.history import HistoryPeriod
from leadline_spark.jobs.analytics.spans import length

_OUTCOME = "struct<done:int,cancelled:int,superseded:int,gone:int,bytes:bigint>"
_TOPICS = "map<string,map<string,struct<start:array<int>,target:array<int>>>>"


def task_stats(history: HistoryPeriod) -> DataFrame:
    """Return each task, since it was accepted; `moving_ms` excludes its preparation.

    `moved_bytes` is what leaders reported while replicas moved, null if they reported nothing.
    `bytes_per_s` is `moved_bytes` / `moving_ms`, only for finished tasks.
    """
    task = sf.get_json_object("resource", "$.task")
    entries = history.entries.where(sf.col("kind").startswith("task_") & (task != ""))
    rows = entries.select(
        task.alias("task"),
        sf.get_json_object("resource", "$.kind").alias("kind"),
        "id",
        "time",
        "reason",
        sf.when(sf.col("kind") == "task_begun", sf.col("time")).alias("begun"),
        sf.get_json_object("after", "$.state").alias("state"),
        sf.get_json_object("after", "$.created_at").cast("bigint").alias("created"),
        sf.get_json_object("after", "$.finished_at").cast("bigint").alias("finished"),
        sf.get_json_object("after", "$.total").cast("int").alias("total"),
        sf.from_json(sf.get_json_object("after", "$.outcome"), _OUTCOME).alias("outcome"),
    )
    latest = rows.groupBy("task").agg(
        sf.max_by("kind", "id").alias("task_kind"),
        sf.max_by("state", "id").alias("state"),
        sf.max_by("reason", "id").alias("reason"),
        # A task that an operator wrote, and cancelled before it began, has no time of its own.
        sf.coalesce(
            sf.min(sf.when(sf.col("created") > 0, sf.col("created"))), sf.min("time")
        ).alias("started_at"),
        sf.min("begun").alias("begun_at"),
        sf.max(sf.when(sf.col("finished") > 0, sf.col("finished"))).alias("_finished"),
        sf.max("total").alias("partitions"),
        sf.max_by("outcome", "id").alias("outcome"),
    )
    return _with_times(latest, history)


def _with_times(rows: DataFrame, history: HistoryPeriod) -> DataFrame:
    rows = rows.withColumn("ended_at", sf.coalesce("_finished", sf.lit(history.until_ms)))
    rows = rows.withColumn("censored", ~sf.col("state").isin("done", "cancelled", "failed"))
    moving = sf.col("ended_at") - sf.col("begun_at")
    moved = sf.nullif(sf.col("outcome.bytes"), sf.lit(0))
    return rows.select(
        "task",
        "task_kind",
        "state",
        "reason",
        "started_at",
        "begun_at",
        "ended_at",
        "censored",
        length().alias("duration_ms"),
        moving.alias("moving_ms"),
        "partitions",
        sf.col("outcome.done").alias("done"),
        moved.alias("moved_bytes"),
        sf.when(~sf.col("censored"), sf.try_divide(moved * 1000, moving)).alias("bytes_per_s"),
    )


def partition_moves(history: HistoryPeriod) -> DataFrame:
    """Return the reassignment of each partition, from its first intent to its last step.

    A new target in between, and a cancellation, belong to the same move.
    """
    rows = _begins(history).unionAll(_ends(history))
    in_order = Window.partitionBy("topic", "partition").orderBy("id")
    rows = rows.withColumn("_was_end", sf.lag("is_end", 1, True).over(in_order))
    number = sf.sum((sf.col("_was_end") & ~sf.col("is_end")).cast("int")).over(in_order)
    rows = rows.withColumn("_move", number).where("_move > 0")
    moves = rows.groupBy("topic", "partition", "_move").agg(
        sf.min(sf.when(~sf.col("is_end"), sf.col("time"))).alias("started_at"),
        sf.max(sf.when(sf.col("is_end"), sf.col("time"))).alias("_ended"),
        sf.min_by("start", "id").alias("start"),
        sf.max_by("target", sf.when(~sf.col("is_end"), sf.col("id"))).alias("target"),
    )
    ended = sf.greatest(sf.coalesce("_ended", sf.lit(history.until_ms)), sf.col("started_at"))
    moves = moves.withColumn("ended_at", ended).withColumn("censored", sf.col("_ended").isNull())
    return moves.drop("_ended", "_move").withColumn("duration_ms", length())


def _begins(history: HistoryPeriod) -> DataFrame:
    kinds = ("reassignment_begun", "reassignment_found", "reassignment_cancelled")
    topics = history.entries.where(sf.col("kind").isin(*kinds)).select(
        "id", "time", sf.explode(sf.from_json("after", _TOPICS)).alias("topic", "rows")
    )
    rows = topics.select("id", "time", "topic", sf.explode("rows").alias("number", "row"))
    return rows.select(
        "topic",
        sf.col("number").cast("int").alias("partition"),
        "id",
        "time",
        sf.lit(False).alias("is_end"),
        sf.col("row.start").alias("start"),
        sf.col("row.target").alias("target"),
    )


def _ends(history: HistoryPeriod) -> DataFrame:
    """Return the last steps of reassignments, and deletions of moving partitions."""
    kind = sf.col("kind")
    finished = sf.when(kind == "reassignment_step", sf.get_json_object("resource", "$.finished"))
    partitions = sf.get_json_object("resource", "$.partitions")
    dropped = sf.when(kind == "reassignment_dropped", partitions)
    numbers = sf.from_json(sf.coalesce(finished, dropped), "array<int>")
    no_brokers = sf.lit(None).cast("array<int>")
    return history.entries.select(
        sf.get_json_object("resource", "$.topic").alias("topic"),
        sf.explode(numbers).alias("partition"),
        "id",
        "time",
        sf.lit(True).alias("is_end"),
        no_brokers.alias("start"),
        no_brokers.alias("target"),
    )


def controller_terms(history: HistoryPeriod) -> DataFrame:
    """Return the terms of active controllers; all but the first ever are failovers.

    `takeover_ms` is the time from the election to the entry about live brokers, which is the last
    step of a failover; null if the term ended before.
    """
    in_order = Window.partitionBy(sf.lit(0)).orderBy("id")
    entries = history.entries.where(sf.col("kind").isin("controller_elected", "brokers_changed"))
    elected = sf.col("kind") == "controller_elected"
    rows = entries.withColumn("at", sf.max("time").over(in_order))
    rows = rows.withColumn("number", sf.sum(elected.cast("int")).over(in_order))
    terms = (
        rows.where("number > 0")
        .groupBy("number")
        .agg(
            sf.min_by(sf.get_json_object("after", "$.id").cast("int"), "id").alias("controller"),
            sf.min("at").alias("started_at"),
            sf.min(sf.when(~elected, sf.col("at"))).alias("_ready_at"),
        )
    )
    following = sf.lead("started_at").over(Window.partitionBy(sf.lit(0)).orderBy("number"))
    return terms.select(
        sf.col("number").alias("term"),
        "controller",
        "started_at",
        sf.coalesce(following, sf.lit(history.until_ms)).alias("ended_at"),
        following.isNull().alias("censored"),
        (sf.col("_ready_at") - sf.col("started_at")).alias("takeover_ms"),
        (sf.col("number") > sf.lit(1 if history.first_id == 0 else 0)).alias("is_failover"),
    ).withColumn("duration_ms", length())

"""Availability of brokers: when they were up or down, why, and mean times between failures.

`brokers_changed` entries list the live brokers. An outage of a broker that was asked to stop, or
that is being drained, is planned: it is no failure, and counts neither as up nor as down.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics.history import HistoryPeriod
from leadline_spark.jobs.analytics.spans import length


def broker_spans(history: HistoryPeriod) -> DataFrame:
    """Return the spans for which each broker was up or down, since it was first seen up.

    A broker that was seen to fail was up before, even if no entry remains that says so.

    `state` is `up`, `planned` or `failed`. A restart within a ZooKeeper session is no span.
    """
    transitions = _transitions(history).join(_plans(history), "broker", "left")
    # A plan applies to the first outage after it, so it must be later than the last return.
    is_planned = (sf.col("plan_id") > sf.col("before_id")) & (sf.col("plan_id") <= sf.col("id"))
    is_planned &= sf.col("off_id").isNull() | (sf.col("off_id") > sf.col("id"))
    rows = transitions.groupBy("broker", "id", "at", "is_up").agg(
        sf.max(sf.coalesce(is_planned, sf.lit(False))).alias("_planned")
    )
    in_order = Window.partitionBy("broker").orderBy("id")
    following = sf.lead("at").over(in_order)
    state = sf.when(sf.col("is_up"), "up").when(sf.col("_planned"), "planned").otherwise("failed")
    return rows.select(
        "broker",
        state.alias("state"),
        sf.col("at").alias("started_at"),
        sf.coalesce(following, sf.lit(history.until_ms)).alias("ended_at"),
        following.isNull().alias("censored"),
    ).withColumn("duration_ms", length())


def broker_stats(spans: DataFrame, restarted: DataFrame) -> DataFrame:
    """Return for each broker its failures, and mean times between failures and to repair, in ms.

    mtbf = time up / failures; mttr = time down by failure / repairs. Open spans count in the times
    and not in the counts, which is the maximum-likelihood estimate with censoring. Null if the
    divisor is 0.
    """
    failed, up = sf.col("state") == "failed", sf.col("state") == "up"
    stats = spans.groupBy("broker").agg(
        *aggregates(),
        sf.max(sf.when(sf.col("censored"), sf.col("state"))).alias("state_now"),
        sf.min("started_at").alias("first_seen_at"),
        sf.max(sf.when(failed, sf.col("duration_ms"))).alias("longest_outage_ms"),
        sf.max(sf.when(up, sf.col("duration_ms"))).alias("longest_up_ms"),
    )
    return with_means(stats.join(restarted, "broker", "left").fillna(0, ["restarts"]))


def aggregates() -> list[Column]:
    """Return the counts and times of spans, from which means are computed."""
    state, lasted = sf.col("state"), sf.col("duration_ms")
    failed = state == "failed"
    return [
        sf.count_if(failed).alias("failures"),
        sf.count_if(failed & ~sf.col("censored")).alias("repairs"),
        sf.count_if(state == "planned").alias("planned_stops"),
        sf.coalesce(sf.sum(sf.when(state == "up", lasted)), sf.lit(0)).alias("up_ms"),
        sf.coalesce(sf.sum(sf.when(failed, lasted)), sf.lit(0)).alias("failed_ms"),
        sf.coalesce(sf.sum(sf.when(state == "planned", lasted)), sf.lit(0)).alias("planned_ms"),
    ]


def with_means(stats: DataFrame) -> DataFrame:
    """Add mtbf_ms and mttr_ms."""
    return stats.withColumn(
        "mtbf_ms", sf.try_divide(sf.col("up_ms"), sf.col("failures"))
    ).withColumn("mttr_ms", sf.try_divide(sf.col("failed_ms"), sf.col("repairs")))


def _transitions(history: HistoryPeriod) -> DataFrame:
    """Return when each broker came up or went down, with the id of the previous transition."""
    live = sf.from_json(sf.get_json_object("after", "$.brokers"), "array<int>")
    changes = history.entries.where(sf.col("kind") == "brokers_changed")
    changes = changes.select("id", sf.col("time").alias("at"), live.alias("live"))
    brokers = changes.select(sf.explode("live").alias("broker")).distinct()
    rows = changes.crossJoin(brokers).select(
        "broker",
        "id",
        "at",
        sf.array_contains("live", sf.col("broker")).alias("is_up"),
        sf.lit(False).alias("is_seen_to_fail"),
    )
    rows = rows.unionAll(_seen_to_fail(history))
    by_broker = Window.partitionBy("broker").orderBy("id")
    rows = rows.withColumn("at", sf.max("at").over(by_broker))
    # Nothing is known of a broker before it was first seen, up or failing.
    was_up = sf.coalesce(sf.lag("is_up").over(by_broker), "is_seen_to_fail")
    rows = rows.withColumn("was_up", was_up).where("is_up != was_up")
    return rows.select(
        "broker", "id", "at", "is_up", sf.lag("id", 1, -1).over(by_broker).alias("before_id")
    )


def _seen_to_fail(history: HistoryPeriod) -> DataFrame:
    """Return when a controller acted on a failure.

    That is earlier than its entry about live brokers, and much earlier if it lost its leadership in
    between.
    """
    failed = _named(history, "failed").withColumn("is_up", sf.lit(False))
    return failed.withColumn("is_seen_to_fail", sf.lit(True))


def restarts(history: HistoryPeriod) -> DataFrame:
    """Return how often each broker came back as a new incarnation within its session."""
    found = _named(history, "bounced")
    return found.groupBy("broker").agg(sf.count("*").cast("int").alias("restarts"))


def _named(history: HistoryPeriod, word: str) -> DataFrame:
    """Return the brokers after a word in the reasons of `broker_change`: `failed [1, 3]; …`."""
    numbers = sf.regexp_extract("reason", rf"\b{word} (\[[\d, ]*\])", 1)
    return history.entries.where(sf.col("kind") == "broker_change").select(
        sf.explode(sf.from_json(numbers, "array<int>")).alias("broker"),
        "id",
        sf.col("time").alias("at"),
    )


def _plans(history: HistoryPeriod) -> DataFrame:
    """Return the brokers that were asked to stop or were drained, and the id of that entry.

    `off_id` is the entry that cancelled it, null if none did: no later outage is planned.
    """
    stops = history.entries.where(sf.col("kind") == "controlled_shutdown").select(
        sf.regexp_extract("actor", r"^broker-(\d+)$", 1).try_cast("int").alias("broker"),
        sf.col("id").alias("plan_id"),
        sf.lit(None).cast("bigint").alias("off_id"),
    )
    is_drain = sf.get_json_object("resource", "$.kind") == "drain"
    state = sf.get_json_object("after", "$.state")
    cancelled = sf.when(state.isin("cancelled", "cancelling", "failed"), sf.col("id"))
    task = Window.partitionBy(sf.get_json_object("resource", "$.task"))
    # The first entry of a task has no id yet, so its cancellation cannot be found.
    has_id = sf.get_json_object("resource", "$.task") != ""
    is_drain_entry = is_drain & has_id & sf.col("kind").startswith("task_")
    drains = history.entries.where(is_drain_entry).select(
        sf.get_json_object("after", "$.details.broker").try_cast("int").alias("broker"),
        sf.col("id").alias("plan_id"),
        sf.min(cancelled).over(task).alias("off_id"),
    )
    return stops.unionAll(drains).where(sf.col("broker").isNotNull())

"""The state of each partition over time: spans without leader, under-replicated, and so on.

A partition has one event for each entry that changes its leader or ISR, its assignment, its
min.insync.replicas, or that deletes it. Values are carried forward in order of ids, so that each
event has the whole state up to the next one.

Times may decrease between entries, because brokers and controllers have their own clocks. The
latest time so far counts along a partition's events.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics.history import HistoryPeriod
from leadline_spark.jobs.analytics.spans import length

MIN_INSYNC = "min.insync.replicas"
DEFAULT_MIN_INSYNC = 2
"""The default of the setting."""

KEYS = ("topic", "partition")
_ENTRY = ("id", "time", "kind", "topic")
_INHERITED = 0
"""Marks a topic or a cluster that has no value of its own."""
_ASSIGNMENT = "map<string,array<int>>"
_STEP = "map<string,struct<replicas:array<int>,adding:array<int>,removing:array<int>>>"
_EVENT = (
    "id bigint, position int, time bigint, topic string, partition int, kind string, "
    "actor string, cause string, reason string, noticed_at bigint, is_state boolean, "
    "is_first boolean, was struct<leader:int,leader_epoch:int,isr:array<int>>"
)
_STATE = (
    "leader int, leader_epoch int, isr array<int>, replicas array<int>, adding array<int>, "
    "own_floor int, cluster_floor int, gone_id bigint"
)
"""The columns that events without a value take from the event before."""


def partition_events(history: HistoryPeriod) -> DataFrame:
    """Return the events of all partitions, each with the whole state after it.

    Other columns: `was` (the roles before, null for a new partition), `is_state` (leader or ISR
    were written), `at` (the time, never before that of the previous event), `life` (0, and one more
    each time the partition is deleted and recreated), `alive`.
    """
    states = _states(history)
    names = states.select(*KEYS).distinct()
    of_topics = _of_topics(history).join(names, "topic")
    of_cluster = _of_cluster(history).crossJoin(names)
    rows = _aligned(states)
    others = _known_before(states, history), _assignments(history), _removals(history)
    for events in (*others, of_topics, of_cluster):
        rows = rows.unionAll(_aligned(events))
    return _filled(rows.join(names, list(KEYS), "left_semi"))


def partition_spans(
    events: DataFrame, history: HistoryPeriod, default_floor: int = DEFAULT_MIN_INSYNC
) -> DataFrame:
    """Return the spans between the events of each partition, with flags of its problems.

    `no_leader`: no replica led. `below_min_isr`: there was a leader, but the ISR was smaller than
    min(min.insync.replicas, replicas), so that acks=all was refused. `under_replicated`: there was
    no leader, or a replica was not in the ISR, except replicas that are being added.
    """
    in_order = Window.partitionBy(*KEYS).orderBy("id", "position")
    following = sf.lead("at").over(in_order)
    rows = events.withColumn("ended_at", sf.coalesce(following, sf.lit(history.until_ms)))
    rows = rows.withColumn("censored", following.isNull())
    rows = rows.where("alive").withColumnRenamed("at", "started_at")
    floor = sf.coalesce(
        sf.nullif(sf.col("own_floor"), sf.lit(_INHERITED)),
        sf.nullif(sf.col("cluster_floor"), sf.lit(_INHERITED)),
        sf.lit(default_floor),
    )
    rows = rows.withColumn("settled", _settled()).withColumn(
        "floor", sf.least(floor, sf.size("settled"))
    )
    led = sf.col("leader") >= 0
    missing = sf.size(sf.array_except("settled", "isr")) > 0
    rows = rows.select(
        *KEYS,
        "life",
        "started_at",
        "ended_at",
        length().alias("duration_ms"),
        "censored",
        "leader",
        "isr",
        sf.col("settled").alias("replicas"),
        sf.col("floor").alias("min_isr"),
        (~led).alias("no_leader"),
        (led & (sf.size("isr") < sf.col("floor"))).alias("below_min_isr"),
        (~led | missing).alias("under_replicated"),
    )
    return rows.where(sf.col("duration_ms") > 0)


def _settled() -> Column:
    """Return the replicas that should be in sync.

    If the history does not reach back to the assignment, the largest ISR replaces it.
    """
    life = Window.partitionBy(*KEYS, "life")
    largest = sf.max_by("isr", sf.size("isr")).over(life)
    settled = sf.array_except("replicas", sf.coalesce("adding", sf.array().cast("array<int>")))
    return sf.when(sf.size(settled) > 0, settled).otherwise(sf.coalesce("replicas", largest))


# -- the rows ------------------------------------------------------------------


def _states(history: HistoryPeriod) -> DataFrame:
    rows = history.entries.select("*", sf.posexplode("changes").alias("position", "change"))
    return rows.select(
        "id",
        "position",
        "time",
        sf.col("change.topic").alias("topic"),
        sf.col("change.partition").alias("partition"),
        "kind",
        "actor",
        "cause",
        sf.col("change.reason").alias("reason"),
        sf.get_json_object("after", "$.noticed_at").cast("bigint").alias("noticed_at"),
        sf.lit(True).alias("is_state"),
        sf.col("change.before").isNull().alias("is_first"),
        sf.col("change.before").alias("was"),
        sf.col("change.after.leader").alias("leader"),
        sf.col("change.after.leader_epoch").alias("leader_epoch"),
        sf.col("change.after.isr").alias("isr"),
    )


def _known_before(states: DataFrame, history: HistoryPeriod) -> DataFrame:
    """Return the state at the start of a history that does not reach back to the first state."""
    first = Window.partitionBy(*KEYS).orderBy("id", "position")
    rows = states.withColumn("_number", sf.row_number().over(first))
    rows = rows.where((sf.col("_number") == 1) & sf.col("was").isNotNull())
    return rows.select(
        sf.lit(-1).alias("id"),
        sf.lit(history.since_ms).alias("time"),
        *KEYS,
        sf.lit("known_before").alias("kind"),
        sf.lit(False).alias("is_state"),
        sf.col("was.leader").alias("leader"),
        sf.col("was.leader_epoch").alias("leader_epoch"),
        sf.col("was.isr").alias("isr"),
    )


def _assignments(history: HistoryPeriod) -> DataFrame:
    """Return the assignments of partitions; an assignment of null deletes a partition."""
    topic = sf.get_json_object("resource", "$.topic")
    entries = history.entries.withColumn("topic", topic).where(sf.col("topic").isNotNull())
    is_step = sf.col("kind") == "reassignment_step"
    given = sf.from_json(sf.get_json_object("after", "$.assignment"), _ASSIGNMENT)
    assigned = entries.where(~is_step).select(
        *_ENTRY, sf.explode(given).alias("number", "replicas")
    )
    assigned = assigned.withColumn("adding", sf.array().cast("array<int>"))
    stepped = entries.where(is_step).select(
        *_ENTRY, sf.explode(sf.from_json("after", _STEP)).alias("number", "row")
    )
    stepped = stepped.select(*_ENTRY, "number", "row.replicas", "row.adding")
    gone = sf.when(sf.col("replicas").isNull(), sf.col("id"))
    rows = assigned.unionAll(stepped).withColumn("gone_id", gone)
    return rows.withColumn("partition", sf.col("number").cast("int"))


def _removals(history: HistoryPeriod) -> DataFrame:
    """Return the requests to remove partitions, which count as deleted from then on."""
    numbers = sf.from_json(sf.get_json_object("after", "$.partitions"), "array<int>")
    return history.entries.where(sf.col("kind") == "partitions_removal_ordered").select(
        "id",
        "time",
        "kind",
        sf.get_json_object("resource", "$.topic").alias("topic"),
        sf.explode(numbers).alias("partition"),
        sf.col("id").alias("gone_id"),
    )


def _of_topics(history: HistoryPeriod) -> DataFrame:
    """Return the events of whole topics: min.insync.replicas, and deletion."""
    topic = sf.get_json_object("resource", "$.topic")
    entries = history.entries.select("id", "time", "kind", "after", topic.alias("topic"))
    created, kind = sf.get_json_object("after", "$.configs"), sf.col("kind")
    configs = sf.when(kind == "topic_created", created).when(
        kind == "configs_changed", sf.col("after")
    )
    floor = sf.from_json(configs, "map<string,string>")[MIN_INSYNC].cast("int")
    ends = kind.isin("topic_deletion_ordered", "topic_deleted")
    return entries.where(ends | configs.isNotNull()).select(
        "id",
        "time",
        "kind",
        "topic",
        sf.when(configs.isNotNull(), sf.coalesce(floor, sf.lit(_INHERITED))).alias("own_floor"),
        sf.when(ends, sf.col("id")).alias("gone_id"),
    )


def _of_cluster(history: HistoryPeriod) -> DataFrame:
    """Return the values of min.insync.replicas for the whole cluster."""
    floor = sf.from_json("after", "map<string,string>")[MIN_INSYNC].cast("int")
    is_cluster = sf.get_json_object("resource", "$.config") == "cluster"
    return history.entries.where((sf.col("kind") == "configs_changed") & is_cluster).select(
        "id", "time", "kind", sf.coalesce(floor, sf.lit(_INHERITED)).alias("cluster_floor")
    )


def _aligned(rows: DataFrame) -> DataFrame:
    """Add the missing columns to rows, with null or the default."""
    defaults = {"position": -1, "is_state": False, "is_first": False}
    columns = []
    for column in f"{_EVENT}, {_STATE}".split(", "):
        name, kind = column.split(" ", 1)
        value = sf.col(name) if name in rows.columns else sf.lit(defaults.get(name))
        columns.append(value.cast(kind).alias(name))
    return rows.select(*columns)


def _filled(rows: DataFrame) -> DataFrame:
    """Carry forward the values that rows do not have."""
    in_order = Window.partitionBy(*KEYS).orderBy("id", "position")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    carried = [column.split(" ")[0] for column in _STATE.split(", ")]
    state_id = sf.when(sf.col("leader").isNotNull(), sf.col("id"))
    rows = rows.select(
        *(name for name in rows.columns if name not in carried),
        *(sf.last(name, ignorenulls=True).over(so_far).alias(name) for name in carried),
        sf.max("time").over(so_far).alias("at"),
        sf.max(state_id).over(so_far).alias("_state_id"),
        sf.sum(sf.col("is_first").cast("int")).over(so_far).alias("life"),
    )
    alive = sf.col("_state_id") > sf.coalesce("gone_id", sf.lit(-2))
    return rows.withColumn("alive", sf.coalesce(alive, sf.lit(False))).drop("_state_id")

"""Leader changes with their causes and decision times, and shrinks and expansions of ISRs."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from leadline_spark.jobs.analytics.partitions import KEYS

LEADER_CAUSES = (
    "failure",
    "unclean",
    "recovery",
    "controlled_shutdown",
    "drain",
    "reassignment",
    "preferred",
    "lost",
)
"""Why a leader changed. `lost`: no replica could lead; `recovery`: one leads again, cleanly."""
PLANNED = ("controlled_shutdown", "drain", "reassignment", "preferred")
"""The causes that an operator or the balancing of leaders requested."""
SHRINK_CAUSES = ("failure", "lagging", "controlled_shutdown", "unclean", "reassignment")
EXPANSION_CAUSES = ("caught_up", "reassignment", "unclean")


def leader_changes(events: DataFrame) -> DataFrame:
    """Return the leader changes in `partition_events`; leader -1 means no leader.

    The first leader of a partition is no change, nor is a new epoch of the same leader.
    `decision_ms` is the time from the notification to the write, null if it is unknown.
    """
    rows = events.where(sf.col("is_state") & sf.col("was").isNotNull())
    rows = rows.where(sf.col("was.leader") != sf.col("leader"))
    decision = sf.greatest(sf.lit(0), sf.col("time") - sf.col("noticed_at"))
    is_timed = (sf.col("leader") >= 0) & sf.col("noticed_at").isNotNull()
    return rows.select(
        sf.col("id").alias("audit_id"),
        *KEYS,
        "at",
        sf.col("was.leader").alias("from_leader"),
        sf.col("leader").alias("to_leader"),
        "leader_epoch",
        _leader_cause().alias("change_cause"),
        sf.when(is_timed, decision).alias("decision_ms"),
        "actor",
        sf.col("cause").alias("cause_id"),
    )


def _leader_cause() -> Column:
    kind, reason = sf.col("kind"), sf.col("reason")
    return (
        sf.when(sf.col("leader") < 0, "lost")
        .when(reason == "unclean", "unclean")
        .when(kind == "reassignment_step", "reassignment")
        .when(kind == "drain", "drain")
        .when(kind == "controlled_shutdown", "controlled_shutdown")
        .when(reason == "preferred", "preferred")
        .when(sf.col("was.leader") < 0, "recovery")
        .otherwise("failure")
    )


def isr_changes(events: DataFrame) -> DataFrame:
    """Return each shrink and each expansion of an ISR, with the brokers that left or joined.

    An unclean election can be both. Replicas that a reassignment removes or adds have the cause
    `reassignment`.
    """
    rows = events.where(sf.col("is_state") & sf.col("was").isNotNull())
    left = sf.array_except("was.isr", "isr")
    joined = sf.array_except("isr", "was.isr")
    shrinks = rows.select(*_isr_columns("shrink", left, _shrink_cause()))
    expansions = rows.select(*_isr_columns("expansion", joined, _expansion_cause(joined)))
    return shrinks.unionAll(expansions).where(sf.size("brokers") > 0)


def _isr_columns(direction: str, brokers: Column, cause: Column) -> list[Column]:
    return [
        sf.col("id").alias("audit_id"),
        *(sf.col(name) for name in KEYS),
        sf.col("at"),
        sf.lit(direction).alias("direction"),
        brokers.alias("brokers"),
        sf.size("isr").alias("isr_size"),
        cause.alias("change_cause"),
        sf.col("cause").alias("cause_id"),
    ]


def _shrink_cause() -> Column:
    return (
        sf.when(sf.col("reason") == "unclean", "unclean")
        .when(sf.col("kind") == "reassignment_step", "reassignment")
        .when(sf.col("kind") == "controlled_shutdown", "controlled_shutdown")
        .when(sf.col("reason") == "lagging", "lagging")
        .otherwise("failure")
    )


def _expansion_cause(joined: Column) -> Column:
    return (
        sf.when(sf.col("reason") == "unclean", "unclean")
        .when(sf.arrays_overlap(joined, "adding"), "reassignment")
        .otherwise("caught_up")
    )

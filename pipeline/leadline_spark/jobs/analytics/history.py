"""The audit history as a DataFrame, from files of its export or from a live cluster.

Both have the same rows: an entry each, as `GET /v1/audit/export` sends it. What has no fixed
members (`resource`, `before`, `after`) stays text that holds JSON, read where it is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from leadline_spark.errors import LeadlineSparkError

_ROLES = "struct<leader int, leader_epoch int, isr array<int>>"
_CHANGE = (
    "struct<topic string, partition int, reason string, "
    f"before {_ROLES}, after {_ROLES}, state_version int>"
)
_MEMBERS = {
    "id": "bigint",
    "time": "bigint",
    **dict.fromkeys(("cause", "actor", "kind", "outcome", "reason"), "string"),
    **dict.fromkeys(("resource", "before", "after"), "string"),
    "changes": f"array<{_CHANGE}>",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in _MEMBERS.items())
"""The members of an exported entry that are used here; `time` in Unix ms."""


@dataclass(frozen=True, slots=True)
class AuditHistory:
    """The entries of a period that changed something, and the period.

    `since_ms` is the time of the first entry, `until_ms` that of the snapshot: what is still
    open then is counted up to it, and marked as censored. Unix ms. `first_id` is not 0 where
    older entries have been purged: what was the case before is then known from `before` only.
    `missing` entries in between were lost for good, or are in files that were not given.
    """

    entries: DataFrame
    since_ms: int
    until_ms: int
    count: int
    first_id: int
    missing: int


def read_files(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the entries of NDJSON files as the export writes them; `.gz` is understood too."""
    return spark.read.schema(SCHEMA).option("mode", "FAILFAST").json(list(paths))


def read_cluster(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the entries that a live cluster has; `options` are those of `format("leadline")`."""
    return spark.read.format("leadline").options(**options).option("table", "audit").load()


def take_history(entries: DataFrame, until_ms: int | None = None) -> AuditHistory:
    """Return what happened, without requests that were refused or only tried.

    The snapshot is at `until_ms` (Unix ms), or at the last entry; later entries are left out.

    Raises:
        LeadlineSparkError: there is no entry at all.

    """
    if until_ms is not None:
        entries = entries.where(sf.col("time") <= until_ms)
    # An entry that was fetched twice, from two files, is one entry.
    entries = entries.select(*_MEMBERS).dropDuplicates(["id"]).cache()
    told = entries.agg(
        sf.min("time").alias("since"),
        sf.max("time").alias("until"),
        sf.count("*").alias("count"),
        sf.min("id").alias("first"),
        sf.max("id").alias("last"),
    ).first()
    if told is None or not told["count"]:
        raise LeadlineSparkError("LEADLINE_HISTORY_EMPTY", "There is no audit entry to analyse.")
    done = entries.where(sf.col("outcome") == "done")
    until = told["until"] if until_ms is None else until_ms
    missing = told["last"] - told["first"] + 1 - told["count"]
    return AuditHistory(done, told["since"], until, told["count"], told["first"], missing)

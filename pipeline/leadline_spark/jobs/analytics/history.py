"""The audit history as a DataFrame, from exported files or from a live cluster.

Both have one row for each entry, as `GET /v1/audit/export` sends it. Members without a fixed shape
(`resource`, `before`, `after`) stay JSON text.
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
"""The members of an exported entry that the analytics use; `time` in Unix ms."""


@dataclass(frozen=True, slots=True)
class HistoryPeriod:
    """The entries of a period that changed something, and the period.

    `since_ms` is the time of the first entry, `until_ms` that of the snapshot (Unix ms). Spans that
    are still open then end there, and are marked as censored. `first_id` is not 0 if older entries
    were deleted; the state before is then known only from `before`. `missing` counts the entries in
    between that were lost, or are in other files.
    """

    entries: DataFrame
    since_ms: int
    until_ms: int
    count: int
    first_id: int
    missing: int


def read_files(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the entries of exported NDJSON files, which may be `.gz`."""
    return spark.read.schema(SCHEMA).option("mode", "FAILFAST").json(list(paths))


def read_cluster(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the entries of a live cluster; `options` are those of `format("leadline")`."""
    return spark.read.format("leadline").options(**options).option("table", "audit").load()


def take_history(entries: DataFrame, until_ms: int | None = None) -> HistoryPeriod:
    """Return the history without requests that were refused or dry runs.

    The snapshot is at `until_ms` (Unix ms), or at the last entry. Later entries are ignored.

    Raises:
        LeadlineSparkError: LEADLINE_HISTORY_EMPTY.

    """
    if until_ms is not None:
        entries = entries.where(sf.col("time") <= until_ms)
    # Two files may have the same entry.
    entries = entries.select(*_MEMBERS).dropDuplicates(["id"]).cache()
    totals = entries.agg(
        sf.min("time").alias("since"),
        sf.max("time").alias("until"),
        sf.count("*").alias("count"),
        sf.min("id").alias("first"),
        sf.max("id").alias("last"),
    ).first()
    if totals is None or not totals["count"]:
        raise LeadlineSparkError("LEADLINE_HISTORY_EMPTY", "There is no audit entry to analyse.")
    done = entries.where(sf.col("outcome") == "done")
    until = totals["until"] if until_ms is None else until_ms
    missing = totals["last"] - totals["first"] + 1 - totals["count"]
    return HistoryPeriod(done, totals["since"], until, totals["count"], totals["first"], missing)

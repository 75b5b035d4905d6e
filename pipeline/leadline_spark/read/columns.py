"""The columns of a read in Spark's types: those of its Kafka source, and the leader epoch."""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from leadline_spark.codec.columns import TYPES, schema
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options, check_columns

_OPTIONAL = {"headers": "includeHeaders", "leaderEpoch": "includeLeaderEpoch"}


def wanted_columns(options: Options) -> tuple[str, ...]:
    """Return the names of the columns of a read, in order.

    Raises LeadlineSparkError LEADLINE_OPTION_INVALID for an unknown column.
    """
    named = options.names("columns")
    check_columns(named, list(TYPES), "is no column")
    if "columns" in options and (not named or len(set(named)) < len(named)):
        message = f"columns is {options.text('columns')!r}: name at least one, and none twice."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
    included = [name for name, option in _OPTIONAL.items() if options.flag(option)]
    if named:
        return tuple(dict.fromkeys([*named, *included]))
    return tuple(name for name in TYPES if name not in _OPTIONAL or name in included)


def spark_schema(columns: tuple[str, ...]) -> StructType:
    """Return the schema of these columns."""
    return from_arrow_schema(schema(columns))

"""The columns of a read in Spark's types: those of its Kafka source, and the leader epoch."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options, near

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
    "leaderEpoch": IntegerType(),
}
_EXTRA = {"headers": "includeHeaders", "leaderEpoch": "includeLeaderEpoch"}


def wanted_columns(options: Options) -> tuple[str, ...]:
    """Return the names of the columns of a read, in order.

    Raises LeadlineSparkError LEADLINE_OPTION_INVALID for an unknown column.
    """
    named = options.names("columns")
    for name in named:
        if name not in _TYPES:
            advice = near(name, list(_TYPES)) or f" There are: {', '.join(_TYPES)}."
            message = f"columns names {name!r}, which is no column.{advice}"
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
    if "columns" in options and (not named or len(set(named)) < len(named)):
        message = f"columns is {options.text('columns')!r}: name at least one, and none twice."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
    asked = [name for name, option in _EXTRA.items() if options.flag(option)]
    if named:
        return tuple(dict.fromkeys([*named, *asked]))
    return tuple(name for name in _TYPES if name not in _EXTRA or name in asked)


def spark_schema(columns: tuple[str, ...]) -> StructType:
    """Return the schema of these columns."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])

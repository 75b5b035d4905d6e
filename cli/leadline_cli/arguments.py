"""Values as people write them on the command line: times, partitions, replicas, settings.

A value that cannot be parsed raises typer.BadParameter, which says how to write it. Times are UTC
unless they name a zone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import typer

from leadline_client.wire import TopicPartition

TIME_HELP: Final = "ISO 8601 (UTC unless it names a zone), or Unix ms"


def unix_ms(text: str) -> int:
    """Parse a time as tables show it or as scripts have it, and return it in Unix ms.

    A time before 1970 is returned as 0, as nothing in a cluster is older.
    """
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time: give ISO 8601 or Unix ms, as 2026-01-31T12:00:00 (UTC), "
            "2026-01-31T12:00:00+01:00 or 1769860800000"
        ) from None
    in_zone = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, round(in_zone.timestamp() * 1000))


def shown(time_ms: int, *, timespec: str = "seconds") -> str:
    """Return a time in Unix ms as `2026-01-31 12:00:00` (UTC), which `unix_ms` parses again."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC).replace(tzinfo=None)
    return moment.isoformat(" ", timespec)


def topic_partition(text: str) -> TopicPartition:
    """Parse a partition as `TOPIC-0`."""
    topic, _, number = text.rpartition("-")
    if not topic or not number.isdecimal():
        raise typer.BadParameter(f"a partition is written TOPIC-0, not {text!r}")
    return TopicPartition(topic, int(number))


def replica_lists(text: str) -> list[list[int]]:
    """Parse the replicas of successive partitions as `1:2:3,2:3:1`."""
    try:
        return [[int(broker) for broker in row.split(":")] for row in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"an assignment looks like 1:2:3,2:3:1, not {text!r}", param_hint="--assignment"
        ) from None


def name_value(text: str, param_hint: str) -> tuple[str, str]:
    """Parse a setting as `name=value`."""
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"takes name=value, not {text!r}", param_hint=param_hint)
    return name.strip(), value.strip()

"""Ranges of ids of audit entries, and the entries missing from them. Pure.

Entries are only appended to the audit, and deleted from the oldest on. The ids [oldest, end) at one
moment are therefore a snapshot, which tasks can read in parts, and a missing id is a lost entry.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.offsets import EARLIEST, LATEST
from leadline_spark.tables.columns import AUDIT

IDS_IN_A_TASK = 10_000
"""Unless `maxRecordsPerPartition` says otherwise."""
_CLUSTER = "@cluster"
_DIGITS = 19
"""As many as the greatest id has."""
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids [start, end)."""

    start: int
    end: int

    @classmethod
    def from_head(cls, head: Mapping[str, Any]) -> Self:
        """Read the answer of `GET /v1/export/audit/head`: the entries that exist at present."""
        return cls(max(head["oldest"], 0), head["head"] + 1)

    @property
    def size(self) -> int:
        """The number of ids."""
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return f"audit entries [{self.start}, {self.end})"


def read_bound(options: Options, name: str, default: int) -> int:
    """Return a bound of a read of the audit: an id, EARLIEST or LATEST.

    Raises LeadlineSparkError LEADLINE_OPTION_INVALID.
    """
    text = (options.text(name) or "").strip().lower()
    if not text:
        return default
    if text in _WORDS:
        return _WORDS[text]
    if not text.isdecimal() or len(text) > _DIGITS:
        message = f"{name} is {text!r}: of the audit it is earliest, latest, or an id."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
    return int(text)


def checkpointed_id(offset: Any) -> int:
    """Return the id in an offset of a stream, `{"audit": 5121}`.

    Raises LeadlineSparkError LEADLINE_OFFSETS_INVALID.
    """
    number = offset.get(AUDIT) if isinstance(offset, dict) else None
    if type(number) is not int or number < 0:
        message = (
            f'The offset of the checkpoint is {offset!r}, which is not like {{"audit":5121}}. The '
            "checkpoint is damaged, or another source wrote it: start the query with a new one."
        )
        raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)
    return number


def checkpointed_cluster(offset: Mapping[str, Any]) -> str | None:
    """Return the id of the cluster in an offset of a stream; earlier releases wrote none."""
    found = offset.get(_CLUSTER)
    return found if isinstance(found, str) else None


def offset_of(number: int, cluster_id: str | None) -> dict[str, Any]:
    """Return the offset of a stream that reads on at an id, for the checkpoint."""
    return {AUDIT: number} | ({} if cluster_id is None else {_CLUSTER: cluster_id})


def resolved(start: int, end: int, existing: IdRange) -> IdRange:
    """Return the range between two bounds, whether its entries exist or not."""
    ends = {EARLIEST: existing.start, LATEST: existing.end}
    return IdRange(ends.get(start, start), ends.get(end, end))


def deleted_part(wanted: IdRange, existing: IdRange) -> IdRange | None:
    """Return the part of a range that is deleted, None if nothing is."""
    gone = IdRange(wanted.start, min(existing.start, wanted.end))
    return gone if gone.size else None


def split_ids(whole: IdRange, most: int | None, least_pieces: int | None) -> list[IdRange]:
    """Split a range into pieces of at most `most` ids, and into at least `least_pieces`.

    No piece is empty. The same range gives the same pieces, because Spark plans an interrupted
    batch again.
    """
    count = max(-(-whole.size // (most or IDS_IN_A_TASK)), min(least_pieces or 1, whole.size))
    bounds = (whole.start + whole.size * step // max(count, 1) for step in range(count + 1))
    return [IdRange(start, end) for start, end in itertools.pairwise(bounds)]


def gaps(wanted: IdRange, found: Iterable[int]) -> Iterator[IdRange]:
    """Yield the ids missing from ascending ids, up to the last one found."""
    following = wanted.start
    for number in found:
        if number > following:
            yield IdRange(following, number)
        following = number + 1


def lost(what: IdRange) -> str:
    """Return the message for entries that are gone."""
    return (
        f"{what} are gone, by audit.retention.ms or from the history itself. To read what there "
        "is set failOnDataLoss to false."
    )

"""Which entries of the audit are read: ranges of ids, and what is missing from them. Pure.

The audit is only ever added to, and deleted from its oldest entry on. So the ids [oldest, end) that
are there at one moment are a snapshot, which tasks can read in parts, side by side; and an id that
does not come is an entry that is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.offsets import EARLIEST, LATEST

IDS_IN_A_TASK = 10_000
"""Unless `maxRecordsPerPartition` says otherwise."""
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids [start, end)."""

    start: int
    end: int

    @classmethod
    def told(cls, head: Mapping[str, Any]) -> Self:
        """Read the answer of `GET /v1/export/audit/head`: what is there at the moment."""
        return cls(max(head["oldest"], 0), head["head"] + 1)

    @property
    def size(self) -> int:
        """How many ids."""
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return f"audit entries [{self.start}, {self.end})"


def read_bound(options: Options, name: str, default: int) -> int:
    """Return where a read of the audit begins or ends: an id, EARLIEST or LATEST.

    Raises LeadlineSparkError LEADLINE_OPTION_INVALID.
    """
    text = (options.text(name) or "").strip().lower()
    if not text:
        return default
    if text in _WORDS:
        return _WORDS[text]
    if not text.isdecimal():
        message = f"{name} is {text!r}: of the audit it is earliest, latest, or an id."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
    return int(text)


def resolved(start: int, end: int, there: IdRange) -> IdRange:
    """Return the ids that two bounds come to, whether they are there or not."""
    ends = {EARLIEST: there.start, LATEST: there.end}
    return IdRange(ends.get(start, start), ends.get(end, end))


def missing_of(wanted: IdRange, there: IdRange) -> IdRange | None:
    """Return what of a range is gone already, None where nothing is."""
    gone = IdRange(wanted.start, min(there.start, wanted.end))
    return gone if gone.size else None


def cut(whole: IdRange, most: int | None, least_pieces: int | None) -> list[IdRange]:
    """Return a range in pieces of at most `most` ids, and in at least so many pieces.

    There is no piece without an id. The same range gives the same pieces: a batch that was cut
    short is planned again.
    """
    count = max(-(-whole.size // (most or IDS_IN_A_TASK)), min(least_pieces or 1, whole.size))
    bounds = (whole.start + whole.size * step // max(count, 1) for step in range(count + 1))
    return [IdRange(start, end) for start, end in itertools.pairwise(bounds)]


def gaps(wanted: IdRange, found: Iterable[int]) -> Iterator[IdRange]:
    """Yield what is missing among the ids that came, up to the last of them. They ascend."""
    following = wanted.start
    for number in found:
        if number > following:
            yield IdRange(following, number)
        following = number + 1


def lost(what: IdRange) -> str:
    """Say that entries are gone."""
    return (
        f"{what} are gone, by audit.retention.ms or from the history itself. To read what there "
        "is set failOnDataLoss to false."
    )

"""What recovery cut from logs, compared with what lay on the disk before it (I16)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from leadline_client import batches
from leadline_client.batch_header import header_at, parse_headers
from leadline_client.errors import CorruptBatch

TRUNCATED = "invalid tail truncated"


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log at rest: the offset after its last valid batch, and the bytes after it."""

    valid_end: int
    invalid_bytes: int


@dataclass(frozen=True, slots=True)
class CutReport:
    """What a broker logged that it cut; `directory` is the name of the replica's."""

    directory: str
    cut_offset: int
    cut_bytes: int
    reason: str


def tail_at_rest(directory: Path) -> Tail:
    """Read the last segment of a log whose broker does not run, and a provisional one after it.

    A batch counts if its CRC matches, its offset follows, and its epoch does not fall.
    """
    segments = sorted(directory.glob("*.log"))
    if not segments:
        return Tail(0, 0)
    tail, rest = _tail_of(segments[-1]), list(directory.glob("*.next"))
    for provisional in rest:
        if int(provisional.stem) == tail.valid_end:
            following = _tail_of(provisional)
            return Tail(following.valid_end, tail.invalid_bytes + following.invalid_bytes)
    return Tail(tail.valid_end, tail.invalid_bytes + sum(one.stat().st_size for one in rest))


def _tail_of(segment: Path) -> Tail:
    data = segment.read_bytes()
    position, end, epoch = 0, int(segment.stem), -1
    while position < len(data):
        try:
            header = header_at(data, position)
        except CorruptBatch:
            break
        if (
            not batches.crc_matches(data, header)
            or header.base_offset != end
            or header.leader_epoch < epoch
        ):
            break
        position, end, epoch = position + header.size, header.next_offset, header.leader_epoch
    return Tail(end, len(data) - position)


def tails_at_rest(log_dir: Path) -> dict[str, Tail]:
    """Return the tails of all replicas of a broker that does not run, by directory name."""
    if not log_dir.is_dir():
        return {}
    directories = [one for one in log_dir.iterdir() if one.is_dir() and any(one.glob("*.log"))]
    return {one.name: tail_at_rest(one) for one in directories}


def cut_reports(log: str) -> list[CutReport]:
    """Return what a broker reported in a part of its log."""
    rows = [json.loads(line) for line in log.splitlines() if TRUNCATED in line]
    return [
        CutReport(row["directory"], row["cut_offset"], row["cut_bytes"], row["reason"])
        for row in rows
    ]


def recovery_problems(
    broker: str, tails: Mapping[str, Tail], reports: Iterable[CutReport]
) -> list[str]:
    """Say which valid batches recovery cut, and which invalid tail it did not report (I16).

    An epoch that was not recorded for its offset makes a batch invalid in a way that its own
    bytes do not show (R18): such a cut may be before the valid end.
    """
    found, cut = [], {report.directory: report for report in reports}
    for name, report in cut.items():
        tail = tails.get(name, Tail(0, 0))
        if report.cut_offset < tail.valid_end and "epoch" not in report.reason:
            found.append(
                f"I16: {broker} cut {name} at {report.cut_offset} ({report.reason}), "
                f"but it was valid until {tail.valid_end}"
            )
        if not report.reason:
            found.append(f"I16: {broker} cut {name} at {report.cut_offset} without a reason")
    found += [
        f"I16: {broker} did not report the {tail.invalid_bytes} invalid bytes at the end of {name}"
        for name, tail in tails.items()
        if tail.invalid_bytes and name not in cut
    ]
    return found


def crc_problems(data: bytes, source: str) -> list[str]:
    """Say which batches of an answer have a wrong CRC, or are no batches (I16)."""
    try:
        return [
            f"I16: {source} was served a batch with a wrong CRC at offset {header.base_offset}"
            for header in parse_headers(data)
            if not batches.crc_matches(data, header)
        ]
    except CorruptBatch as error:
        return [f"I16: {source} was served no whole batches: {error.message}"]

"""Which closed segments retention deletes, and the removal of the files of deleted segments.

To unlink a file of 64 MB takes some 20 ms, and a log can have thousands. So the owner of the log
only renames them, and any thread may remove them then. If none does before the process ends, the
next opening of the log does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from leadline_broker.adapters.log.errors import (
    NO_DESCRIPTOR,
    NO_SPACE,
    STORAGE_ERRORS,
    storage_error,
)
from leadline_broker.adapters.log.log_start import write_log_start
from leadline_broker.adapters.log.segment import Segment
from leadline_broker.adapters.log.snapshots import set_aside_snapshot
from leadline_client.errors import StorageFailed

logger = structlog.get_logger(__name__)

MOST_AT_ONCE: Final = 16
"""How many segments leave a log in one step: the indexes of all of them may have to be read."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What a log keeps: `PartitionLog.apply_retention` documents the limits."""

    now_ms: int
    retention_ms: int
    retention_bytes: int
    limit_offset: int

    def expired(self, segments: Sequence[Segment]) -> Iterator[Segment]:
        """Yield the closed segments to delete, the oldest first, at most `MOST_AT_ONCE`."""
        size = sum(segment.size for segment in segments) if self.retention_bytes >= 0 else 0
        for oldest in segments[: min(MOST_AT_ONCE, len(segments) - 1)]:
            latest = oldest.latest_ms
            aged = 0 <= self.retention_ms < self.now_ms - latest and latest >= 0
            excess = 0 <= self.retention_bytes <= size - oldest.size
            if oldest.next_offset > self.limit_offset or not (aged or excess):
                return
            size -= oldest.size
            yield oldest

    def set_aside(self, segments: list[Segment], renamed: list[Path]) -> int:
        """Take expired segments out of those of a log; add their renamed files; return the bytes.

        Raises:
            StorageFailed: a file cannot be read or renamed; no segment was taken out.

        """
        count = size = 0
        try:
            with STORAGE_ERRORS:
                for segment in self.expired(segments):
                    write_log_start(segment.file.path.parent, segment.next_offset)
                    renamed.append(segment.set_aside())
                    renamed += set_aside_snapshot(segment.file.path.parent, segment.base_offset)
                    count, size = count + 1, size + segment.size
        except StorageFailed:
            if not count:  # Otherwise the next call raises it.
                raise
        del segments[:count]
        for segment in segments[:-1]:
            segment.release_index()
        return size


@dataclass(slots=True)
class RenamedFiles:
    """The renamed files that have left a log, and that nobody has begun to remove."""

    directory: Path
    paths: list[Path] = field(default_factory=list)

    def removal(self) -> Callable[[], None] | None:
        """See `PartitionLog.removal`."""
        if not self.paths:
            return None
        paths, self.paths = self.paths, []
        return partial(_remove_files, self.directory, paths)

    def make_room_for(self, work: Callable[[], object]) -> None:
        """Do what needs space, if need be in that of these files.

        Raises:
            StorageFailed: there is no space, or no descriptor; another error is an OSError.

        """
        try:
            try:
                work()
            except OSError as error:
                if error.errno not in NO_SPACE or (removal := self.removal()) is None:
                    raise
                removal()
                work()
        except OSError as error:
            if error.errno not in NO_SPACE | NO_DESCRIPTOR:
                raise
            raise storage_error(error) from error


def _remove_files(directory: Path, renamed: Sequence[Path]) -> None:
    """Remove the renamed files of a log. Thread-safe: no file of its own has such a name.

    What cannot be removed stays until the log is opened again.
    """
    try:
        for path in renamed:
            path.unlink(missing_ok=True)
    except OSError as problem:
        logger.warning("deleted files stay", directory=directory.name, reason=problem.strerror)

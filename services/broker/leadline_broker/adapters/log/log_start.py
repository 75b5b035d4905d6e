"""``log-start-offset``: where a log begins, so that the loss of its first segments is noticed.

It is written before retention takes a segment out of the log, without a sync: a torn file says
nothing. An empty segment stands for what is lost. Its batches are damaged: they are repaired by the
copies of other replicas, and never passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from leadline_broker.adapters.log.checked_files import read_checked, write_checked
from leadline_broker.adapters.log.errors import NO_SPACE, CorruptFile
from leadline_broker.adapters.log.layout import LOG_SUFFIX, offset_name
from leadline_broker.domain.epochs import EpochHistory

logger = structlog.get_logger(__name__)

LOG_START_FILE: Final = "log-start-offset"


def write_log_start(directory: Path, offset: int) -> None:
    """Note that nothing before `offset` is missing from now on; forget it on a full disk."""
    path = directory / LOG_START_FILE
    try:
        write_checked(path, LOG_START_FILE, b"%d" % offset, sync=False)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        path.unlink(missing_ok=True)


def lost_start(directory: Path, base: int, recorded: Sequence[EpochHistory]) -> int | None:
    """Return where the log began if what lies before its first segment, at `base`, is lost.

    An earlier release changed only the recorded history, when retention had deleted segments.
    """
    try:
        start = int(read_checked(directory / LOG_START_FILE, LOG_START_FILE))
    except (FileNotFoundError, CorruptFile):
        write_log_start(directory, base)
        return None
    entries = recorded[0].entries() if recorded else []
    start = max([start, *(first for _, first in entries[:1])])
    return start if start < base else None


def create_placeholder(directory: Path, start: int, base: int) -> None:
    """Create the empty segment at `start` that stands for all that is lost before `base`."""
    logger.error("first segments lost", directory=directory.name, start=start, first_left=base)
    (directory / offset_name(start, LOG_SUFFIX)).touch(exist_ok=False)

"""A process that appends to a log until it is killed or the file may not grow further.

``python -m tests.unit.broker.log_writer ROOT [FILE_SIZE_LIMIT]`` prints the
durable end offset after every flush, and ``full END`` at the limit.
"""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path

from leadline_broker.adapters.log.errors import DiskFull
from leadline_broker.adapters.log.partition_log import PartitionLog
from tests.unit.broker.log_support import batch, open_log

SEGMENT_BYTES = 20_000


def content(offset: int) -> bytes:
    """Return the batch that this writer puts at `offset`."""
    return batch(offset, b"%d" % offset * (1 + offset % 300), epoch=offset // 50)


def say(*words: object) -> None:
    """Write one line to the parent process."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def append_until_full(log: PartitionLog) -> None:
    """Append for ever, reporting each durable end."""
    while True:
        try:
            log.append(content(log.log_end_offset))
        except DiskFull:
            return
        if log.log_end_offset % 3 == 0:
            say(log.flush())


def main() -> None:
    """Write until killed, or full."""
    if len(sys.argv) > 2:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    log = open_log(Path(sys.argv[1]), segment_bytes=SEGMENT_BYTES)
    append_until_full(log)
    say("full", log.flush())
    log.close()


if __name__ == "__main__":
    main()

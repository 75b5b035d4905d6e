"""Creating the directory of a log, and having it ready for the log's first segment."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leadline_broker.adapters.log.epoch_file import write_epochs
from leadline_broker.adapters.log.layout import METADATA_FILE, PartitionIdentity, write_identity
from leadline_broker.adapters.log.log_start import write_log_start
from leadline_broker.adapters.log.snapshots import begin_snapshots
from leadline_broker.domain.producers import ProducerStates


@contextmanager
def beginning(
    directory: Path, identity: PartitionIdentity, base: int, told: ProducerStates | None
) -> Iterator[None]:
    """Have the directory ready for the first segment, which the block creates at `base`.

    `told` are the producers before it, if the leader has told of them.

    Raises:
        OSError: there is no segment; a directory that was new is gone again.

    """
    is_new = not (directory / METADATA_FILE).exists()
    try:
        if is_new:
            _create(directory, identity)
        write_log_start(directory, base)
        begin_snapshots(directory, base, told)
        yield
    except OSError:
        if is_new:  # What stays, for want of a descriptor, is completed next time.
            shutil.rmtree(directory, ignore_errors=True)
        raise


def _create(directory: Path, identity: PartitionIdentity) -> None:
    """Create the directory of a log that gets its first batch; nothing is synced.

    The identity is the last, so that a directory that has it has everything.
    """
    directory.mkdir(exist_ok=True)
    write_epochs(directory, (), sync=False)  # If it is missing later, it was lost.
    write_identity(directory, identity)

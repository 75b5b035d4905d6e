"""``leader-epoch-checkpoint``: the epoch history of a log, one ``epoch start`` per line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from leadline_broker.adapters.log.checked_files import read_checked, write_checked
from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.layout import EPOCH_FILE


def write_epochs(directory: Path, entries: Iterable[tuple[int, int]]) -> None:
    """Write the history; it is durable once the directory is synced too."""
    body = "".join(f"{epoch} {start_offset}\n" for epoch, start_offset in entries)
    write_checked(directory / EPOCH_FILE, EPOCH_FILE, body.encode())


def read_epochs(directory: Path) -> list[tuple[int, int]]:
    """Return (epoch, start offset) pairs.

    Raises:
        CorruptFile: the file is missing or damaged; the batches contain the epochs too.

    """
    try:
        lines = read_checked(directory / EPOCH_FILE, EPOCH_FILE).decode().splitlines()
    except FileNotFoundError as error:
        raise CorruptFile(f"{directory.name} has no {EPOCH_FILE}") from error
    pairs = (line.split() for line in lines)
    return [(int(epoch), int(start_offset)) for epoch, start_offset in pairs]

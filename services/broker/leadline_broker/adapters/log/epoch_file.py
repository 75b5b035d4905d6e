"""``leader-epoch-checkpoint``: the epoch history of a log, one ``epoch start`` per line.

A sync writes it before the batches. ``leader-epoch-unsynced`` is written before the first batch
of an epoch is appended, without a sync: it describes what a killed process leaves behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from leadline_broker.adapters.log.checked_files import read_checked, write_checked
from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.layout import EPOCH_FILE, UNSYNCED_EPOCH_FILE
from leadline_broker.domain.epochs import EpochHistory
from leadline_client.batch_header import BatchHeader

_Entries = Iterable[tuple[int, int]]


def write_epochs(directory: Path, entries: _Entries, *, sync: bool = True) -> None:
    """Write the history; with `sync` it is durable once the directory is synced too."""
    write_checked(directory / EPOCH_FILE, EPOCH_FILE, _encoded(entries), sync=sync)


def write_unsynced_epochs(
    directory: Path, epochs: EpochHistory, new: Iterable[BatchHeader]
) -> None:
    """Write the history as it will be once the `new` batches are appended."""
    entries = EpochHistory(epochs.entries())
    for header in new:
        entries.assign(header.leader_epoch, header.base_offset)
    body = _encoded(entries.entries())
    write_checked(directory / UNSYNCED_EPOCH_FILE, UNSYNCED_EPOCH_FILE, body, sync=False)


def read_epochs(directory: Path) -> list[tuple[int, int]]:
    """Return (epoch, start offset) pairs.

    Raises:
        CorruptFile: the file is missing or damaged; the batches contain the epochs too.

    """
    return _read(directory, EPOCH_FILE)


def recorded_histories(directory: Path) -> list[EpochHistory]:
    """Return the synced history, then the unsynced one if there is any.

    Each batch that is durable, or that a killed process has appended, has its epoch in one of
    them. The result is empty if the synced history is damaged.
    """
    found: list[EpochHistory] = []
    with suppress(CorruptFile):
        found.append(EpochHistory(_read(directory, EPOCH_FILE)))
        found.append(EpochHistory(_read(directory, UNSYNCED_EPOCH_FILE)))
    return found


def _encoded(entries: _Entries) -> bytes:
    return "".join(f"{epoch} {start_offset}\n" for epoch, start_offset in entries).encode()


def _read(directory: Path, name: str) -> list[tuple[int, int]]:
    try:
        lines = read_checked(directory / name, name).decode().splitlines()
    except FileNotFoundError as error:
        raise CorruptFile(f"{directory.name} has no {name}") from error
    pairs = (line.split() for line in lines)
    return [(int(epoch), int(start_offset)) for epoch, start_offset in pairs]

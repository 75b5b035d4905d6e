"""Names of the files of a partition, and the file that says which partition it is.

A partition lies in ``<root>/<topic>-<partition>``: for each segment
``<20-digit base offset>.log``, with ``.index`` and ``.timeindex`` once it is
closed, ``<20-digit offset>.snapshot`` of the idempotent producers,
``leader-epoch-checkpoint`` and ``partition.metadata``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from leadline_broker.adapters.log.durable import read_checked, write_checked
from leadline_broker.adapters.log.errors import CorruptFile

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
EPOCH_FILE = "leader-epoch-checkpoint"
METADATA_FILE = "partition.metadata"
STAGED_DIRECTORY = "staged"
"""Beside the partitions, whose names all end in a number."""

_DIGITS = 20


@dataclass(frozen=True, slots=True)
class PartitionIdentity:
    """Which partition of which incarnation of a topic a log belongs to (rule R1)."""

    topic: str
    topic_id: str
    partition: int

    @property
    def directory_name(self) -> str:
        """The name of its directory under the root."""
        return f"{self.topic}-{self.partition}"

    @property
    def key(self) -> tuple[str, int]:
        """Topic id and partition, which no other replica of a broker ever has."""
        return self.topic_id, self.partition


def offset_name(offset: int, suffix: str) -> str:
    """Return the file name for an offset; names sort as offsets do."""
    return f"{offset:0{_DIGITS}d}{suffix}"


def offsets_named(directory: Path, suffix: str) -> list[int]:
    """Return the offsets of the files with `suffix` in a directory, ascending."""
    stems = (path.stem for path in directory.iterdir() if path.suffix == suffix)
    return sorted(int(stem) for stem in stems if len(stem) == _DIGITS and stem.isdecimal())


def write_identity(directory: Path, identity: PartitionIdentity) -> None:
    """Write ``partition.metadata``, not yet synced."""
    write_checked(
        directory / METADATA_FILE, METADATA_FILE, msgspec.json.encode(identity), sync=False
    )


def read_identity(directory: Path) -> PartitionIdentity:
    """Read ``partition.metadata``.

    Raises:
        CorruptFile: missing or not valid: nothing in the directory was ever
            acknowledged, or somebody damaged it.

    """
    try:
        body = read_checked(directory / METADATA_FILE, METADATA_FILE)
        return msgspec.json.decode(body, type=PartitionIdentity)
    except (FileNotFoundError, msgspec.MsgspecError) as error:
        raise CorruptFile(f"{directory.name} has no valid {METADATA_FILE}") from error

"""The files of a partition on disk, and the settings of logs.

A partition is in ``<root>/<topic>-<partition>``: for each segment
``<20-digit base offset>.log``, with ``.index`` and ``.timeindex`` once it is
closed, ``<20-digit offset>.snapshot`` of the idempotent producers,
``<20-digit base offset>.next`` for a new segment until those before it are durable,
``leader-epoch-checkpoint``, ``leader-epoch-unsynced``, ``log-start-offset`` and
``partition.metadata``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from leadline_broker.adapters.log.checked_files import read_checked, write_checked
from leadline_broker.adapters.log.errors import CorruptFile
from leadline_client.errors import InvalidRequest
from leadline_common.names import is_topic_id, is_topic_name

LOG_SUFFIX = ".log"
PROVISIONAL_SUFFIX = ".next"
"""Of a new segment's file until all before it are durable; nothing in it counts as durable yet."""
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
"""Follows the name of a file that retention has deleted and nobody has removed yet."""
EPOCH_FILE = "leader-epoch-checkpoint"
UNSYNCED_EPOCH_FILE = "leader-epoch-unsynced"
METADATA_FILE = "partition.metadata"
STAGED_DIRECTORY = "staged"
"""Cannot collide with a partition's directory, whose name ends in a number."""

_DIGITS = 20
_OWN_FILES = frozenset({EPOCH_FILE, UNSYNCED_EPOCH_FILE})
_OWN_SUFFIXES = frozenset({LOG_SUFFIX, PROVISIONAL_SUFFIX, INDEX_SUFFIX, SNAPSHOT_SUFFIX})


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of logs on disk, named after Kafka's topic settings.

    Attributes:
        segment_bytes: a segment is closed before it would grow beyond this
            (`segment.bytes`); a larger single append still goes into one segment.
        index_interval_bytes: bytes of batches between two index entries
            (`index.interval.bytes`).

    """

    segment_bytes: int = 64 * 1024 * 1024
    index_interval_bytes: int = 4096


@dataclass(frozen=True, slots=True)
class PartitionIdentity:
    """Which partition of which incarnation of a topic a log belongs to (rule R1)."""

    topic: str
    topic_id: str
    partition: int

    @classmethod
    def checked(cls, topic: str, topic_id: str, partition: int) -> Self:
        """Return the identity of a partition whose names may be parts of paths.

        Raises:
            InvalidRequest: one may not.

        """
        if not is_topic_name(topic) or not is_topic_id(topic_id) or partition < 0:
            raise InvalidRequest(f"no topic is named {topic!r} with id {topic_id!r}")
        return cls(topic, topic_id, partition)

    @property
    def directory_name(self) -> str:
        """The name of its directory under the root."""
        return f"{self.topic}-{self.partition}"

    @property
    def key(self) -> tuple[str, int]:
        """Topic id and partition, unique on a broker."""
        return self.topic_id, self.partition


_identity = msgspec.json.Decoder(PartitionIdentity)


def is_replica_directory(path: Path) -> bool:
    """Return whether this is a directory, and may be that of a replica, complete or not.

    Others are of somebody else: `lost+found` of a file system, or whatever lies in a directory that
    was given by mistake. They are none of a broker's business.
    """
    topic, dash, number = path.name.rpartition("-")
    is_named_so = dash and is_topic_name(topic) and number.isascii() and number.isdecimal()
    if not is_named_so or not path.is_dir():
        return False
    if (path / METADATA_FILE).exists():  # So has nearly every one, of tens of thousands.
        return True
    entries = list(path.iterdir())
    return not entries or any(
        entry.name in _OWN_FILES or entry.suffix in _OWN_SUFFIXES for entry in entries
    )


def offset_name(offset: int, suffix: str) -> str:
    """Return the file name for an offset; names sort like offsets."""
    return f"{offset:0{_DIGITS}d}{suffix}"


def offsets_named(directory: Path, suffix: str) -> list[int]:
    """Return the offsets of the files with `suffix` in a directory, ascending."""
    stems = (path.stem for path in directory.iterdir() if path.suffix == suffix)
    return sorted(int(stem) for stem in stems if len(stem) == _DIGITS and stem.isdecimal())


def write_identity(directory: Path, identity: PartitionIdentity) -> None:
    """Write ``partition.metadata`` without syncing it."""
    write_checked(
        directory / METADATA_FILE, METADATA_FILE, msgspec.json.encode(identity), sync=False
    )


def read_identity(directory: Path) -> PartitionIdentity:
    """Read ``partition.metadata``.

    Raises:
        CorruptFile: the file is missing or invalid. Nothing in the directory was ever
            acknowledged, or the file was damaged later.

    """
    try:
        body = read_checked(directory / METADATA_FILE, METADATA_FILE)
        return _identity.decode(body)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError) as error:
        raise CorruptFile(f"{directory.name} has no valid {METADATA_FILE}") from error

"""Names of an archive's files. They contain the offsets, so that nobody has to open a file.

    topic=orders/partition=3/00000000000000000000-00000000000000099999.parquet
    _manifests/0001/00000000000000000012.json

Both ends of a range are inclusive. Directories are named as in Hive, so that every reader of
Parquet finds the columns topic and partition. All of them ignore names that begin with `_` or `.`.
Pure: paths are text, relative to the archive's directory.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from leadline_client.wire import TopicPartition

MANIFESTS = "_manifests"
DIGITS = 20
RUN_DIGITS = 4

_DATA = re.compile(
    r"topic=([A-Za-z0-9._-]+)/partition=(0|[1-9]\d*)/"
    rf"(\d{{{DIGITS}}})-(\d{{{DIGITS}}})\.parquet"
)
_MANIFEST = re.compile(rf"{MANIFESTS}/(\d{{{RUN_DIGITS},}})/(\d{{{DIGITS}}})\.json")
_TEMPORARY = re.compile(r"(?:.*/)?\.[^/]+\.tmp")


class DataName(NamedTuple):
    """The name of a data file: a partition's records from offset `first` to `last`."""

    topic: str
    partition: int
    first: int
    last: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition whose records the file holds."""
        return TopicPartition(self.topic, self.partition)

    @property
    def path(self) -> str:
        """The file's path within the archive."""
        folder = partition_folder(self.topic, self.partition)
        return f"{folder}/{self.first:0{DIGITS}}-{self.last:0{DIGITS}}.parquet"

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.last + 1


class ManifestName(NamedTuple):
    """The name of a manifest: its run (from 1), and its number within the run."""

    run: int
    number: int

    @property
    def path(self) -> str:
        """The manifest's path within the archive."""
        return f"{run_folder(self.run)}/{self.number:0{DIGITS}}.json"


def topic_folder(topic: str) -> str:
    """Return the directory of a topic."""
    return f"topic={topic}"


def partition_folder(topic: str, partition: int) -> str:
    """Return the directory of a partition."""
    return f"{topic_folder(topic)}/partition={partition}"


def run_folder(run: int) -> str:
    """Return the directory of a run's manifests."""
    return f"{MANIFESTS}/{run:0{RUN_DIGITS}}"


def data_name(path: str) -> DataName | None:
    """Parse the path of a data file; None for any other path, and for reversed ends."""
    match = _DATA.fullmatch(path)
    if match is None:
        return None
    topic, *numbers = match.groups()
    name = DataName(topic, *map(int, numbers))
    return name if name.first <= name.last else None


def manifest_name(path: str) -> ManifestName | None:
    """Parse the path of a manifest; None for any other path."""
    match = _MANIFEST.fullmatch(path)
    return ManifestName(*map(int, match.groups())) if match else None


def temporary_path(folder: str, mark: str) -> str:
    """Return the path at which a file is written until it is complete; `mark` makes it unique."""
    return f"{folder}/.{mark}.tmp" if folder else f".{mark}.tmp"


def is_temporary(path: str) -> bool:
    """Return whether a file is incomplete: its writer died, or still writes."""
    return _TEMPORARY.fullmatch(path) is not None

"""Deletions of replicas, which go on when they are asked for again if the disk fails (rule R12)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from leadline_broker.adapters.log.checked_files import fsync_path
from leadline_broker.adapters.log.errors import STORAGE_ERRORS
from leadline_broker.adapters.log.inventory import LogInventory
from leadline_broker.adapters.log.set_aside import DELETE_SUFFIX, free_name
from leadline_broker.domain.state import ReplicaKey


@dataclass(slots=True)
class _Deletion:
    directory: Path
    own_id: str | None
    renamed: list[Path] = field(default_factory=list)


class Deletions:
    """The deletions within one log directory that have begun and are not certain yet.

    A replica leaves the inventory, then its directory is renamed. If either fails, the directory
    may still be there after a crash, under its name.
    """

    def __init__(self, root: Path, inventory: LogInventory) -> None:
        self._root = root
        self._inventory = inventory
        self._left: dict[ReplicaKey, _Deletion] = {}

    @property
    def unfinished(self) -> Set[ReplicaKey]:
        """The replicas whose deletions have failed so far."""
        return self._left.keys()

    def begin(self, key: ReplicaKey, directory: Path, own_id: str | None = None) -> None:
        """Note that the directory of a replica is to go; its log is closed.

        `own_id` is the replica's directory id, if it has one that the inventory does not know.
        """
        self._left[key] = _Deletion(directory, own_id)

    def go_on(self, key: ReplicaKey) -> Callable[[], None]:
        """Do what is left of a deletion; return the removal of its files, for any thread.

        Raises:
            StorageFailed: it is not certain yet that the log does not return.

        """
        deletion = self._left[key]
        with STORAGE_ERRORS:
            self._inventory.remove(key, deletion.own_id)
            if deletion.directory.exists():
                target = free_name(deletion.directory, key[0], DELETE_SUFFIX)
                deletion.directory.rename(target)
                deletion.renamed.append(target)
            if deletion.renamed:
                fsync_path(self._root)
        del self._left[key]
        return partial(_remove, deletion.renamed)

    def finish(self, directory: Path) -> None:
        """Finish what deletes this directory: its name is wanted again.

        The files are removed when the logs are opened the next time.

        Raises:
            StorageFailed: it is not certain yet that the log does not return.

        """
        for key, deletion in list(self._left.items()):
            if deletion.directory == directory:
                self.go_on(key)


def remove_deleted(root: Path) -> None:
    """Remove what is left of deleted replicas. What the disk refuses is left for the next time.

    Raises:
        OSError: the directory cannot be read.

    """
    _remove([path for path in root.iterdir() if path.name.endswith(DELETE_SUFFIX)])


def _remove(directories: list[Path]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)

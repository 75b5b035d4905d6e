"""The strays of a log directory: replicas that the controller does not know (rule R12)."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from leadline_broker.adapters.log.checked_files import fsync_path
from leadline_broker.adapters.log.deletions import remove_deleted
from leadline_broker.adapters.log.errors import STORAGE_ERRORS, storage_error
from leadline_broker.adapters.log.set_aside import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    free_name,
    latest_stray,
)
from leadline_broker.domain.state import ReplicaKey
from leadline_client.errors import StorageFailed

_MS = 1_000_000


class Strays:
    """The directories within one log directory that are kept for a grace period.

    Their modification time tells when they were set aside. Methods raise StorageFailed if the disk
    refuses something; then what has the name of a replica is whole.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._setting_aside = threading.Lock()

    def found(self) -> dict[str, int]:
        """Return the names of the strays and when each became one (Unix ms)."""
        found = {}
        for path in sorted(self._root.iterdir()):
            if path.name.endswith(STRAY_SUFFIX):
                with contextlib.suppress(FileNotFoundError):  # `restore` has just renamed it.
                    found[path.name] = path.stat().st_mtime_ns // _MS
        return found

    def add(self, path: Path, topic_id: str) -> None:
        """Rename the directory of a replica to a stray; its grace period starts now."""
        with self._setting_aside:
            with STORAGE_ERRORS:
                os.utime(path)
            self._rename(path, free_name(path, topic_id, STRAY_SUFFIX))

    def restore(self, path: Path, key: ReplicaKey) -> None:
        """Rename the latest stray of a replica, if any, back to the replica's name."""
        with contextlib.suppress(FileNotFoundError):  # Its grace period ended just now.
            stray = latest_stray(self._root, key)
            if stray is not None:
                self._rename(stray, path)

    def purge(self, now_ms: int, grace_ms: int) -> list[str]:
        """Delete the strays older than `stray.grace.ms`; return their names. Thread-safe.

        What could not be removed of replicas that were deleted earlier is removed, too.
        """
        with STORAGE_ERRORS:
            old = {one: since for one, since in self.found().items() if since <= now_ms - grace_ms}
            purged = [name for name, since in old.items() if self._rename_expired(name, since)]
            remove_deleted(self._root)
        return purged

    def _rename_expired(self, name: str, since: int) -> bool:
        """Rename a stray for its removal; return False if it is not that one any more."""
        # `restore` may have just renamed it, and its replica may be a stray of this name again.
        stray = self._root / name
        with self._setting_aside, contextlib.suppress(OSError, StorageFailed):
            if stray.stat().st_mtime_ns // _MS == since:
                renamed = self._root / (name.removesuffix(STRAY_SUFFIX) + DELETE_SUFFIX)
                self._rename(stray, renamed)
                return True
        return False

    def _rename(self, path: Path, target: Path) -> None:
        """Rename durably; raise StorageFailed if that fails."""
        try:
            path.rename(target)
            fsync_path(self._root)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(error) from error

"""Staged uploads on disk: a file for each upload, in a directory for each partition.

The path is ``staged/<topic id>-<partition>/<id>`` in the log directory. Nothing is synced:
the client stages again what a crash loses.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from leadline_broker.adapters.log.checked_files import TEMPORARY_SUFFIX
from leadline_broker.adapters.log.errors import storage_error
from leadline_broker.adapters.log.layout import STAGED_DIRECTORY
from leadline_broker.domain.state import ReplicaKey
from leadline_client.batch_header import Buffer

_MS: Final = 1_000_000


class StagedFiles:
    """Implements `runtime.staged_store.StagedStore`; thread-safe for different uploads."""

    def __init__(self, root: Path) -> None:
        self._root = root / STAGED_DIRECTORY

    def found(self) -> list[tuple[ReplicaKey, str, int, int]]:
        """Return (partition, id, bytes, time of writing in Unix ms) of each upload on disk.

        What somebody else has put there, such as a copy of a directory, is left alone.
        """
        uploads = []
        for directory in sorted(self._root.glob("*-*")):
            topic_id, _, number = directory.name.rpartition("-")
            if not (number.isascii() and number.isdecimal() and directory.is_dir()):
                continue
            with suppress(OSError):
                directory.rmdir()  # Only if it is empty.
                continue
            for path in sorted(directory.iterdir()):
                if path.name.endswith(TEMPORARY_SUFFIX):
                    path.unlink(missing_ok=True)
                    continue
                stat = path.stat()
                written_ms = stat.st_mtime_ns // _MS
                uploads.append(((topic_id, int(number)), path.name, stat.st_size, written_ms))
        return uploads

    def write(self, key: ReplicaKey, staged_id: str, data: Buffer) -> None:
        """Write an upload, completely or not at all."""
        path = self._path(key, staged_id)
        partial = path.with_name(path.name + TEMPORARY_SUFFIX)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(data)
            partial.rename(path)
        except OSError as error:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise storage_error(error) from error

    def read(self, key: ReplicaKey, staged_id: str) -> bytes | None:
        """Return an upload, or None if it is gone."""
        try:
            return self._path(key, staged_id).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error) from error

    def remove(self, key: ReplicaKey, staged_ids: Iterable[str]) -> None:
        """Delete uploads; the next start finds those that could not be, and empty directories."""
        for staged_id in staged_ids:
            with suppress(OSError):
                self._path(key, staged_id).unlink(missing_ok=True)

    def _path(self, key: ReplicaKey, staged_id: str) -> Path:
        topic_id, partition = key
        return self._root / f"{topic_id}-{partition}" / staged_id

"""What is staged, on disk: a file for each upload, in a directory for each partition.

Under the root of the logs, beside the partitions: ``staged/<topic id>-<partition>/<id>``.
Nothing is synced: what a crash takes is staged again by its owner.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from leadline_broker.adapters.log.durable import TEMPORARY_SUFFIX
from leadline_broker.adapters.log.layout import STAGED_DIRECTORY
from leadline_broker.adapters.log.syncing import storage_error
from leadline_client.batches import Buffer

_Key = tuple[str, int]
_MS: Final = 1_000_000


class StagedFiles:
    """See `runtime.ports.StagedStore`. Thread-safe: no two calls are about one file."""

    def __init__(self, root: Path) -> None:
        self._root = root / STAGED_DIRECTORY

    def found(self) -> list[tuple[_Key, str, int, int]]:
        """Return (partition, id, bytes, when it was written in Unix ms) of each upload on disk."""
        uploads = []
        for directory in sorted(self._root.glob("*-*")):
            topic_id, _, number = directory.name.rpartition("-")
            with suppress(OSError):
                directory.rmdir()  # Only if it is empty.
                continue
            for path in sorted(directory.iterdir()):
                if path.name.endswith(TEMPORARY_SUFFIX):
                    path.unlink(missing_ok=True)
                    continue
                facts = path.stat()
                written_ms = facts.st_mtime_ns // _MS
                uploads.append(((topic_id, int(number)), path.name, facts.st_size, written_ms))
        return uploads

    def write(self, key: _Key, staged_id: str, data: Buffer) -> None:
        """Keep an upload; it is there as a whole or not at all.

        Raises:
            StorageFailed: the disk refuses; nothing is kept.

        """
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

    def read(self, key: _Key, staged_id: str) -> bytes | None:
        """Return an upload, None where it is gone.

        Raises:
            StorageFailed: the disk refuses.

        """
        try:
            return self._path(key, staged_id).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error) from error

    def remove(self, key: _Key, staged_ids: Iterable[str]) -> None:
        """Delete uploads; what cannot be deleted is found again at the next start."""
        for staged_id in staged_ids:
            with suppress(OSError):
                self._path(key, staged_id).unlink(missing_ok=True)

    def remove_all(self, key: _Key) -> None:
        """Delete everything that is staged for a partition."""
        shutil.rmtree(self._path(key, ""), ignore_errors=True)

    def _path(self, key: _Key, staged_id: str) -> Path:
        topic_id, partition = key
        return self._root / f"{topic_id}-{partition}" / staged_id

"""Which replicas have a log in a log directory, and which of their logs were lost (rule R17).

A log is created at the first append, so a missing directory alone does not tell a lost log from one
that never held a record. The inventory does: it has one small file for each log, in a directory of
its own, which is durable before a record of the log counts as stored.

A replica whose log was lost gets a directory id of its own: as far as its memberships are
concerned, it is on another disk from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from leadline_broker.adapters.log.checked_files import (
    TEMPORARY_SUFFIX,
    fsync_path,
    read_checked,
    write_checked,
)
from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.domain.state import ReplicaKey

INVENTORY_DIRECTORY: Final = "inventory"
"""Cannot collide with a partition's directory, whose name ends in a number."""
_KIND: Final = "log-entry"


class InventoryEntry(msgspec.Struct, frozen=True):
    """The log of one replica.

    `directory_id` is empty where it is that of the whole log directory. `written` is false from
    the loss of the log until there is one again.
    """

    directory_id: str = ""
    written: bool = True


_entry = msgspec.json.Decoder(InventoryEntry)


class LogInventory:
    """The entries of one log directory, by topic id and partition. Thread-safe.

    Methods that write raise OSError.
    """

    def __init__(self, root: Path) -> None:
        """Read the entries. A replica with a damaged one gets an id of its own.

        Whether its log was lost before is not known.
        """
        self._path = root / INVENTORY_DIRECTORY
        self._lock = threading.Lock()
        self._entries = dict(self._read()) if self._path.exists() else {}

    def _read(self) -> Iterator[tuple[ReplicaKey, InventoryEntry]]:
        for path in sorted(self._path.iterdir()):
            topic_id, _, number = path.name.rpartition("-")
            if path.name.endswith(TEMPORARY_SUFFIX) or not number.isdecimal():
                path.unlink()
                continue
            try:
                body = read_checked(path, _KIND)
                yield (topic_id, int(number)), _entry.decode(body)
            except (CorruptFile, msgspec.MsgspecError):
                entry = InventoryEntry(uuid4().hex)
                write_checked(path, _KIND, msgspec.json.encode(entry))
                yield (topic_id, int(number)), entry

    def lost_in(self, found: Collection[ReplicaKey]) -> list[ReplicaKey]:
        """Return the replicas whose logs should exist but are not among the `found` ones."""
        return [key for key, entry in self._entries.items() if entry.written and key not in found]

    def own_directory_ids(self) -> dict[ReplicaKey, str]:
        """Return the ids of the replicas that have one of their own."""
        entries = self._entries.copy().items()
        return {key: entry.directory_id for key, entry in entries if entry.directory_id}

    def add(self, keys: Iterable[ReplicaKey]) -> None:
        """Note that these replicas have logs; durable when this returns."""
        with self._lock:
            entries = ((key, self._entries.get(key, InventoryEntry("", False))) for key in keys)
            self._write(
                {
                    key: msgspec.structs.replace(entry, written=True)
                    for key, entry in entries
                    if not entry.written
                }
            )

    def lose(self, keys: Iterable[ReplicaKey], directory_id: str, *, written: bool) -> None:
        """Give replicas an id of their own; `written` if some of the log is left."""
        with self._lock:
            self._write(dict.fromkeys(keys, InventoryEntry(directory_id, written)))

    def belong_to_root(self) -> None:
        """Forget all ids: the whole log directory has a new one."""
        with self._lock:
            owned = [key for key, entry in self._entries.items() if entry.directory_id]
            self._write(
                {key: msgspec.structs.replace(self._entries[key], directory_id="") for key in owned}
            )

    def remove(self, key: ReplicaKey, own_id: str | None = None) -> None:
        """Forget a replica that is deleted or set aside; durable when this returns.

        `own_id` is the replica's directory id, if it has one that no entry tells.

        An id of its own is registered until the next start. A log that is recreated before that
        keeps the id, because memberships that it gains are bound to it.
        """
        with self._lock:
            entry = self._entries.get(key)
            if own_id is not None:
                entry = InventoryEntry(own_id, written=False)
            if entry is None:
                return
            # If the disk fails, the file may be gone or not: a log must write it again.
            self._entries[key] = InventoryEntry(entry.directory_id, written=False)
            self._file(key).unlink(missing_ok=True)
            fsync_path(self._path)
            if not entry.directory_id:
                del self._entries[key]

    def keep_only(self, keys: Collection[ReplicaKey]) -> None:
        """Forget lost logs of replicas other than `keys`: they are assigned here no more."""
        for key, entry in self._entries.copy().items():
            if not entry.written and key not in keys and self._file(key).exists():
                self.remove(key)

    def _write(self, changed: dict[ReplicaKey, InventoryEntry]) -> None:
        if changed and not self._path.exists():
            self._path.mkdir()
            fsync_path(self._path.parent)
        for key, entry in changed.items():
            write_checked(self._file(key), _KIND, msgspec.json.encode(entry))
        if changed:
            fsync_path(self._path)
            self._entries.update(changed)

    def _file(self, key: ReplicaKey) -> Path:
        topic_id, partition = key
        return self._path / f"{topic_id}-{partition}"

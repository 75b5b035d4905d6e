"""Which log directory this is, and how old: its id and its version (rule R17)."""

from __future__ import annotations

from pathlib import Path

from leadline_broker.adapters.log import root_files
from leadline_broker.adapters.log.errors import STORAGE_ERRORS
from leadline_broker.adapters.log.inventory import LogInventory


class DirectoryIdentity:
    """The id and the version of one log directory.

    Attributes:
        directory_id: made with the directory. Memberships are bound to it.
        version: rises while records are written. A copy keeps the version that it was made at.
        inventory: its logs, and the replicas that have ids of their own.

    """

    def __init__(self, root: Path, cluster_id: str, broker_id: int) -> None:
        """Claim the directory, whose lock the caller holds.

        Raises:
            WrongDirectory: it belongs to another cluster or broker.
            CorruptFile: its version cannot be read.

        """
        self._root = root
        self.directory_id, is_new = root_files.claim(root, cluster_id, broker_id)
        self.inventory = LogInventory(root)
        if is_new:
            self.inventory.belong_to_root()
        self.version = root_files.read_directory_version(root)

    def persist_version(self, version: int) -> None:
        """Store a higher version; durable when this returns."""
        with STORAGE_ERRORS:
            root_files.write_directory_version(self._root, version)
        self.version = version

    def renew_id(self) -> None:
        """Give the directory another id, with which no membership was gained; durably.

        Replicas that had an id of their own belong to the directory first: a membership bound to
        such an id would count in a copy, too.
        """
        with STORAGE_ERRORS:
            self.inventory.belong_to_root()
            self.directory_id = root_files.give_new_id(self._root)

"""The staged uploads on disk, as the runtime uses them; an adapter implements the Protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from leadline_broker.domain.state import ReplicaKey
from leadline_client.batch_header import Buffer


class StagedStore(Protocol):
    """The staged uploads on disk; thread-safe.

    Methods may raise StorageFailed; a failed write stores nothing.
    """

    def found(self) -> list[tuple[ReplicaKey, str, int, int]]:
        """Return (partition, id, bytes, time of writing in Unix ms) of each upload."""

    def write(self, key: ReplicaKey, staged_id: str, data: Buffer) -> None:
        """Write an upload, completely or not at all."""

    def read(self, key: ReplicaKey, staged_id: str) -> bytes | None:
        """Return an upload, or None if it is gone."""

    def remove(self, key: ReplicaKey, staged_ids: Iterable[str]) -> None:
        """Delete uploads."""

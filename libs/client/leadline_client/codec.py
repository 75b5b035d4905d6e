"""The codec of record batches: the compiled one where it is installed, or else the plain one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Final, Protocol, TypeVar, cast

from leadline_client.extras import MissingExtra, installed
from leadline_client.wire import SupportsRecord

T = TypeVar("T")


class SupportsPlace(Protocol):
    """A record as far as its place in the log is concerned; the time is in Unix ms."""

    @property
    def offset(self) -> int:
        """The offset."""

    @property
    def timestamp(self) -> int:
        """The timestamp."""


class SupportsStored(SupportsPlace, Protocol):
    """A whole record as a codec reads it."""

    @property
    def key(self) -> bytes | None:
        """The key, if any."""

    @property
    def value(self) -> bytes | None:
        """The value; None is a tombstone."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Headers in order."""


class Codec(Protocol):
    """What both codecs offer."""

    def crc32c(self, data: bytes | memoryview) -> int:
        """Return the CRC32C of `data`."""

    def encode_batch(
        self,
        records: Sequence[SupportsRecord],
        *,
        now_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        compression: int,
    ) -> bytes:
        """Build one batch of `records` (at least one), with offsets from 0."""

    def record_chunks(
        self, batch: bytes | memoryview, limit: int, read: Callable[[SupportsStored], T]
    ) -> Iterator[list[T]]:
        """Yield in lists what `read` returns for each record of one batch, with offsets from 0.

        Raises DecompressedTooLarge beyond `limit` bytes, and UnreadableRecords.
        """

    def decode_chunks(
        self,
        batch: bytes | memoryview,
        limit: int,
        read: Callable[[Iterable[SupportsStored]], list[T]],
    ) -> Iterator[list[T]]:
        """Yield what `read` makes of some records of one batch, and then of the next ones.

        For errors see `record_chunks`.
        """


COMPILED: Final = installed("aiokafka", "cramjam", "google_crc32c")
"""Whether the compiled codec is installed, which knows every compression."""

CODEC: Final = cast(
    "Codec", import_module(f"leadline_client.{'compiled' if COMPILED else 'plain'}_codec")
)


def require_compression(name: str) -> None:
    """Raise MissingExtra if batches cannot be compressed so in this installation."""
    if name not in {"none", "gzip"} and not COMPILED:
        raise MissingExtra("records", f"batches with the compression {name}")

"""What a codec raises for records that it cannot decode."""

from __future__ import annotations

from typing import Final

MOST_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""The largest content of a compressed batch that a reader decodes. No broker accepts a larger one,
as `message.max.decompressed.bytes` cannot be higher."""

MOST_HEADERS: Final = 1_000
"""How many headers a record may have. A codec makes an object of each before it returns the record,
and an empty one takes two bytes, or next to none where they are compressed."""


class UnreadableRecords(ValueError):
    """The records of a batch are malformed, or do not decompress."""


class DecompressedTooLarge(UnreadableRecords):
    """The records decompress to more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the records decompress to more than {limit} bytes")
        self.limit = limit


class TooManyHeaders(UnreadableRecords):
    """A record has more than `MOST_HEADERS` headers."""

    def __init__(self) -> None:
        super().__init__(f"a record has more than {MOST_HEADERS} headers")

"""What a reader wants of records: which columns, in which types and batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from leadline_client.columnar.checksum import Checksum, crc32c
from leadline_client.columnar.headers import NameErrors

MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 3 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a partition's records, and the sizes of Arrow batches.

    `schema` names columns of `columns.py`, in any order; a timestamp is in `ms` or `us`, and
    headers are any list of structs of a text and bytes. An Arrow batch has no more than `most_rows`
    and about `most_bytes`; a single record may be larger. `crc` checks batches.
    """

    schema: pa.Schema
    topic: str
    partition: int
    crc: Checksum = crc32c
    name_errors: NameErrors = "strict"
    most_rows: int = MOST_ROWS
    most_bytes: int = MOST_BYTES

"""The cluster as tables for programs: one JSON row per line.

`GET /v1/export/{table}` sends them. The table `audit` has the history in ranges of ids, with the
rows of `audit_export.py`. The other tables have the current state: the rows of one response are
one snapshot, and each row contains its metadata version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec

EXPORT = "/v1/export"
AUDIT_TABLE = f"{EXPORT}/audit"
VERSION_HEADER = "Leadline-Metadata-Version"
"""Header of an exported table: the metadata version of its rows."""
MAX_ENTRIES = 10_000
"""The most audit entries in one response."""

StateTable: TypeAlias = Literal["partitions", "brokers", "reassignments"]
"""The tables of the current state on a controller; a coordinator has `groups`."""

Row: TypeAlias = msgspec.Struct | Mapping[str, Any]

_CHUNK = 1_000


class ExportedPartition(msgspec.Struct, frozen=True, gc=False):
    """A partition. `leader` is -1 for none; `leader_epoch` is -1 if there never was one."""

    metadata_version: int
    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    eligible: tuple[int, ...]
    min_insync_replicas: int


async def encode_rows(rows: Iterable[Row]) -> AsyncIterator[bytes]:
    """Yield rows as lines of JSON in chunks, and give other tasks a turn between them."""
    encoder = msgspec.json.Encoder()
    left = iter(rows)
    while chunk := list(islice(left, _CHUNK)):
        yield encoder.encode_lines(chunk)
        await asyncio.sleep(0)

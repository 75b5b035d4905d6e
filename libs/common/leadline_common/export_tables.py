"""The cluster as tables, for programs: one row on each line, as JSON.

`GET /v1/export/{table}` sends them. The table `audit` is the past, in ranges of ids; its
rows are those of `audit_export.py`. The others are the present: the rows of one answer
are one snapshot, and each says of which metadata version it is.
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
"""Header of an exported table: the metadata version that its rows are of."""
MAX_ENTRIES = 10_000
"""Audit entries in one answer, at most."""

StateTable: TypeAlias = Literal["partitions", "brokers", "reassignments"]
"""The tables of the present that a controller has; a coordinator has `groups`."""

Row: TypeAlias = msgspec.Struct | Mapping[str, Any]

_CHUNK = 1_000


class PartitionRow(msgspec.Struct, frozen=True, gc=False):
    """A partition. `leader` -1: none; `leader_epoch` -1: there never was one."""

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
    """Yield rows as lines of JSON, some at a time, and let others have their turn in between."""
    encoder = msgspec.json.Encoder()
    left = iter(rows)
    while chunk := list(islice(left, _CHUNK)):
        yield encoder.encode_lines(chunk)
        await asyncio.sleep(0)

"""Small archives for tests: made-up records, written by the archive's own writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import Manifest, ManifestEntry
from leadline_spark.archive.naming import ManifestName
from leadline_spark.archive.parquet import SCHEMA, FileWriter
from leadline_spark.archive.storage import ArchiveStore, write

TOPIC_ID = "ab" * 16


def records(offsets: Iterable[int], topic: str = "t", partition: int = 0) -> pa.RecordBatch:
    """Return records whose content follows from where they are."""
    rows = [
        {
            "offset": offset,
            "timestamp": (1_700_000_000_000 + offset * 7) * 1_000,
            "timestampType": 0,
            "leaderEpoch": offset // 100,
            "key": f"{topic}-{partition}".encode() if offset % 3 else None,
            "value": bytes([offset % 256]) * (offset % 50) if offset % 5 else None,
            "headers": [{"key": "h", "value": b"%d" % offset}] if offset % 4 == 0 else None,
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def data_file(
    store: ArchiveStore, first: int, last: int, partition: int = 0, cuts: Sequence[int] = ()
) -> ManifestEntry:
    """Write the file of `first` to `last`, handed over in pieces that end at `cuts`."""
    writer = FileWriter(store, "t", partition, TOPIC_ID)
    edges = [first, *(cut for cut in sorted(cuts) if first < cut <= last), last + 1]
    try:
        for begin, end in pairwise(edges):
            writer.add(records(range(begin, end), "t", partition))
        return writer.finish()
    finally:
        writer.discard()


def entry(
    first: int, last: int, partition: int = 0, topic: str = "t", **facts: Any
) -> ManifestEntry:
    """Return the entry of a file that nobody wrote."""
    path = f"topic={topic}/partition={partition}/{first:020}-{last:020}.parquet"
    plain = ManifestEntry(path, last - first + 1, 1, "0" * 64, TOPIC_ID, 0, 0, 0, 0)
    return replace(plain, **facts)


def archive(
    store: ArchiveStore, *batches: Sequence[ManifestEntry], run: int = 1
) -> Iterator[Manifest]:
    """Write the manifests of these batches, one after the other."""
    before = Manifest((), {}, {})
    for number, batch in enumerate(batches):
        before = manifests.next_manifest(batch, before)
        write(store, ManifestName(run, number).path, manifests.encode(before))
        yield before

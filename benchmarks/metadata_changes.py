"""The metadata after the failure of one broker: everything, against what has changed.

Run `python benchmarks/metadata_changes.py [--partitions 10000]`. A broker's metadata gets what a
controller sends, and a client reads it, without a network: three replicas, spread over the brokers;
one of these fails, and every partition that it led or followed changes. For several shapes of
clusters: the bytes of the answers, the time to encode them and the longest time of these that the
loop is blocked, and the time of the client to merge them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from leadline_broker.api.cluster import read_metadata
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_client.cache import MetadataCache
from leadline_client.whole_metadata import WholeMetadata
from leadline_common.api.metadata import MetadataQuery, state_known_to_caller
from leadline_common.http.caching import Document
from leadline_common.rpc import (
    BrokerRow,
    ControllerRow,
    PartitionRow,
    TopicRows,
    UpdateMetadataRequest,
)

FAILED: Final = 1
SHAPES: Final = ((5, 100), (50, 100), (50, 1), (5, 1))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    partitions = parser.parse_args().partitions
    for brokers, per_topic in SHAPES:
        print(f"{partitions:,} partitions, {per_topic} per topic, {brokers} brokers", flush=True)
        asyncio.run(_measure(partitions, per_topic, brokers))


def rows(topic: int, per_topic: int, brokers: int, *, failed: bool) -> TopicRows:
    """Return a topic before or after the failure."""
    found = []
    for number in range(per_topic):
        first = topic * per_topic + number
        replicas = tuple(1 + (first + place * (1 + first % 3)) % brokers for place in range(3))
        lost = failed and FAILED in replicas
        isr = tuple(one for one in replicas if not (lost and one == FAILED))
        found.append(PartitionRow(number, isr[0], 4 + lost, isr, replicas, 7 + lost))
    return TopicRows(f"topic-{topic:06}", f"{topic:032x}", {}, found)


async def _measure(partitions: int, per_topic: int, brokers: int) -> None:
    count = partitions // per_topic
    before = [rows(topic, per_topic, brokers, failed=False) for topic in range(count)]
    after = [rows(topic, per_topic, brokers, failed=True) for topic in range(count)]
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    cache, whole = ClusterMetadataCache(), WholeMetadata(MetadataCache())
    _apply(cache, before, brokers, full=True)
    first = await _read(cache, "")
    whole.apply(json.loads(first.body), first.etag(), None)
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    _apply(cache, changed, brokers, full=False)
    print(f"  applied in {1000 * (time.perf_counter() - start):.1f} ms", flush=True)
    known = whole.known
    assert known is not None
    for what, etag in (("changes", known.etag), ("everything", "")):
        answer, took_ms, blocked_ms = await _timed(partial(_read, cache, etag))
        again_ms = (await _timed(partial(_read, cache, etag)))[1]
        start = time.perf_counter()
        merged = WholeMetadata(MetadataCache()) if not etag else whole
        merged.apply(json.loads(answer.body), answer.etag(), known if etag else None)
        client_ms = 1000 * (time.perf_counter() - start)
        packed = len(gzip.compress(answer.body, compresslevel=1))
        print(
            f"  {what:10} {len(answer.body):>10,} bytes, gzip {packed:>9,}; encoded in "
            f"{took_ms:6.1f} ms (blocking {blocked_ms:5.1f}), again {again_ms:5.1f}; "
            f"merged by the client in {client_ms:6.1f} ms",
            flush=True,
        )


def _apply(
    cache: ClusterMetadataCache, topics: list[TopicRows], brokers: int, *, full: bool
) -> None:
    cache.apply(
        UpdateMetadataRequest(
            "c",
            ControllerRow(1, "http://127.0.0.1:8081", 3),
            2,
            1,
            10 if full else 11,
            0 if full else 10,
            full,
            "cause",
            [
                BrokerRow(number, f"http://127.0.0.1:{9000 + number}", None, 1)
                for number in range(1, brokers + 1)
                if full or number != FAILED
            ],
            topics,
        )
    )


async def _read(cache: ClusterMetadataCache, etag: str) -> Document:
    return await read_metadata(cache, MetadataQuery(None, 0, None, state_known_to_caller(etag)))


async def _timed(read: Callable[[], Awaitable[Document]]) -> tuple[Document, float, float]:
    """Return the answer, how long it took, and for how long at most the loop was blocked, in ms."""
    gc.collect()
    gc.freeze()  # as the services do
    done = asyncio.Event()
    longest = [0.0]

    async def watch() -> None:
        last = time.perf_counter()
        while not done.is_set():
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest[0] = max(longest[0], now - last)
            last = now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    start = time.perf_counter()
    answer = await read()
    took = time.perf_counter() - start
    await asyncio.sleep(0)
    done.set()
    await watching
    return answer, 1000 * took, 1000 * longest[0]


if __name__ == "__main__":
    main()

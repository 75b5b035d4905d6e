"""Batches and logs for the tests of the broker's log."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.kernel_fsyncs import Fsyncs, OnDone
from leadline_broker.adapters.log.layout import LogConfig, PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.runtime.serving.time_lookup import record_in
from leadline_client.batch_header import header_at, parse_headers
from leadline_client.batches import encode, stamp
from leadline_client.wire import Record

IDENTITY = PartitionIdentity("orders", "0b2f0e2c-6f5e-4c7c-9a58-0f6a3c1d2e4f", 3)


def batch(
    base_offset: int,
    *values: bytes,
    epoch: int = 0,
    timestamp: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Build a stamped batch with one record per value, `timestamp` ms for the first, then +1."""
    records = [
        Record(0, timestamp + number, None, value, ())
        for number, value in enumerate(values or (b"v",))
    ]
    producer_id, producer_epoch, base_sequence = producer
    content = bytearray(
        encode(
            records,
            now_ms=0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
    )
    stamp(content, header_at(content), base_offset, epoch)
    return bytes(content)


def open_log(
    root: Path,
    *,
    clean: bool = False,
    segment_bytes: int = 1 << 20,
    fsyncs: Fsyncs | None = None,
) -> PartitionLog:
    """Open the log of `IDENTITY`; many small index entries, so that they matter."""
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=256)
    return PartitionLog(root, IDENTITY, config, FileCache(16, fsyncs), clean=clean)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing within the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class StartedFsync:
    """An fsync that ends when a test or somebody who waits says so."""

    def __init__(self, fd: int, on_done: OnDone) -> None:
        self.ended = False
        self._fd, self._on_done = fd, on_done
        self._told = threading.Event()

    def wait(self) -> None:
        """End it successfully, if it has not ended; return when it was told of."""
        if not self.ended:
            os.fdatasync(self._fd)
            self.end(None)
        assert self._told.wait(30)

    def end(self, error: OSError | None) -> None:
        """End it with this outcome."""
        self.ended = True
        try:
            self._on_done(error)
        finally:
            self._told.set()


class LateFsyncs:
    """Implements `Fsyncs`: each ends when the test says so, or somebody waits for it."""

    def __init__(self) -> None:
        self.started: list[StartedFsync] = []
        self.refuses = False
        self._next = asyncio.Event()

    async def started_some(self, count: int) -> None:
        """Return when so many have been started."""
        async with asyncio.timeout(30):
            while len(self.started) < count:
                self._next.clear()
                await self._next.wait()

    def start(self, fd: int, on_done: OnDone) -> StartedFsync | None:
        """Start one, unless this test wants a kernel that refuses."""
        if self.refuses:
            return None
        self.started.append(StartedFsync(fd, on_done))
        self._next.set()
        return self.started[-1]


def read_all(log: PartitionLog) -> list[bytes]:
    """Return every batch of the log, in order."""
    batches: list[bytes] = []
    offset = log.log_start_offset
    while data := log.read(offset, 4096, log.log_end_offset):
        for header in parse_headers(data):
            batches.append(data[header.position : header.position + header.size])
            offset = header.next_offset
    return batches


def first_at(log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after a time (ms)."""
    data = log.batch_for_timestamp(timestamp, 0)
    return record_in(data, timestamp) if data else None

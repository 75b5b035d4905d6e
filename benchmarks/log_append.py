"""Append to a partition's log, as a ratio to a bare pwrite of the same bytes.

Run ``python benchmarks/log_append.py [DIRECTORY]``. Each row is the median of
several rounds in MB/s; the bare writes and the log's take turns, so that a slow
moment of the disk hits both.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.layout import LogConfig, PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_client.batch_header import header_at
from leadline_client.batches import encode, stamp
from leadline_client.wire import Record

ROUND_BYTES = 64 << 20
ROUNDS = 7
CONFIG = LogConfig(segment_bytes=ROUND_BYTES * 2)


def batch(size: int) -> bytearray:
    """Build a batch of about `size` bytes with records of 100 bytes."""
    records = [Record(0, 1_000, None, os.urandom(100), ()) for _ in range(max(1, size // 108))]
    return bytearray(encode(records, now_ms=1_000))


def bare(directory: Path, content: bytearray, count: int, flush: bool) -> float:
    """Write the batches with pwrite alone; return seconds."""
    fd = os.open(directory / "bare", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    began = time.perf_counter()
    for number in range(count):
        os.pwrite(fd, content, number * len(content))
        if flush:
            os.fdatasync(fd)
    seconds = time.perf_counter() - began
    os.close(fd)
    (directory / "bare").unlink()
    return seconds


def logged(directory: Path, content: bytearray, count: int, flush: bool, checked: bool) -> float:
    """Stamp and append the batches to a log; return seconds."""
    log = PartitionLog(directory, PartitionIdentity("bench", "id", 0), CONFIG, FileCache())
    header = header_at(content)
    began = time.perf_counter()
    for _ in range(count):
        stamp(content, header, log.log_end_offset, 1)
        log.append(content, crc_checked=checked)
        if flush:
            log.flush()
    seconds = time.perf_counter() - began
    log.discard()
    shutil.rmtree(log.directory)
    return seconds


def appended(
    directory: Path, content: bytearray, count: int, flush: bool, checked: bool
) -> tuple[float, float]:
    """Return seconds to append the batches with pwrite alone, and to a log."""
    return (
        bare(directory, content, count, flush),
        logged(directory, content, count, flush, checked),
    )


def read_back(directory: Path, content: bytearray, count: int) -> tuple[float, float]:
    """Return seconds to read it all with pread alone, and from a log in fetches of 1 MiB."""
    log = PartitionLog(directory, PartitionIdentity("bench", "id", 0), CONFIG, FileCache())
    header = header_at(content)
    for _ in range(count):
        stamp(content, header, log.log_end_offset, 1)
        log.append(content, crc_checked=True)
    (path,) = log.directory.glob("*.log")
    fetch = max(len(content), (1 << 20) // len(content) * len(content))
    fd = os.open(path, os.O_RDONLY)
    began = time.perf_counter()
    position = 0
    while data := os.pread(fd, fetch, position):
        position += len(data)
    bare_seconds = time.perf_counter() - began
    os.close(fd)
    per_fetch = fetch // len(content) * (header.last_offset_delta + 1)
    began = time.perf_counter()
    sizes = [
        len(log.read(offset, fetch, log.log_end_offset))
        for offset in range(0, log.log_end_offset, per_fetch)
    ]
    seconds = time.perf_counter() - began
    assert sum(sizes) == log.size_bytes
    log.discard()
    shutil.rmtree(log.directory)
    return bare_seconds, seconds


def report(name: str, amount: int, measure: Callable[[], tuple[float, float]]) -> None:
    """Print one row: bare MB/s, log MB/s, their ratio."""
    rounds = [measure() for _ in range(ROUNDS)]
    bare_rate = amount / statistics.median(first for first, _ in rounds) / 1e6
    log_rate = amount / statistics.median(second for _, second in rounds) / 1e6
    print(f"{name:44} {bare_rate:8.0f} {log_rate:8.0f} {log_rate / bare_rate:6.2f}")


def main() -> None:
    """Measure every combination."""
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    print(f"load average {os.getloadavg()[0]:.2f}")
    print(f"{'':44} {'bare':>8} {'log':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory(dir=parent) as name:
        directory = Path(name)
        for size in (1 << 20, 64 << 10, 1 << 10):
            content = batch(size)
            count = min(ROUND_BYTES // len(content), 2_000)
            amount = count * len(content)
            for flush in (False, True):
                for checked in (True, False):
                    title = f"append {size >> 10} KiB{', flush each' * flush}"
                    report(
                        title + ", CRC checked here" * (not checked),
                        amount,
                        partial(appended, directory, content, count, flush, checked),
                    )
            report(
                f"read {size >> 10} KiB batches",
                amount,
                partial(read_back, directory, content, count),
            )


if __name__ == "__main__":
    main()

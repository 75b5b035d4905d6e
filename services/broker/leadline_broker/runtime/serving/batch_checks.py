"""Where producers' batches are checked: light ones at once, others in a worker thread.

The event loop never stands still for a check. A hop to a thread costs more than a short check, and
beside a busy loop it takes milliseconds. So a batch goes there only if it is large, has many
records, or turns out to be large when it is decompressed, or to take long, as many headers do.
A check takes the interpreter's lock, but gives it up after each chunk of records. What readers
have decoded runs beside the event loop as well, in a queue of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from leadline_client.batch_header import BatchHeader, Buffer, parse_headers
from leadline_client.errors import BodyTooLarge, CorruptBatch, InvalidTimestamp
from leadline_client.record_checks import Steps, check_batches, finish
from leadline_client.unreadable import MOST_DECOMPRESSED_BYTES

T = TypeVar("T")
SMALL_BYTES: Final = 64 * 1024
"""A batch that has no more, decompressed, is checked in less than 3 ms, unless it is hostile."""
LIGHT_BYTES: Final = 1024 * 1024 + 4096
LIGHT_RECORDS: Final = 4096
"""With no more bytes and records, batches that are not compressed are checked in less than 3 ms."""
_LOOP_MS: Final = 2
"""How long a check runs on the event loop, at most and one chunk of records more."""
_BATCH: Final = 16
"""How many records take as long as what each batch takes besides."""
_WORKERS: Final = 2
_READERS: Final = 1
_let_others_run: Final = partial(time.sleep, 0)


class BatchChecks:
    """Checks batches before they are accepted. Owned by the event loop.

    `max_decompressed_bytes()` returns the setting in force. At most two batches are decompressed
    at a time, which bounds the memory. `monotonic_ms()` is that of `Clock`.
    """

    def __init__(
        self, max_decompressed_bytes: Callable[[], int], monotonic_ms: Callable[[], int]
    ) -> None:
        self._monotonic_ms = monotonic_ms
        self._max_decompressed_bytes = max_decompressed_bytes
        self._workers = asyncio.Semaphore(_WORKERS)
        self._readers = asyncio.Semaphore(_READERS)

    def limit(self, max_batch_bytes: int) -> int:
        """Return how many bytes a batch may decompress to where it may have `max_batch_bytes`."""
        return min(MOST_DECOMPRESSED_BYTES, max(self._max_decompressed_bytes(), max_batch_bytes))

    async def check(self, data: Buffer, max_batch_bytes: int) -> list[BatchHeader]:
        """Check batches as a producer sent them and return their headers.

        Raises:
            CorruptBatch, BodyTooLarge, InvalidRequest: see `check_batches`.

        """
        limit = self.limit(max_batch_bytes)
        if len(data) <= SMALL_BYTES:
            try:
                most = min(SMALL_BYTES, limit)
                return await self._begin_here(check_batches(data, max_batch_bytes, most))
            except BodyTooLarge:
                if limit <= SMALL_BYTES:
                    raise
        steps = check_batches(data, max_batch_bytes, limit)
        return await (self._begin_here(steps) if _are_light(data) else self._in_worker(steps))

    async def _begin_here(self, steps: Steps) -> list[BatchHeader]:
        """Check batches at once, unless that turns out to take long."""
        until_ms = self._monotonic_ms() + _LOOP_MS
        while self._monotonic_ms() < until_ms:
            try:
                next(steps)
            except StopIteration as end:
                headers: list[BatchHeader] = end.value
                return headers
        return await self._in_worker(steps)

    async def _in_worker(self, steps: Steps) -> list[BatchHeader]:
        return await _in_thread(self._workers, partial(finish, steps, _let_others_run))

    async def read_in_worker(self, work: Callable[[], T]) -> T:
        """Run what decodes a stored batch in a thread that producers' checks do not wait for."""
        return await _in_thread(self._readers, work)


async def _in_thread(room: asyncio.Semaphore, work: Callable[[], T]) -> T:
    """Run `work` in a thread once there is room, which it takes until the thread has ended.

    A caller that leaves earlier does not stop the thread.
    """
    await room.acquire()
    running = asyncio.create_task(asyncio.to_thread(work))

    def ended(task: asyncio.Task[T]) -> None:
        room.release()
        if not task.cancelled():
            task.exception()  # The caller may have left.

    running.add_done_callback(ended)
    return await asyncio.shield(running)


def check_times(headers: Iterable[BatchHeader], latest_ms: int) -> None:
    """Raise InvalidTimestamp if a record of checked batches is of a time after `latest_ms`."""
    for header in headers:
        if header.max_timestamp > latest_ms:
            raise InvalidTimestamp(
                f"a record is of {header.max_timestamp} ms since 1970; at most {latest_ms} is "
                "allowed now: correct the time, or raise message.timestamp.after.max.ms",
                latest=latest_ms,
            )


def _are_light(data: Buffer) -> bool:
    """Tell whether the check of batches takes no longer than that of small ones."""
    if len(data) > LIGHT_BYTES:
        return False
    records = 0
    try:
        for header in parse_headers(data):
            records += _BATCH + abs(header.record_count)
            if records > LIGHT_RECORDS or header.compression:
                return False
    except CorruptBatch:
        return True  # The check finds it before it reads any record.
    return True

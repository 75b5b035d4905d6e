"""Lines of a file, a pipe or a terminal as they come, without holding up the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import BinaryIO, Final

_CHUNK: Final = 1 << 16


async def lines_of(file: BinaryIO) -> AsyncIterator[bytes]:
    """Give each line without its end; the last need not have one."""
    begun: list[bytes] = []
    async for chunk in _chunks(file):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for other in others:
            yield _without_end(begun)
            begun = [other]
    if any(begun):
        yield _without_end(begun)


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    """Give what there is, as soon as there is something."""
    try:
        descriptor = file.fileno()
        await _readable(descriptor)
    except OSError:
        # Bytes in memory, or a file on a disk: nobody ever waits for these.
        while chunk := file.read(_CHUNK):
            yield chunk
        return
    while chunk := os.read(descriptor, _CHUNK):
        yield chunk
        await _readable(descriptor)


async def _readable(descriptor: int) -> None:
    """Wait until there is something to read, or nobody who would write.

    Raises:
        OSError: it is of a kind that is never waited for.

    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _without_end(parts: list[bytes]) -> bytes:
    return b"".join(parts).rstrip(b"\r")

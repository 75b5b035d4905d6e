"""Lines of a file, a pipe or a terminal, as they arrive."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO, Final

_CHUNK: Final = 1 << 16


class UnreadableInput(Exception):
    """The input cannot be read, or not to its end; the lines before were read."""


async def lines_of(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield each line of a file, a pipe or a terminal as it arrives, without its end.

    Raises:
        UnreadableInput: it cannot be read further; a line without its end is not yielded then.

    """
    parts: list[bytes] = []
    async for chunk in _chunks(file):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            yield _without_end(parts)
            parts = [other]
    if any(parts):
        yield b"".join(parts)


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield bytes as soon as there are any."""
    try:
        descriptor = file.fileno()
        await _readable(descriptor)
    except OSError:
        # Bytes in memory, or a file on disk: a read never waits.
        while chunk := _read(lambda: file.read(_CHUNK)):
            yield chunk
        return
    while chunk := _read(lambda: os.read(descriptor, _CHUNK)):
        yield chunk
        await _readable(descriptor)


def _read(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except OSError as problem:
        raise UnreadableInput(problem.strerror) from problem


async def _readable(descriptor: int) -> None:
    """Wait until there are bytes to read, or the writer has closed the pipe.

    Raises:
        OSError: the event loop cannot wait for files of this kind.

    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _without_end(parts: list[bytes]) -> bytes:
    """Return a line that a line feed has ended; one carriage return before it is of the end."""
    return b"".join(parts).removesuffix(b"\r")

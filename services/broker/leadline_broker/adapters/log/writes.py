"""Writing bytes to a file at a position, all of them or none."""

from __future__ import annotations

import os

from leadline_broker.adapters.log.errors import NO_SPACE, storage_error
from leadline_client.batch_header import Buffer


def append_bytes(fd: int, data: Buffer, position: int) -> None:
    """Write `data` at `position`, the end of a file, or leave the file unchanged.

    Raises:
        DiskFull: there is no space; the file is unchanged.
        OSError: the write failed, and the content of the file is unknown.

    """
    try:
        write_all(fd, data, position)
    except OSError as error:
        os.ftruncate(fd, position)
        if error.errno in NO_SPACE:
            raise storage_error(error) from error
        raise


def write_all(fd: int, data: Buffer, position: int) -> None:
    """Write all of `data` at `position`; raise OSError if some of it is not written."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, position)
        rest = rest[written:]
        position += written

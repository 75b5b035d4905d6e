"""Small files with a checksum, written atomically.

A checked file starts with the line ``<kind> <version> crc32c=<hex>``; the body follows. The
checksum covers the body, so that reading the file detects a flipped bit or a torn write.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import google_crc32c

from leadline_broker.adapters.log.errors import CorruptFile

_VERSION = 1
TEMPORARY_SUFFIX = ".tmp"


def fsync_path(path: Path) -> None:
    """Fsync a file, or the entries of a directory."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Replace the content of `path` atomically.

    With `sync` the new content is on the disk before the rename. The caller must fsync the
    directory. If that fails, nothing new is left to fill a disk that is full.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_checked(path: Path, kind: str, body: bytes, *, sync: bool = True) -> None:
    """Write a checked file atomically; see `replace_file`."""
    head = f"{kind} {_VERSION} crc32c={google_crc32c.value(body):08x}\n".encode()
    replace_file(path, head + body, sync=sync)


def read_small(path: Path) -> bytes:
    """Return the content of a small file.

    Raises:
        FileNotFoundError: the file does not exist.
        CorruptFile: a sector of it cannot be read, which is damage as a flipped bit is.

    """
    try:
        return path.read_bytes()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise CorruptFile(f"{path.name} cannot be read: {error.strerror}") from error


def read_checked(path: Path, kind: str) -> bytes:
    """Return the body of a checked file.

    Raises:
        FileNotFoundError: the file does not exist.
        CorruptFile: it cannot be read, has another kind or version, or its checksum does not match.

    """
    content = read_small(path)
    head, newline, body = content.partition(b"\n")
    expected = f"{kind} {_VERSION} crc32c={google_crc32c.value(body):08x}".encode()
    if not newline or head != expected:
        raise CorruptFile(f"{path.name} is not a valid {kind}")
    return body

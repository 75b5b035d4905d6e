"""Kafka's answer to a Metadata request (version 1), read without a client.

A failover is measured by asking one broker for all of its metadata again and again. Clients choose
the broker themselves, and an answer with ten thousand partitions takes them long to decode.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from peers.systems.system import Partition, View

_METADATA_KEY: Final = 3
_VERSION: Final = 1
_ALL_TOPICS: Final = -1
_NULL: Final = -1
_INTERNAL: Final = b"\x01"


class _Decoder:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def int16(self) -> int:
        return self._unpack(">h", 2)

    def int32(self) -> int:
        return self._unpack(">i", 4)

    def bytes_of(self, size: int) -> bytes:
        self._at += size
        return self._body[self._at - size : self._at]

    def string(self) -> str:
        size = self.int16()
        return "" if size == _NULL else self.bytes_of(size).decode()

    def int32s(self) -> tuple[int, ...]:
        count = self.int32()
        found = struct.unpack_from(f">{count}i", self._body, self._at)
        self._at += 4 * count
        return found

    def _unpack(self, form: str, size: int) -> int:
        (found,) = struct.unpack_from(form, self._body, self._at)
        self._at += size
        return int(found)


def decode(body: bytes) -> View:
    """Return the content of an answer, without its header and without internal topics."""
    decoder = _Decoder(body)
    brokers = []
    for _ in range(decoder.int32()):
        brokers.append(decoder.int32())
        decoder.string()
        decoder.int32()
        decoder.string()
    decoder.int32()  # the controller
    partitions: list[Partition] = []
    for _ in range(decoder.int32()):
        decoder.int16()
        topic = decoder.string()
        internal = decoder.bytes_of(1) == _INTERNAL
        rows = [_partition(decoder, topic) for _ in range(decoder.int32())]
        partitions += [] if internal else rows
    return View(frozenset(brokers), tuple(partitions))


def _partition(decoder: _Decoder, topic: str) -> Partition:
    decoder.int16()
    number, leader = decoder.int32(), decoder.int32()
    decoder.int32s()  # the replicas
    return Partition(topic, number, leader, decoder.int32s())


async def ask(host: str, port: int) -> View:
    """Ask a broker.

    Raises:
        OSError: it cannot be asked, or closed the connection.

    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        request = struct.pack(">hhihi", _METADATA_KEY, _VERSION, 0, _NULL, _ALL_TOPICS)
        writer.write(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return decode((await reader.readexactly(size))[4:])
    except asyncio.IncompleteReadError as problem:
        raise ConnectionResetError("the broker closed the connection") from problem
    finally:
        writer.close()

"""Record batches whose CRC is right and whose content lies, and what each must be refused with."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from typing import Any, Final

import cramjam

from leadline_client import batches
from leadline_client.batch_header import CRC_POSITION, CRC_RANGE_START, LAYOUT, header_at
from leadline_client.batches import CODECS, LATEST_TIMESTAMP
from leadline_client.codec import CODEC
from leadline_client.payloads import OutgoingRecord
from leadline_client.plain_codec import CHUNK_RECORDS, put_varint
from leadline_client.unreadable import MOST_HEADERS

INVALID: Final = 40050
CORRUPT: Final = 40051
TOO_LARGE: Final = 41350
NOW: Final = 1_790_000_000_000
MIB: Final = 1 << 20
_NOT_IDEMPOTENT: Final = (-1, -1, -1)
_ZSTD_BLOCK: Final = 128 * 1024
_RLE: Final = 1


def varint(number: int) -> bytes:
    """Return the encoding of a number."""
    encoded = bytearray()
    put_varint(encoded, number)
    return bytes(encoded)


def record(offset: int, body: bytes | None = None, *, time: int = 0, length: int = 0) -> bytes:
    """Return a record; `body` is key, value and headers, `length` is added to the true one."""
    body = b"\x01\x02v\x00" if body is None else body
    content = b"\0" + varint(time) + varint(offset) + body
    return varint(len(content) + length) + content


def headed(count: int) -> bytes:
    """Return a record with so many headers, each as short as can be."""
    return record(0, b"\x01\x01" + varint(count) + b"\0\x01" * count)


def forged(
    section: bytes,
    count: int,
    *,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    times: tuple[int, int] = (NOW, NOW),
    producer: tuple[int, int, int] = _NOT_IDEMPOTENT,
) -> bytes:
    """Return a batch of these bytes as they are, with a CRC that matches."""
    last = count - 1 if last_offset_delta is None else last_offset_delta
    fields = (attributes, last, *times, *producer, count)
    batch = bytearray(LAYOUT.pack(0, len(section) + 49, -1, 2, 0, *fields) + section)
    return with_crc(batch)


def half_readable(base_offset: int, leader_epoch: int = 0) -> bytes:
    """Return a stored batch of 502 records, of which codecs decode the first 500 and then fail."""
    good = b"".join(record(number) for number in range(CHUNK_RECORDS + 1))
    endless_headers = record(CHUNK_RECORDS + 1, b"\x01\x02v\x7f")
    stored = bytearray(forged(good + endless_headers, CHUNK_RECORDS + 2))
    batches.stamp(stored, header_at(stored), base_offset, leader_epoch)
    return bytes(stored)


def with_crc(batch: bytes | bytearray) -> bytes:
    """Return a batch with the CRC of its content."""
    changed = bytearray(batch)
    crc = CODEC.crc32c(bytes(changed[CRC_RANGE_START:]))
    struct.pack_into(">I", changed, CRC_POSITION, crc)
    return bytes(changed)


def compressed(section: bytes, codec: str) -> bytes:
    """Return the bytes in one of the compressions."""
    if codec == "gzip":
        return gzip.compress(section)
    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(section))
    return bytes({"lz4": cramjam.lz4, "zstd": cramjam.zstd}[codec].compress(section))


def _long_length(block: bytes) -> bytes:
    """Return a short block of snappy whose length, of one byte, is spelled in six."""
    return bytes([block[0] | 0x80]) + b"\x80" * 4 + b"\0" + block[1:]


def bomb(size: int, codec: str) -> bytes:
    """Return a batch whose records, one with a value of zeros, decompress to about `size` bytes."""
    section = record(0, b"\x01" + varint(size) + bytes(size) + b"\0")
    return forged(compressed(section, codec), 1, attributes=CODECS[codec])


def zstd_bomb(blocks: int, window: int = 0x58) -> bytes:
    """Return a batch of `blocks` 4-byte blocks of zstd, each of which stands for 128 KiB."""
    frame = bytearray(b"\x28\xb5\x2f\xfd\x00" + bytes([window]))
    for number in range(blocks):
        last = number == blocks - 1
        frame += struct.pack("<I", last | _RLE << 1 | _ZSTD_BLOCK << 3)[:3] + b"\0"
    return forged(bytes(frame), 1, attributes=CODECS["zstd"])


def xerial(*blocks: bytes) -> bytes:
    """Return a batch of blocks of snappy-java."""
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    section = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed
    return forged(section, 1, attributes=CODECS["snappy"])


@dataclass(frozen=True, slots=True)
class Hostile:
    """A batch, the code that it is refused with, and a part of the message."""

    name: str
    data: bytes
    code: int = CORRUPT
    says: str = ""

    def __str__(self) -> str:
        return self.name


def _header(name: str, says: str, **changed: Any) -> Hostile:
    """Return a good record behind a header that lies."""
    return Hostile(name, forged(record(0), 1, **changed), says=says)


def _body(name: str, body: bytes, says: str = "malformed") -> Hostile:
    """Return a batch of one record with a wrong key, value or headers."""
    return Hostile(name, forged(record(0, body), 1), says=says)


_WIDE_ATTRIBUTES: Final = b"\x10\x80\x00" + record(0)[2:]
"""The compiled codec reads the attributes of a record as a number, others as a byte."""
_TWO: Final = record(0) + record(1)
_ZSTD: Final = compressed(record(0), "zstd")
_LZ4: Final = compressed(record(0), "lz4")
_NOTHING: Final = compressed(b"", "zstd")
_HUGE: Final = varint(2**63 - 1)

HEADERS: Final = [
    _header("attributes: LogAppendTime", "attributes", attributes=0x08),
    _header("attributes: transactional", "attributes", attributes=0x10),
    _header("attributes: control", "attributes", attributes=0x20),
    _header("attributes: delete horizon", "attributes", attributes=0x40),
    _header("attributes: an unknown bit", "attributes", attributes=0x4000),
    _header("attributes: the sign", "attributes", attributes=-0x8000),
    _header("an unknown codec", "compression", attributes=5),
    _header("the last unknown codec", "compression", attributes=7),
    _header("offsets beyond the records", "consecutive", last_offset_delta=9),
    _header("a negative last offset", "consecutive", last_offset_delta=-1),
    _header("a negative timestamp", "timestamps", times=(-5, -5)),
    _header("the latest timestamp before the first", "timestamps", times=(NOW, NOW - 1)),
    _header("a time for Spark to overflow", "timestamps", times=(LATEST_TIMESTAMP + 1,) * 2),
    _header("the latest timestamp of no record", "timestamp", times=(NOW, NOW + 7)),
    _header("a producer id without an epoch", "producer", producer=(7, -1, 0)),
    _header("a producer id without a sequence", "producer", producer=(7, 0, -1)),
    _header("an epoch without a producer id", "producer", producer=(-1, 0, -1)),
    _header("a sequence without a producer id", "producer", producer=(-1, -1, 0)),
    _header("a negative producer id", "producer", producer=(-2, 0, 0)),
]
RECORDS: Final = [
    Hostile("no record", forged(b"", 0), says="consecutive"),
    Hostile("more records than it counts", forged(_TWO, 1)),
    Hostile("fewer records than it counts", forged(_TWO, 3)),
    Hostile("a count of 200,000", forged(_TWO, 200_000), says="cannot be in"),
    Hostile("a count of 2^31 - 1", forged(_TWO, 2**31 - 1), INVALID, "at most 200000 "),
    Hostile("a negative count", forged(_TWO, -1), says="consecutive"),
    Hostile("a byte behind the records", forged(record(0) + b"\0", 1)),
    Hostile("another record's bytes behind it", forged(record(0) + record(1)[:-1], 1)),
    Hostile("an unfinished number behind it", forged(record(0) + b"\x80", 1)),
    Hostile("offsets that repeat", forged(record(0) * 2, 2), says="consecutive"),
    Hostile("offsets with a gap", forged(record(0) + record(2), 2), says="consecutive"),
    Hostile("offsets from 1", forged(record(1) + record(2), 2), says="consecutive"),
    Hostile("negative offsets", forged(record(-1) + record(0), 2), says="consecutive"),
    Hostile("a first timestamp of another", forged(record(0, time=3), 1), says="timestamp"),
    Hostile(
        "a timestamp before 1970", forged(record(0) + record(1, time=-NOW - 1), 2), says="negative"
    ),
    Hostile(
        "a timestamp beyond 64 bits",
        forged(record(0) + record(1, time=2**63 - 1), 2),
        says="too large",
    ),
    Hostile("a record longer than it says", forged(record(0, length=-1), 1)),
    Hostile("a record shorter than it says", forged(record(0, length=1), 1)),
    Hostile("a record of 2^62 bytes", forged(record(0, length=2**62), 1)),
    Hostile("a record of negative length", forged(record(0, length=-100), 1)),
    Hostile("attributes of two bytes", forged(_WIDE_ATTRIBUTES, 1), says="attributes"),
    _body("a key of 2^63 - 1 bytes", _HUGE + b"\x02v\0"),
    _body("a value of 2^63 - 1 bytes", b"\x01" + _HUGE + b"v\0"),
    _body("a value of 2^62 bytes", b"\x01" + varint(2**62) + b"v\0"),
    _body("a value into the next record", b"\x01" + varint(9) + b"v\0"),
    _body("a number without an end", b"\x01" + b"\xff" * 12),
    _body("2^31 headers", b"\x01\x02v" + varint(2**31)),
    _body("2^63 - 1 headers", b"\x01\x02v" + _HUGE),
    _body("a negative number of headers", b"\x01\x02v" + varint(-1)),
    Hostile("1,001 headers", forged(headed(MOST_HEADERS + 1), 1), INVALID, "1000 headers"),
    Hostile(
        "more headers than a record has room for, with others behind it",
        forged(record(0, b"\x01\x01" + varint(30_000)) + b"\0\x01" * 30_000, 1),
    ),
    _body("a header without a name", b"\x01\x02v\x02\x01\x02v"),
    _body("a header's name that is not UTF-8", b"\x01\x02v\x02\x02\xff\x02v"),
    _body("a header's value of 2^62 bytes", b"\x01\x02v\x02\x02n" + varint(2**62)),
]
COMPRESSED: Final = [
    *(
        Hostile(f"{codec}: garbage", forged(b"\x2a" * 40, 1, attributes=number), says="damaged")
        for codec, number in CODECS.items()
        if codec in {"gzip", "lz4", "zstd"}
    ),
    Hostile(
        "snappy: a length of six bytes",
        forged(_long_length(compressed(record(0), "snappy")), 1, attributes=2),
        says="length",
    ),
    Hostile("snappy: garbage", forged(b"\x05" + b"\xff" * 40, 1, attributes=2), says="damaged"),
    Hostile("zstd: cut", forged(_ZSTD[:-2], 1, attributes=4), says="damaged"),
    Hostile("lz4: cut", forged(_LZ4[:-2], 1, attributes=3), says="damaged"),
    Hostile("zstd: bytes behind it", forged(_ZSTD + b"abc", 1, attributes=4), says="damaged"),
    Hostile("lz4: bytes behind it", forged(_LZ4 + b"abc", 1, attributes=3), says="damaged"),
    Hostile("zstd: two frames for one record", forged(_ZSTD * 2, 1, attributes=4)),
    Hostile("zstd: nothing in 5,000 frames", forged(_NOTHING * 5_000, 1, attributes=4)),
    Hostile(
        "zstd: 1 KB for 4 million headers",
        forged(compressed(headed(4 * MIB), "zstd"), 1, attributes=4),
        INVALID,
        "1000 headers",
    ),
    Hostile("xerial: a block that does not fit", xerial(b""), says="fit"),
    Hostile(
        "zstd: malformed records",
        forged(compressed(b"\xff" * 90, "zstd"), 1, attributes=4),
    ),
]
BOMBS: Final = [
    Hostile("zstd: 19 KB for 600 MB", zstd_bomb(4_800), TOO_LARGE, "decompresses"),
    Hostile("zstd: with a window of 128 MiB", zstd_bomb(4_800, 0x88), TOO_LARGE, "decompresses"),
    Hostile("gzip: 32 KB for 32 MB", bomb(32 * MIB, "gzip"), TOO_LARGE, "decompresses"),
    Hostile(
        "snappy: 10 bytes that say 1 GB",
        forged(b"\x80\x80\x80\x80\x04" + b"\0" * 5, 1, attributes=2),
        TOO_LARGE,
        "decompresses",
    ),
]
LARGE_BOMBS: Final = [
    Hostile("lz4: 140 KB for 32 MB", bomb(32 * MIB, "lz4"), TOO_LARGE, "decompresses"),
    Hostile(
        "xerial: 900 KB for 19 MB",
        xerial(*[compressed(bytes(64 * 1024), "snappy")] * 300),
        TOO_LARGE,
        "decompresses",
    ),
]
"""Those that are over the limits of the requests in `requests`."""
HOSTILE: Final = [*HEADERS, *RECORDS, *COMPRESSED, *BOMBS]


def good(codec: str, count: int = 3) -> bytes:
    """Return a batch as producers send it."""
    records = [OutgoingRecord(b"v" * 50, b"k", (("h", None),), NOW + n) for n in range(count)]
    return batches.encode(records, now_ms=NOW, compression=codec)

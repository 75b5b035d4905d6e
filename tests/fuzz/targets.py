"""The table of fuzz targets: what each decodes, and the only errors that it may raise.

A target takes any bytes. An error that is not among its own is a finding, and so are an input that
takes more than seconds, or more memory than `tests.fuzz` allows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from leadline_client import batches, channel, compiled_codec, plain_codec
from leadline_client.batch_header import HEADER_BYTES, header_at
from leadline_client.errors import InvalidRequest, LeadlineError
from leadline_client.record_checks import check_batches, finish
from leadline_client.unreadable import UnreadableRecords
from leadline_common import consumer_znodes, znodes
from tests.support.bad_input.batches import HOSTILE, good, with_crc

_LIMIT = 1 << 20
_LENGTH_POSITION = 8
_MAGIC_POSITION = 16
_STATE = b'{"version":1,"leader":1,"leader_epoch":3,"isr":[1,2],"controller_epoch":4,"x":null}'
_TOPIC = (
    b'{"version":3,"topic_id":"5f0c","partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},'
    b'"removing_replicas":{}}'
)
_BROKER = b'{"version":5,"host":"h","port":1,"url":"http://h:1","rack":null,"incarnation":2}'
_GROUP = b'{"version":1,"generation":3,"coordinator_epoch":2,"members":["a"],"owners":[0,-1]}'


@dataclass(frozen=True, slots=True)
class Target:
    """One decoder: `run` takes any bytes and raises nothing but `errors`."""

    run: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: Sequence[bytes]

    def __call__(self, data: bytes) -> None:
        """Decode the bytes; what is raised is a finding."""
        try:
            self.run(data)
        except self.errors:
            return


def sealed(data: bytes) -> bytes:
    """Return a batch with this content whose length, format and CRC are right."""
    batch = bytearray(data.ljust(HEADER_BYTES, b"\0"))
    struct.pack_into(">i", batch, _LENGTH_POSITION, len(batch) - 12)
    batch[_MAGIC_POSITION] = 2
    return with_crc(batch)


def check_and_decode(data: bytes) -> None:
    """Check a batch as a producer's; what is accepted must be readable, with those offsets."""
    batch = sealed(data)
    header = header_at(batch)
    finish(check_batches(batch, _LIMIT, _LIMIT))
    found = [record.offset for record in batches.decode(batch, _LIMIT)]
    assert found == list(range(header.base_offset, header.base_offset + header.record_count))


def compare_codecs(data: bytes) -> None:
    """Decode an uncompressed batch by both codecs, of which only one is compiled."""
    batch = bytearray(sealed(data))
    batch[21:23] = b"\0\0"
    assert _records(plain_codec, bytes(batch)) == _records(compiled_codec, bytes(batch))


def _records(codec: Any, batch: bytes) -> list[object] | None:
    def read(one: Any) -> object:
        return one.offset % 2**64, one.timestamp % 2**64, one.key, one.value, tuple(one.headers)

    try:
        return [record for chunk in codec.record_chunks(batch, _LIMIT, read) for record in chunk]
    except UnreadableRecords:
        return None


def read_raw(data: bytes) -> None:
    """Parse the headers of what may be no batch at all, and decode what has the right CRC."""
    list(batches.decode(data, _LIMIT))


def read_znode(data: bytes) -> None:
    """Decode a value by the codec that the first byte selects, and encode it again."""
    decoders: list[tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = [
        (znodes.decode_state, znodes.encode_state),
        (znodes.decode_topic, znodes.encode_topic),
        (znodes.decode_broker, znodes.encode_value),
        (znodes.decode_broker_epoch, znodes.encode_value),
        (znodes.decode_controller, znodes.encode_value),
        (znodes.decode_configs, znodes.encode_configs),
        (znodes.decode_audit, znodes.encode_audit),
    ]
    decode, encode = decoders[data[0] % len(decoders) if data else 0]
    value = decode(data[1:])
    assert decode(encode(value)) == value


def read_group_znode(data: bytes) -> None:
    """Decode a value of the coordinator by the type that the first byte selects."""
    kinds: list[type[msgspec.Struct]] = [
        consumer_znodes.CoordinatorRegistration,
        consumer_znodes.GroupNode,
        consumer_znodes.MemberNode,
        consumer_znodes.OwnersNode,
        consumer_znodes.OffsetNode,
    ]
    kind = kinds[data[0] % len(kinds) if data else 0]
    value = consumer_znodes.decode(data[1:], kind)
    assert consumer_znodes.decode(consumer_znodes.encode(value), kind) == value
    if isinstance(value, consumer_znodes.OwnersNode):
        consumer_znodes.owners_of(value)


def read_frame(data: bytes) -> None:
    """Decode a frame of the channel, and encode it again."""
    frame = channel.decode(data)
    assert channel.decode(channel.encode(frame)) == frame


_BATCHES = [*(good(name) for name in batches.CODECS), *(one.data for one in HOSTILE)]
_ZNODES = [bytes([index]) + seed for index in range(7) for seed in (_STATE, _TOPIC, _BROKER, b"")]
_FRAMES: list[channel.Frame] = [
    channel.Ping(id=1, coordinator_epoch=1, generation=0, acknowledged=0),
    channel.Pong(id=1, coordinator_epoch=1, generation=0),
    channel.Hello(member="m", topics=("t",), owned=(("t", (0, 1)),), topic_threads=(("t", 2),)),
    channel.Start(
        id=2,
        coordinator_epoch=1,
        generation=1,
        attempt=1,
        assignment=(("t", (0,)),),
        offsets=(("t", 0, 5, None),),
        topic_ids=(("t", "id"),),
    ),
    channel.Stop(id=3, coordinator_epoch=1, generation=1, attempt=1, partitions=(("t", (0,)),)),
    channel.Error(error_code=40050, message="no"),
]

TARGETS = {
    "batch": Target(check_and_decode, (LeadlineError,), _BATCHES),
    "codecs": Target(compare_codecs, (), _BATCHES),
    "raw_batch": Target(read_raw, (LeadlineError,), _BATCHES),
    "znode": Target(read_znode, (msgspec.MsgspecError,), _ZNODES),
    "group_znode": Target(
        read_group_znode, (msgspec.MsgspecError,), [bytes([index]) + _GROUP for index in range(5)]
    ),
    "frame": Target(
        read_frame, (InvalidRequest,), [channel.encode(frame).encode() for frame in _FRAMES]
    ),
}

"""Bits that flip, and files that get lost, on the disk of a broker that is down.

A closed segment is checked when it is read. So the broker starts, serves what is not damaged, and
replaces what a reader, or its own scrub, finds damaged by the copy of another replica. If nobody
has read it, an operator deletes the replica in the end while the broker is down, and the others
have its records.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.layout import INDEX_SUFFIX, LOG_SUFFIX, read_identity
from leadline_client.batch_header import HEADER_BYTES, parse_headers
from leadline_client.batches import crc_matches
from leadline_client.wire import TopicPartition
from tests.runtime_simulation.cluster import Cluster
from tests.runtime_simulation.plan import Fault
from tests.runtime_simulation.services import BrokerService

DAMAGED: Final = "a bit flipped in a closed segment"
LOST: Final = "a closed segment was cut short or lost"
DAMAGED_INDEX: Final = "a bit flipped in an index"
REPAIRED: Final = "a damaged batch was repaired"
SCRUBBED: Final = "a damaged batch was repaired that no reader was sent to"
DELETED: Final = "a damaged replica was deleted"
_EXPIRED_S: Final = 2.5
_CAUGHT_UP_S: Final = 1.2
_ELECTED_S: Final = 0.3


class Damage:
    """Damages at most one replica: min.insync.replicas - 1 copies may be lost."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._damaged: _Damaged | None = None

    def flip(self, broker: BrokerService, fault: Fault) -> None:
        """Flip a bit of a broker that is down now, in a closed segment or in its index."""
        cluster = self._cluster
        segments = self._segments_of(broker)
        if cluster.wiped is not None or len(cluster.brokers) < 3 or not segments:
            return
        random = Random(fault.choice)
        segment = random.choice(segments)
        index = segment.with_suffix(INDEX_SUFFIX)
        size = index.stat().st_size if index.exists() else 0  # A power cut leaves an empty file.
        if size and random.random() < 0.25:
            cluster.world.reached(DAMAGED_INDEX)
            _flip(index, random.randrange(size), random)
            return
        identity, content = read_identity(segment.parent), segment.read_bytes()
        cluster.world.reached(DAMAGED)
        if cluster.machine.scrubs and random.random() < 0.4:
            cluster.world.reached(LOST)
            _lose(segment, random)
            self._damaged = _Lost(broker, segment, identity.topic_id, content)
        else:
            header = random.choice(list(parse_headers(content)))
            _flip(segment, header.position + random.randrange(HEADER_BYTES, header.size), random)
            self._damaged = _Damaged(broker, segment, identity.topic_id, content)
        cluster.wiped = broker.number
        partition = TopicPartition(identity.topic, identity.partition)
        if not cluster.machine.scrubs:
            cluster.world.loop.after(fault.for_s + _CAUGHT_UP_S, self._read, partition)

    def _read(self, partition: TopicPartition) -> None:
        """Let the damaged broker lead if it should, and a reader begin that comes to the damage."""
        self._cluster.elect_preferred()
        self._cluster.world.loop.after(_ELECTED_S, self._cluster.read, [partition])

    def _segments_of(self, broker: BrokerService) -> list[Path]:
        """Return closed segments, of replicas that should lead if there are any."""
        topics, segments = self._cluster.topics, _closed_segments(broker.disk.root)
        preferred = [
            segment
            for segment in segments
            if topics.replicas(_partition_of(segment))[:1] == (broker.number,)
        ]
        return preferred or segments

    def repair(self) -> None:
        """If the damage is left, stop the broker, delete the replica, and start the broker."""
        damaged = self._damaged
        if damaged is None:
            return
        if damaged.is_repaired():
            self._cluster.world.reached(SCRUBBED if self._cluster.machine.scrubs else REPAIRED)
            return
        broker = damaged.broker
        broker.kill()

        def delete() -> None:
            if damaged.is_there():
                self._cluster.world.reached(DELETED)
                shutil.rmtree(damaged.segment.parent)
                broker.disk.synced(str(broker.disk.root))
            broker.start()

        self._cluster.world.loop.after(_EXPIRED_S, delete)


@dataclass(frozen=True, slots=True)
class _Damaged:
    """A segment of a broker with a flipped bit; `content` is what it had before."""

    broker: BrokerService
    segment: Path
    topic_id: str
    content: bytes

    def is_there(self) -> bool:
        """Tell whether the replica still exists, and is none of another topic."""
        try:
            return read_identity(self.segment.parent).topic_id == self.topic_id
        except CorruptFile:
            return False

    def is_repaired(self) -> bool:
        """Tell whether every batch of the segment matches its CRC again."""
        if not (self.is_there() and self.segment.exists()):
            return False
        data = self.segment.read_bytes()
        return all(crc_matches(data, header) for header in parse_headers(data))


class _Lost(_Damaged):
    """A segment that was cut short or is gone. The file before it may get what it had."""

    __slots__ = ()

    def is_repaired(self) -> bool:
        """Tell whether the replica has all bytes of the segment again."""
        segments = sorted(self.segment.parent.glob(f"*{LOG_SUFFIX}")) if self.is_there() else ()
        return self.content in b"".join(path.read_bytes() for path in segments)


def _closed_segments(root: Path) -> list[Path]:
    """Return the segments of all replicas but the last one of each."""
    return [
        segment
        for directory in sorted(root.iterdir())
        if directory.is_dir() and directory.name.rpartition("-")[2].isdecimal()
        for segment in sorted(directory.glob(f"*{LOG_SUFFIX}"))[:-1]
        if segment.stat().st_size
    ]


def _partition_of(segment: Path) -> TopicPartition:
    topic, _, number = segment.parent.name.rpartition("-")
    return TopicPartition(topic, int(number))


def _lose(segment: Path, random: Random) -> None:
    """Cut a segment short, or remove it. Without its first one a log would begin later."""
    is_first = segment == min(segment.parent.glob(f"*{LOG_SUFFIX}"))
    if random.random() < 0.5 and not is_first:
        segment.unlink()
    else:
        os.truncate(segment, random.randrange(segment.stat().st_size))


def _flip(file: Path, position: int, random: Random) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << random.randrange(8)
    file.write_bytes(data)

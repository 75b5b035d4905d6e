"""Log starts: what retention removes from replicas, and what it must leave.

Each broker removes records by itself, so the log starts of replicas differ. What is removed is seen
as a segment file that is deleted or gets another name, past the broker's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leadline_broker.adapters.log.layout import METADATA_FILE, PartitionIdentity, read_identity
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.batch_header import parse_headers
from leadline_client.wire import TopicPartition
from tests.runtime_simulation.plan import Retention
from tests.runtime_simulation.services import BrokerService
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.runtime_simulation.topics import Topics
from tests.runtime_simulation.unclean_elections import UncleanElections
from tests.runtime_simulation.world import World

REMOVED: Final = "retention removed a segment"
RESTARTED: Final = "a replica began again at its leader's log start"
_LOOK_S: Final = 0.05


@dataclass(eq=False)
class LogStarts:
    """Watches the log starts of all replicas; `problems` are removals that lose records."""

    topics: Topics
    system: SimulatedSystem
    brokers: Mapping[int, BrokerService]
    retention: Retention | None
    unclean: UncleanElections | None = field(default=None, init=False)
    problems: list[str] = field(default_factory=list, init=False)
    _highest: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    _seen: dict[Partition, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.system.on_removal.append(self._look)
        if self.retention is not None:
            self.world.loop.after(_LOOK_S, self._compare)

    @property
    def world(self) -> World:
        """The world of the cluster."""
        return self.topics.world

    def highest(self, topic: str, partition: int) -> int:
        """Return the highest log start that a replica of an incarnation of a topic has had."""
        return self._highest.get((topic, partition), 0)

    def _look(self, path: Path) -> None:
        """Note the removal of the first segment of several, or of the only one."""
        if path.suffix != ".log" or not (path.parent / METADATA_FILE).exists():
            return
        segments = sorted([*path.parent.glob("*.log"), *path.parent.glob("*.next")])
        if path != segments[0]:
            return
        if len(segments) == 1:
            self.world.reached(RESTARTED)
        else:
            self._removed(read_identity(path.parent), segments)

    def _removed(self, identity: PartitionIdentity, segments: list[Path]) -> None:
        """Check that the first segment may be removed."""
        self.world.reached(REMOVED)
        where, start = segments[0].parent, int(segments[1].stem)
        headers = list(parse_headers(segments[0].read_bytes()))
        partition = TopicPartition(identity.topic, identity.partition)
        name = self.topics.name_at(partition, identity.topic_id, headers[0].leader_epoch)
        place = (name, identity.partition)
        self._highest[place] = max(start, self._highest.get(place, 0))
        newest_ms = max(one.max_timestamp for one in headers)
        if not self._is_asked_for(identity.topic, newest_ms, segments[1:]):
            self._report(f"{where} begins at {start}: retention asks for more")

    def _is_asked_for(self, topic: str, newest_ms: int, segments: list[Path]) -> bool:
        """Tell whether records up to a time may go that stand before some segments.

        A broker may learn late what a topic's configs are by now, and its own wall clock may have
        been set back since it decided.
        """
        if self.retention is None:
            return False
        rest = sum(segment.stat().st_size for segment in segments)
        age_ms = self.system.latest_wall_s() * 1000 - newest_ms
        return any(
            0 <= one.age_ms < age_ms or 0 <= one.size_bytes <= rest
            for one in (self.retention, *self.topics.retentions_ever(topic))
        )

    def _compare(self) -> None:
        """Compare each log start with the high watermark, and with what it was before."""
        for broker in self.brokers.values():
            if broker.running:
                self._compare_broker(broker)
        self.world.loop.after(_LOOK_S, self._compare)

    def _compare_broker(self, broker: BrokerService) -> None:
        for replica in broker.replicas():
            if replica.log.failed or replica.log.lacks_records:
                continue  # It is not used any more, or waits without records for space to begin.
            if self.unclean is not None and (replica.topic, *replica.key[1:]) in self.unclean.asked:
                continue  # A leader from outside the ISR may begin, and end, before it.
            start, mark = replica.log.log_start_offset, replica.replica.state.high_watermark
            where = f"{broker.name} {replica.topic}-{replica.partition}"
            if start > mark:
                self._report(f"{where} begins at {start}, beyond its high watermark {mark}")
            before = self._seen.get(replica, 0)
            if start < before:
                self._report(f"{where} begins at {start} after {before}")
            self._seen[replica] = start

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

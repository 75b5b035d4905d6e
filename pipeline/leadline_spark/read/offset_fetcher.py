"""Where the partitions of a subscription begin and end now, for two requests whatever their number.

One asks for metadata, one for the offsets of all partitions together. A partition without a leader
is asked for again until the deadline; of a stream that knows it already, its last end stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import (
    ClusterClient,
    LeaderOffsets,
    Metadata,
    OffsetsAnswer,
    OffsetsUnavailable,
    refused,
)
from leadline_spark.cluster.routing import Route
from leadline_spark.cluster.transport import Refusal, Unreachable
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import OffsetAndEpoch, SourceOffset, nested
from leadline_spark.read.subscription import SourceSubscription

_AGAIN_S = 0.2
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """Partitions with their topics' ids, and where they begin and end.

    `version` is that of the metadata which named them.
    """

    ids: Mapping[TopicPartition, str]
    ends: Mapping[TopicPartition, LeaderOffsets]
    version: int = 0

    def latest(self) -> dict[TopicPartition, OffsetAndEpoch]:
        """Return the ends: high watermarks, never log ends."""
        return {
            topic_partition: OffsetAndEpoch(at.end, at.leader.epoch)
            for topic_partition, at in self.ends.items()
        }

    def earliest(self) -> dict[TopicPartition, OffsetAndEpoch]:
        """Return the log starts."""
        return {
            topic_partition: OffsetAndEpoch(at.start, at.leader.epoch)
            for topic_partition, at in self.ends.items()
        }

    def at(self, positions: Mapping[TopicPartition, OffsetAndEpoch]) -> SourceOffset:
        """Return an offset for the checkpoint, with the ids of the topics that it names."""
        topics = {
            topic_partition.topic: self.ids[topic_partition]
            for topic_partition in positions
            if topic_partition in self.ids
        }
        return SourceOffset(positions, topics)


class OffsetFetcher:
    """Asks about the partitions of one subscription. Not shared among threads."""

    def __init__(
        self,
        cluster: ClusterClient,
        subscription: SourceSubscription,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.cluster = cluster
        self.subscription = subscription
        self.deadline_s = deadline_s
        self._clock = clock
        self._sleep = sleep

    def metadata(self) -> Metadata:
        """Return metadata in which all that was named exists.

        Raises LeadlineSparkError LEADLINE_TOPIC_UNKNOWN, after a moment: a topic that was just
        made is not known everywhere at once.
        """
        give_up = self._clock() + _PATIENCE_S
        while True:
            metadata = self.cluster.metadata(self.subscription.asked())
            missing = self.subscription.missing(metadata)
            if not missing:
                return metadata
            if self._clock() >= give_up:
                message = f"The cluster does not have: {', '.join(missing)}."
                raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", message)
            self._sleep(_AGAIN_S)

    def snapshot(self) -> OffsetSnapshot:
        """Return every partition with its ends.

        Raises LeadlineSparkError: LEADLINE_LEADER_UNREACHABLE where one has no leader until the
        deadline, LEADLINE_TOPIC_UNKNOWN, and what `ClusterClient.ask` raises.
        """
        metadata = self.metadata()
        ids = self.subscription.chosen(metadata)
        return OffsetSnapshot(ids, self.ends(ids), metadata.version)

    def ends(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderOffsets]:
        """Return where these partitions begin and end. Raises as `snapshot` does."""
        return self._all(dict.fromkeys(topic_partitions))

    def by_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offsets at or after these times (ms), None where there is none."""
        return {topic_partition: at.found for topic_partition, at in self._all(times).items()}

    def wait_for_new_ends(
        self, known: Mapping[TopicPartition, int], wait_s: float
    ) -> dict[TopicPartition, LeaderOffsets]:
        """Wait until any partition goes beyond its known end; return those that have a leader."""
        question = {**self._question(dict.fromkeys(known)), "after": nested(known)}
        return _answered(self.cluster.offsets(question, wait_s), known)

    def end_of_epoch(self, topic_partition: TopicPartition, epoch: int, leader: str | None) -> int:
        """Ask the leader where an epoch ends in its log: where later ones begin, if it lacks it.

        `leader` is where to ask first, if anybody knows: a broker that is lost leaves many
        partitions to ask about. Raises LeadlineSparkError LEADLINE_LEADER_UNREACHABLE.
        """
        route = Route(self.cluster, topic_partition, leader, deadline_s=self.deadline_s)
        path = f"/v1/topics/{topic_partition.topic}/partitions/{topic_partition.partition}/epochs/{epoch}"
        try:
            found = route.ask(lambda url: self.cluster.call("GET", url, path)).json()
        except Refusal as refusal:
            raise refused(str(route.leader), refusal) from refusal
        end: int = found["end_offset"]
        return end

    def sizes(self, snapshot: OffsetSnapshot) -> dict[TopicPartition, int]:
        """Return the stored bytes of partitions, from the leaders that can be asked right now."""
        found: dict[TopicPartition, int] = {}
        for url in sorted({at.leader.url for at in snapshot.ends.values() if at.leader.url}):
            try:
                rows = self.cluster.call("GET", url, "/v1/load").json()["partitions"]
            except (Refusal, Unreachable):
                continue
            for row in rows:
                topic_partition = TopicPartition(row["topic"], row["partition"])
                if row["is_leader"] and topic_partition in snapshot.ends:
                    found[topic_partition] = row["size_bytes"]
        return found

    def _all(
        self, times: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, LeaderOffsets]:
        if not times:
            return {}
        give_up = self._clock() + self.deadline_s
        found: dict[TopicPartition, LeaderOffsets] = {}
        while True:
            left = {
                topic_partition: at
                for topic_partition, at in times.items()
                if topic_partition not in found
            }
            late = self._clock() >= give_up
            answer: OffsetsAnswer = {}
            try:
                answer = self.cluster.offsets(self._question(left))
            except LeadlineSparkError as failure:
                # Metadata came a moment ago: brokers that are gone may well be back.
                if late or failure.code != "LEADLINE_CLUSTER_UNREACHABLE":
                    raise
            found |= _answered(answer, left)
            if len(found) == len(times):
                return {topic_partition: found[topic_partition] for topic_partition in times}
            if late:
                raise _leaderless(
                    [topic_partition for topic_partition in left if topic_partition not in found],
                    answer,
                )
            self._sleep(_AGAIN_S)

    def _question(self, times: Mapping[TopicPartition, int | None]) -> dict[str, Any]:
        rows = [
            {"topic": topic_partition.topic, "partition": topic_partition.partition}
            | ({} if at is None else {"timestamp": at})
            for topic_partition, at in times.items()
        ]
        return {"partitions": rows}


def _answered(
    answer: OffsetsAnswer, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, LeaderOffsets]:
    rows = {topic_partition: answer.get(topic_partition) for topic_partition in asked}
    return {
        topic_partition: row
        for topic_partition, row in rows.items()
        if isinstance(row, LeaderOffsets)
    }


def _leaderless(
    topic_partitions: list[TopicPartition], answer: OffsetsAnswer
) -> LeadlineSparkError:
    row = answer.get(topic_partitions[0])
    why = row.message if isinstance(row, OffsetsUnavailable) else "no answer"
    others = f" and {len(topic_partitions) - 1} more" if len(topic_partitions) > 1 else ""
    message = f"Nobody tells where {topic_partitions[0]}{others} starts and ends: {why}"
    return LeadlineSparkError("LEADLINE_LEADER_UNREACHABLE", message)

"""The current offsets of a subscription's partitions, by two requests whatever their number.

One request asks for metadata, the other for the offsets of all partitions. Partitions without a
leader are asked for again until the deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leadline_client.errors import LeadlineError
from leadline_client.wire import Metadata, TopicPartition
from leadline_spark.cluster.cluster_client import (
    ClusterClient,
    LeaderOffsets,
    OffsetsAnswer,
    OffsetsUnavailable,
    document,
    refused,
)
from leadline_spark.cluster.leader_client import LeaderClient
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import OffsetAndEpoch, SourceOffset, nested
from leadline_spark.read.subscription import SourceSubscription

_RETRY_S = 0.2
_NEW_TOPIC_S = 1.0
"""How long a topic may be unknown: not every broker knows a new one at once."""


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """Partitions with the ids of their topics and their offsets, as of metadata `version`."""

    ids: Mapping[TopicPartition, str]
    offsets: Mapping[TopicPartition, LeaderOffsets]
    version: int = 0

    def latest(self) -> dict[TopicPartition, OffsetAndEpoch]:
        """Return the ends: high watermarks, never log end offsets."""
        return {tp: OffsetAndEpoch(at.end, at.leader.epoch) for tp, at in self.offsets.items()}

    def leaders(self) -> dict[TopicPartition, str | None]:
        """Return the base URLs of the leaders, None where there is none."""
        return {topic_partition: at.leader.url for topic_partition, at in self.offsets.items()}

    def at(self, positions: Mapping[TopicPartition, OffsetAndEpoch]) -> SourceOffset:
        """Return these positions as an offset for the checkpoint, with the ids of their topics."""
        topics = {tp.topic: self.ids[tp] for tp in positions if tp in self.ids}
        return SourceOffset(positions, topics)


@dataclass(slots=True)
class OffsetFetcher:
    """Fetches the offsets of one subscription's partitions. Not shared among threads."""

    cluster: ClusterClient
    subscription: SourceSubscription
    deadline_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def metadata(self) -> Metadata:
        """Return metadata that has everything the subscription names.

        Raises LeadlineSparkError LEADLINE_TOPIC_UNKNOWN.
        """
        give_up = self.clock() + _NEW_TOPIC_S
        while True:
            metadata = self.cluster.metadata(self.subscription.requested_topics())
            missing = self.subscription.missing(metadata)
            if not missing:
                return metadata
            if self.clock() >= give_up:
                message = f"The cluster does not have: {', '.join(missing)}."
                raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", message)
            self.sleep(_RETRY_S)

    def snapshot(self) -> OffsetSnapshot:
        """Return every partition of the subscription with its offsets.

        Raises LeadlineSparkError: LEADLINE_LEADER_UNREACHABLE for a partition that has no leader
        until the deadline, LEADLINE_TOPIC_UNKNOWN, and what `ClusterClient.ask` raises.
        """
        metadata = self.metadata()
        ids = self.subscription.chosen(metadata)
        return OffsetSnapshot(ids, self.offsets(ids), metadata.version)

    def offsets(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderOffsets]:
        """Return the offsets of these partitions. Raises as `snapshot` does."""
        return self._fetch(dict.fromkeys(topic_partitions))

    def offsets_of_led(
        self, topic_partitions: Iterable[TopicPartition], required: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderOffsets]:
        """Return the offsets of those of these partitions that have a leader now.

        Raises LeadlineSparkError: LEADLINE_LEADER_UNREACHABLE if a `required` one has none.
        """
        wanted = list(topic_partitions)
        answer = self.cluster.offsets(_query(dict.fromkeys(wanted)))
        found = _available(answer, wanted)
        if missing := [tp for tp in required if tp not in found]:
            raise _no_leader(missing, answer)
        return found

    def by_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after each timestamp (Unix ms), None if there is none."""
        return {topic_partition: at.found for topic_partition, at in self.lookup(times).items()}

    def lookup(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, LeaderOffsets]:
        """Return the offsets of partitions, with the first one at or after each timestamp."""
        return self._fetch(times)

    def wait_for_new_ends(
        self, known: Mapping[TopicPartition, int], wait_s: float
    ) -> dict[TopicPartition, LeaderOffsets]:
        """Wait until a partition has records beyond its known end, at most `wait_s`.

        Returns the partitions that have a leader.
        """
        query = {**_query(dict.fromkeys(known)), "after": nested(known)}
        return _available(self.cluster.offsets(query, wait_s), known)

    def end_of_epoch(self, topic_partition: TopicPartition, epoch: int, leader: str | None) -> int:
        """Return where a leader epoch ends, from the leader: see `LeaderClient.end_of_epoch`.

        `leader` is the URL to try first. Raises LeadlineSparkError.
        """
        client = LeaderClient(self.cluster, topic_partition, leader, deadline_s=self.deadline_s)
        try:
            return client.end_of_epoch(epoch)
        except LeadlineError as error:
            raise refused(str(client.leader), error) from error

    def sizes(self, snapshot: OffsetSnapshot) -> dict[TopicPartition, int]:
        """Return the stored bytes of partitions, from those leaders that answer at once."""
        found: dict[TopicPartition, int] = {}
        for url in sorted({url for url in snapshot.leaders().values() if url}):
            try:
                rows = document(self.cluster.call("GET", url, "/v1/load"))["partitions"]
            except LeadlineError:
                continue
            for row in rows:
                topic_partition = TopicPartition(row["topic"], row["partition"])
                if row["is_leader"] and topic_partition in snapshot.offsets:
                    found[topic_partition] = row["size_bytes"]
        return found

    def _fetch(
        self, times: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, LeaderOffsets]:
        if not times:
            return {}
        give_up = self.clock() + self.deadline_s
        found: dict[TopicPartition, LeaderOffsets] = {}
        while True:
            left = {tp: timestamp for tp, timestamp in times.items() if tp not in found}
            late = self.clock() >= give_up
            answer: OffsetsAnswer = {}
            try:
                answer = self.cluster.offsets(_query(left))
            except LeadlineSparkError as failure:
                # The metadata was answered a moment ago, so the brokers may well come back.
                if late or failure.code != "LEADLINE_CLUSTER_UNREACHABLE":
                    raise
            found |= _available(answer, left)
            if len(found) == len(times):
                return {topic_partition: found[topic_partition] for topic_partition in times}
            if late:
                raise _no_leader([tp for tp in left if tp not in found], answer)
            self.sleep(_RETRY_S)


def _query(times: Mapping[TopicPartition, int | None]) -> dict[str, Any]:
    rows = [
        {"topic": topic_partition.topic, "partition": topic_partition.partition}
        | ({} if timestamp is None else {"timestamp": timestamp})
        for topic_partition, timestamp in times.items()
    ]
    return {"partitions": rows}


def _available(
    answer: OffsetsAnswer, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, LeaderOffsets]:
    rows = {topic_partition: answer.get(topic_partition) for topic_partition in wanted}
    return {tp: row for tp, row in rows.items() if isinstance(row, LeaderOffsets)}


def _no_leader(topic_partitions: list[TopicPartition], answer: OffsetsAnswer) -> LeadlineSparkError:
    row = answer.get(topic_partitions[0])
    why = row.message if isinstance(row, OffsetsUnavailable) else "no answer"
    others = f" and {len(topic_partitions) - 1} more" if len(topic_partitions) > 1 else ""
    message = f"No broker reports the offsets of {topic_partitions[0]}{others}: {why}"
    return LeadlineSparkError("LEADLINE_LEADER_UNREACHABLE", message)

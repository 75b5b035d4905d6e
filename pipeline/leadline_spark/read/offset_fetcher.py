"""Where the partitions of a subscription begin and end now, for two requests whatever their number.

One asks for metadata, one for the offsets of all partitions together. A partition without a leader
is asked for again until the deadline; of a stream that knows it already, its last end stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leadline_spark.cluster.cluster import (
    Cluster,
    Metadata,
    OffsetsAnswer,
    PartitionOffsets,
    Untold,
    refused,
)
from leadline_spark.cluster.routing import Route
from leadline_spark.cluster.transport import Refusal, Unreachable
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import Position, SourceOffset, TopicPartition, nested
from leadline_spark.read.subscription import Subscription

_AGAIN_S = 0.2
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class View:
    """Partitions with their topics' ids, and where they begin and end.

    `version` is that of the metadata which named them.
    """

    ids: Mapping[TopicPartition, str]
    ends: Mapping[TopicPartition, PartitionOffsets]
    version: int = 0

    def latest(self) -> dict[TopicPartition, Position]:
        """Return the ends: high watermarks, never log ends."""
        return {place: Position(at.end, at.leader.epoch) for place, at in self.ends.items()}

    def earliest(self) -> dict[TopicPartition, Position]:
        """Return the log starts."""
        return {place: Position(at.start, at.leader.epoch) for place, at in self.ends.items()}

    def at(self, positions: Mapping[TopicPartition, Position]) -> SourceOffset:
        """Return an offset for the checkpoint, with the ids of the topics that it names."""
        topics = {place.topic: self.ids[place] for place in positions if place in self.ids}
        return SourceOffset(positions, topics)


class OffsetFetcher:
    """Asks about the partitions of one subscription. Not shared among threads."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
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
                told = f"The cluster does not have: {', '.join(missing)}."
                raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", told)
            self._sleep(_AGAIN_S)

    def view(self) -> View:
        """Return every partition with its ends.

        Raises LeadlineSparkError: LEADLINE_LEADER_UNREACHABLE where one has no leader until the
        deadline, LEADLINE_TOPIC_UNKNOWN, and what `Cluster.ask` raises.
        """
        metadata = self.metadata()
        ids = self.subscription.chosen(metadata)
        return View(ids, self.ends(ids), metadata.version)

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
        """Return where these partitions begin and end. Raises as `view` does."""
        return self._all(dict.fromkeys(places))

    def by_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offsets at or after these times (ms), None where there is none."""
        return {place: at.found for place, at in self._all(times).items()}

    def news(
        self, known: Mapping[TopicPartition, int], wait_s: float
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Wait until any partition goes beyond its known end; return those that have a leader."""
        question = {**self._question(dict.fromkeys(known)), "after": nested(known)}
        return _told(self.cluster.offsets(question, wait_s), known)

    def end_of_epoch(self, place: TopicPartition, epoch: int, leader: str | None) -> int:
        """Ask the leader where an epoch ends in its log: where later ones begin, if it lacks it.

        `leader` is where to ask first, if anybody knows: a broker that is lost leaves many
        partitions to ask about. Raises LeadlineSparkError LEADLINE_LEADER_UNREACHABLE.
        """
        route = Route(self.cluster, place, leader, deadline_s=self.deadline_s)
        path = f"/v1/topics/{place.topic}/partitions/{place.partition}/epochs/{epoch}"
        try:
            found = route.ask(lambda url: self.cluster.call("GET", url, path)).json()
        except Refusal as refusal:
            raise refused(str(route.leader), refusal) from refusal
        end: int = found["end_offset"]
        return end

    def sizes(self, view: View) -> dict[TopicPartition, int]:
        """Return the stored bytes of partitions, from the leaders that can be asked right now."""
        found: dict[TopicPartition, int] = {}
        for url in sorted({at.leader.url for at in view.ends.values() if at.leader.url}):
            try:
                rows = self.cluster.call("GET", url, "/v1/load").json()["partitions"]
            except (Refusal, Unreachable):
                continue
            for row in rows:
                place = TopicPartition(row["topic"], row["partition"])
                if row["is_leader"] and place in view.ends:
                    found[place] = row["size_bytes"]
        return found

    def _all(
        self, times: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, PartitionOffsets]:
        if not times:
            return {}
        give_up = self._clock() + self.deadline_s
        found: dict[TopicPartition, PartitionOffsets] = {}
        while True:
            left = {place: at for place, at in times.items() if place not in found}
            late = self._clock() >= give_up
            answer: OffsetsAnswer = {}
            try:
                answer = self.cluster.offsets(self._question(left))
            except LeadlineSparkError as failure:
                # Metadata came a moment ago: brokers that are gone may well be back.
                if late or failure.code != "LEADLINE_CLUSTER_UNREACHABLE":
                    raise
            found |= _told(answer, left)
            if len(found) == len(times):
                return {place: found[place] for place in times}
            if late:
                raise _leaderless([place for place in left if place not in found], answer)
            self._sleep(_AGAIN_S)

    def _question(self, times: Mapping[TopicPartition, int | None]) -> dict[str, Any]:
        rows = [
            {"topic": place.topic, "partition": place.partition}
            | ({} if at is None else {"timestamp": at})
            for place, at in times.items()
        ]
        return {"partitions": rows}


def _told(
    answer: OffsetsAnswer, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionOffsets]:
    rows = {place: answer.get(place) for place in asked}
    return {place: row for place, row in rows.items() if isinstance(row, PartitionOffsets)}


def _leaderless(places: list[TopicPartition], answer: OffsetsAnswer) -> LeadlineSparkError:
    row = answer.get(places[0])
    why = row.message if isinstance(row, Untold) else "no answer"
    others = f" and {len(places) - 1} more" if len(places) > 1 else ""
    told = f"Nobody tells where {places[0]}{others} begins and ends: {why}"
    return LeadlineSparkError("LEADLINE_LEADER_UNREACHABLE", told)

"""To the leader of a partition, wherever it moves: hints, metadata, patience, a deadline.

For readers and writers alike. A refusal that names the leader is followed at once; otherwise any
address that is known is asked who leads. The deadline counts from the last answer, so that a long
read survives any number of elections, and a cluster that is gone ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient
from leadline_spark.cluster.transport import Refusal, Unreachable
from leadline_spark.errors import LeadlineSparkError

T = TypeVar("T")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_GONE_S = 5.0
"""A topic that the metadata lacks for this long is gone, not just new."""


class Route:
    """Where the leader of one partition is believed to be. Not shared among threads.

    `topic_id` is the topic's id, None where any topic of that name will do.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        topic_partition: TopicPartition,
        leader: str | None = None,
        topic_id: str | None = None,
        deadline_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.cluster = cluster
        self.topic_partition = topic_partition
        self.leader = leader
        self._topic_id = topic_id
        self._deadline_s = deadline_s
        self._clock = clock
        self._sleep = sleep
        self._absent_since: float | None = None

    def ask(self, call: Callable[[str], T]) -> T:
        """Return what `call` returns for the leader's base URL, looking for it until the deadline.

        `call` raises Refusal and Unreachable, and is repeated after those that are retriable: what
        it asks must bear that. Raises Refusal where another leader would refuse the same;
        LeadlineSparkError LEADLINE_LEADER_UNREACHABLE, _TOPIC_UNKNOWN or _TOPIC_RECREATED.
        """
        give_up = self._clock() + self._deadline_s
        pause = _FIRST_PAUSE_S
        tried: dict[str, str] = {}
        while True:
            hinted = False
            if self.leader is None:
                self._look_up(tried)
            if self.leader is not None:
                try:
                    return call(self.leader)
                except Unreachable as failure:
                    tried[self.leader] = failure.reason
                    self.leader = None
                except Refusal as refusal:
                    if not refusal.retriable:
                        raise
                    tried[self.leader] = str(refusal)
                    hinted = self._follow(refusal, tried)
            if self._clock() >= give_up:
                raise self._lost(tried)
            if not hinted:
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _follow(self, refusal: Refusal, tried: dict[str, str]) -> bool:
        """Go where a refusal points to; True where nobody was asked there in vain before."""
        hint = refusal.details.get("leader")
        url = hint.get("url") if isinstance(hint, dict) else None
        self.leader = url if url and url not in tried else None
        return self.leader is not None

    def _look_up(self, tried: dict[str, str]) -> None:
        """Ask the metadata who leads. That nobody knows is no error yet."""
        try:
            metadata = self.cluster.metadata([self.topic_partition.topic])
        except LeadlineSparkError as failure:
            tried["metadata"] = failure.message
            return
        topic = metadata.topics.get(self.topic_partition.topic)
        if topic is None or self.topic_partition.partition not in topic.partitions:
            self._absent(tried)
            return
        self._absent_since = None
        if self._topic_id is not None and topic.topic_id != self._topic_id:
            message = f"{self.topic_partition.topic} was deleted and made anew: its id was {self._topic_id}"
            raise LeadlineSparkError("LEADLINE_TOPIC_RECREATED", f"{message}, is {topic.topic_id}.")
        self.leader = metadata.leader(self.topic_partition).url
        if self.leader is None:
            tried["metadata"] = "the partition has no leader"

    def _absent(self, tried: dict[str, str]) -> None:
        tried["metadata"] = "there is no such partition"
        now = self._clock()
        self._absent_since = self._absent_since or now
        if now - self._absent_since >= min(_GONE_S, self._deadline_s):
            raise LeadlineSparkError(
                "LEADLINE_TOPIC_UNKNOWN", f"There is no {self.topic_partition}."
            )

    def _lost(self, tried: dict[str, str]) -> LeadlineSparkError:
        message = "; ".join(f"{where}: {why}" for where, why in tried.items())
        message = f"No leader of {self.topic_partition} answered for {self._deadline_s:.0f} s. Tried: {message}"
        return LeadlineSparkError("LEADLINE_LEADER_UNREACHABLE", message)

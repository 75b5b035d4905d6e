"""Reading from in-sync followers, for reads with `replica=any`.

A follower serves records below its own high watermark. It may lag behind the leader, leave the ISR
or be the follower of an earlier leader. Each task then continues at the leader, which alone decides
that records are lost.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Mapping
from typing import Any

from leadline_client.errors import LeadlineError
from leadline_client.transport import Response
from leadline_client.wire import Metadata, TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient, partition_info, reason
from leadline_spark.cluster.leader_client import resource_path
from leadline_spark.codec.stored_batches import stored_headers
from leadline_spark.errors import LeadlineSparkError

logger = logging.getLogger(__name__)
RACK_VARIABLE = "LEADLINE_RACK"
"""The variable with the rack of an executor, where the option `rack` is not given."""

Shuffle = Callable[[list[str]], None]


def nearest_first(
    metadata: Metadata,
    topic_partition: TopicPartition,
    rack: str | None,
    shuffle: Shuffle = random.shuffle,
) -> list[str]:
    """Return the URLs of the followers to read from, those in the same rack first.

    Only followers in the ISR count. If the leader is in the rack, only followers in the rack are
    nearer than it, and no other is listed.
    """
    row = partition_info(metadata, topic_partition)
    if row is None:
        return []
    followers = [metadata.brokers[i] for i in row.isr if i != row.leader and i in metadata.brokers]
    near = [broker.url for broker in followers if rack is not None and broker.rack == rack]
    far = [broker.url for broker in followers if broker.url not in near]
    shuffle(near)
    shuffle(far)
    leader = metadata.brokers.get(row.leader)
    leader_is_near = rack is not None and leader is not None and leader.rack == rack
    return near if leader_is_near else near + far


class FollowerClient:
    """Fetches records of one partition from its followers, as long as one serves what is asked.

    `url` is the follower that has answered last. Not shared among threads.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        topic_partition: TopicPartition,
        topic_id: str,
        rack: str | None,
    ) -> None:
        self._cluster = cluster
        self._topic_partition = topic_partition
        self._topic_id = topic_id
        self._rack = rack or os.environ.get(RACK_VARIABLE)
        self._urls: list[str] | None = None

    @property
    def url(self) -> str | None:
        """The follower that is asked; None if only the leader is left."""
        return next(iter(self._urls or ()), None)

    def fetch(
        self, params: Mapping[str, Any], headers: Mapping[str, str], epoch: int, wait_s: float
    ) -> Response | None:
        """Return records from the nearest follower that has them, None if none has.

        A follower of a leader epoch before `epoch` is not asked again, nor one that fails or lacks
        records: whether they are lost is for the leader to say.
        """
        path = resource_path(self._topic_partition, "records")
        urls = self._known()
        while urls:
            try:
                asked = {**params, "replica": "any"}
                response = self._cluster.call("GET", urls[0], path, asked, None, headers, wait_s)
                problem = self._problem(response, int(params["offset"]), epoch)
            except LeadlineError as error:
                problem = reason(error)
            except LeadlineSparkError as failure:  # its batches have no valid headers
                problem = failure.message
            if problem is None:
                return response
            logger.info("%s: not read from %s: %s", self._topic_partition, urls[0], problem)
            del urls[0]
        return None

    def _problem(self, response: Response, position: int, epoch: int) -> str | None:
        if response.headers.get("x-leadline-topic-id") != self._topic_id:
            return "it has another topic of that name"
        if int(response.headers.get("x-leadline-leader-epoch", -1)) < epoch:
            return f"it follows a leader before epoch {epoch}"
        if not response.body:
            return "its high watermark is not there yet"
        for header in stored_headers(response.body):
            if header.base_offset > position:
                return f"it lacks offset {position}"
            position = max(position, header.next_offset)
        return None

    def _known(self) -> list[str]:
        if self._urls is None:
            self._urls = []
            try:
                metadata = self._cluster.metadata([self._topic_partition.topic])
            except LeadlineSparkError as failure:
                logger.info("%s: no followers known: %s", self._topic_partition, failure.message)
            else:
                self._urls = nearest_first(metadata, self._topic_partition, self._rack)
        return self._urls

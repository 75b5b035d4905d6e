"""The writers of one partition: `AppendWriter` appends batches, `StageWriter` stages them.

Both follow the leader until a deadline. An append with an unknown outcome is repeated with the same
sequence numbers, by which the leader recognises it. Staging can be repeated freely, because only
the batches that a commit names are published.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from leadline_client.columnar.encode import NO_PRODUCER, NO_SEQUENCE, Records, encode
from leadline_client.errors import BodyTooLarge, ConnectionLost, LeadlineError, Unreachable
from leadline_client.transport import Response
from leadline_client.wire import MOST_STAGED, TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient, document, reason
from leadline_spark.cluster.leader_client import LeaderClient, resource_path
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.write.sink_settings import SinkSettings
from leadline_spark.write.spill_file import SpilledBatch, SpillFile

logger = logging.getLogger(__name__)
_GRACE_S = 5.0
"""How much longer than the request timeout a leader may take: it waits for replicas that long."""
_SEQUENCE_MASK = 0x7FFF_FFFF


def leader_client(
    settings: SinkSettings, topic_partition: TopicPartition, leader: str | None
) -> LeaderClient:
    """Return a client for the leader of a partition; `leader` is the URL to try first."""
    cluster = ClusterClient(settings.connection)
    return LeaderClient(cluster, topic_partition, leader, deadline_s=settings.deadline_s)


def post(
    client: LeaderClient, resource: str, body: Any, params: dict[str, Any] | None = None
) -> Response:
    """Send a POST to the leader that is safe to repeat. Raises as `LeaderClient.request` does."""
    return client.request("POST", resource, params=params, body=body, wait_s=_GRACE_S)


def check_staged_count(topic_partition: TopicPartition, count: int) -> None:
    """Raise LEADLINE_PUBLISH_TOO_LARGE if one publish may not name so many staged batches."""
    if count > MOST_STAGED:
        message = (
            f"{topic_partition}: {count} staged batches are more than the {MOST_STAGED} that are "
            "published at once, and nothing is. Write larger batches (batchBytes), by fewer tasks "
            "(coalesce), or fewer rows at a time."
        )
        raise LeadlineSparkError("LEADLINE_PUBLISH_TOO_LARGE", message)


def delete_staged(client: LeaderClient, leader: str, staged_ids: Iterable[str]) -> bool:
    """Delete staged batches from one broker, without retries; return whether it answers.

    Batches that remain expire.
    """
    try:
        for staged_id in staged_ids:
            path = resource_path(client.topic_partition, f"staged/{staged_id}")
            client.cluster.call("DELETE", leader, path, wait_s=_GRACE_S)
    except LeadlineError as error:
        kept = f"{client.topic_partition}: staged batches stay until they expire"
        logger.info("%s: %s", kept, reason(error))
        return not isinstance(error, Unreachable | ConnectionLost)
    return True


def _refused(client: LeaderClient, error: LeadlineError) -> LeadlineSparkError:
    """Return the error for a batch that a leader refuses, with what can be done about its size."""
    refusal = client.refused(error)
    if not isinstance(error, BodyTooLarge):
        return refusal
    advice = (
        "Set batchBytes to less. For a row that is larger by itself, raise max.message.bytes of "
        "the topic."
    )
    return LeadlineSparkError(refusal.code, f"{refusal.message}. {advice}")


@dataclass(slots=True)
class AppendWriter:
    """Appends at least once. With acks=all, batches are numbered, and the log has each once.

    `producer` is a producer id and epoch, or NO_PRODUCER.
    """

    client: LeaderClient
    settings: SinkSettings
    producer: tuple[int, int]
    _sequence: int = field(default=0, init=False)

    def encode(self, records: Records) -> bytes:
        """Return the batch with the next sequence numbers."""
        numbered = self.producer != NO_PRODUCER
        batch = encode(
            records,
            now_ms=time.time_ns() // 1_000_000,
            producer=self.producer,
            base_sequence=self._sequence if numbered else NO_SEQUENCE,
            codec=self.settings.compression,
        )
        self._sequence = (self._sequence + len(records)) & _SEQUENCE_MASK
        return batch

    def send(self, batch: bytes) -> None:
        """Append the batch. Raises LeadlineSparkError."""
        params = {"acks": self.settings.acks, "timeout_ms": self.settings.request_timeout_ms}
        try:
            post(self.client, "records", batch, params)
        except LeadlineError as error:
            raise _refused(self.client, error) from error


@dataclass(slots=True)
class StageWriter:
    """Stages with the leader: `staged` are the ids in order, `leader` is the broker that gave them.

    Staged batches survive their leader on the replicas that were in sync. There may be none, or all
    of them may be gone after a reassignment. So the task keeps all batches until it ends, and sends
    them to the next leader again.
    """

    client: LeaderClient
    settings: SinkSettings
    spill_file: SpillFile
    now_ms: int
    staged: list[str] = field(default_factory=list, init=False)
    leader: str | None = field(default=None, init=False)
    _spilled: list[SpilledBatch] = field(default_factory=list, init=False)

    def encode(self, records: Records) -> bytes:
        """Return the batch; the leader assigns sequence numbers when it publishes it."""
        return encode(records, now_ms=self.now_ms, codec=self.settings.compression)

    def send(self, batch: bytes) -> None:
        """Stage the batch, and before it the batches that the leader lacks.

        Raises LeadlineSparkError, before it stages more than can be published.
        """
        check_staged_count(self.client.topic_partition, len(self._spilled) + 1)
        self._spilled.append(self.spill_file.append(batch))
        self._stage()

    def move_to(self, leader: str | None) -> None:
        """Stage everything again if another broker leads now."""
        if leader is not None and leader != self.leader:
            self._restart(leader)
            self._stage()

    def _restart(self, leader: str) -> None:
        """Forget the staged ids, and delete from the new leader what it has, the latest first."""
        delete_staged(self.client, leader, reversed(self.staged))
        self.staged.clear()

    def _stage(self) -> None:
        while len(self.staged) < len(self._spilled):
            batch = self.spill_file.read(self._spilled[len(self.staged)])
            try:
                response = post(self.client, "staged", batch)
            except LeadlineError as error:
                raise _refused(self.client, error) from error
            before, self.leader = self.leader, self.client.leader
            self.staged.append(document(response)["staged_id"])
            if len(self.staged) > 1 and before != self.leader and self.leader is not None:
                # Batches are published in the order in which one leader staged them.
                self._restart(self.leader)

"""How batches reach the leader of a partition: appended at once, or staged for a commit.

Both follow the leader until a deadline. An append whose outcome is unknown is repeated with the
sequence numbers it had, so that the leader knows it again; staging may be repeated freely, as what
is staged twice is published once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.cluster.routing import Route
from leadline_spark.cluster.transport import Answer, Refusal, Unreachable
from leadline_spark.codec.encode import NO_PRODUCER, NO_SEQUENCE, Records, encode
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.write.sink_settings import SinkSettings
from leadline_spark.write.spill_file import SpilledBatch, SpillFile

logger = logging.getLogger(__name__)
_GRACE_S = 5.0
_SEQUENCE_MASK = 0x7FFF_FFFF


class LeaderClient:
    """The way to the leader of one partition, for requests that may be repeated."""

    def __init__(
        self,
        connection: Connection,
        topic_partition: TopicPartition,
        leader: str | None,
        deadline_s: float,
    ) -> None:
        self.cluster = ClusterClient(connection)
        self.topic_partition = topic_partition
        self.route = Route(self.cluster, topic_partition, leader, deadline_s=deadline_s)

    def ask(
        self, method: str, rest: str, body: Any = None, params: dict[str, Any] | None = None
    ) -> Answer:
        """Ask the leader, again where the outcome is unknown. Raises Refusal as Route does."""

        def call(url: str) -> Answer:
            try:
                return self.once(method, url, rest, body, params)
            except Refusal as refusal:
                raise repeatable(refusal) from refusal

        return self.route.ask(call)

    def once(
        self,
        method: str,
        url: str,
        rest: str,
        body: Any = None,
        params: dict[str, Any] | None = None,
    ) -> Answer:
        """Ask one broker, once. Raises Refusal and Unreachable."""
        path = f"/v1/topics/{quote(self.topic_partition.topic)}/partitions/{self.topic_partition.partition}/{rest}"
        return self.cluster.call(method, url, path, params, body, wait_s=_GRACE_S)

    def drop(self, leader: str, staged_ids: Iterable[str]) -> bool:
        """Delete what is staged, as far as it can be; return whether that leader answers.

        The rest dies of age.
        """
        try:
            for staged_id in staged_ids:
                self.once("DELETE", leader, f"staged/{staged_id}")
        except Refusal as refusal:
            logger.info(
                "%s: what was staged stays until it expires: %s", self.topic_partition, refusal
            )
        except Unreachable as failure:
            logger.info(
                "%s: what was staged stays until it expires: %s", self.topic_partition, failure
            )
            return False
        return True

    def refused(self, refusal: Refusal, code: str = "LEADLINE_REFUSED") -> LeadlineSparkError:
        """Return the error of a task for a refusal that is final."""
        message = f"{self.topic_partition}: {self.route.leader} refused: {refusal}"
        return LeadlineSparkError(code, message)


class AppendWriter:
    """Appends, at least once: numbered, where the leader's answer is for all replicas."""

    def __init__(
        self, leader_client: LeaderClient, settings: SinkSettings, producer: tuple[int, int]
    ) -> None:
        self._leader_client = leader_client
        self._settings = settings
        self._producer = producer
        self._sequence = 0

    def encode(self, records: Records) -> bytes:
        """Return the batch with the next sequence numbers."""
        numbered = self._producer != NO_PRODUCER
        batch = encode(
            records,
            now_ms=time.time_ns() // 1_000_000,
            producer=self._producer,
            base_sequence=self._sequence if numbered else NO_SEQUENCE,
            codec=self._settings.compression,
        )
        self._sequence = (self._sequence + len(records)) & _SEQUENCE_MASK
        return batch

    def send(self, batch: bytes) -> None:
        """Append the batch. Raises LeadlineSparkError."""
        params = {"acks": self._settings.acks, "timeout_ms": self._settings.request_timeout_ms}
        try:
            self._leader_client.ask("POST", "records", batch, params)
        except Refusal as refusal:
            raise self._leader_client.refused(refusal) from refusal


class StageWriter:
    """Stages with the leader; `staged` are the ids, in order, and `leader` is who gave them.

    What is staged outlives its leader with the replicas that were in sync. There may be none, or
    none of them left once the partition has moved: so all of it is kept until the task ends, and
    goes to the next leader once more.
    """

    def __init__(
        self,
        leader_client: LeaderClient,
        settings: SinkSettings,
        spill_file: SpillFile,
        now_ms: int,
    ) -> None:
        self._leader_client = leader_client
        self._settings = settings
        self._spill_file = spill_file
        self._now_ms = now_ms
        self._kept: list[SpilledBatch] = []
        self.staged: list[str] = []
        self.leader: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self._leader_client.topic_partition

    def encode(self, records: Records) -> bytes:
        """Return the batch; the leader numbers it when it is published."""
        return encode(records, now_ms=self._now_ms, codec=self._settings.compression)

    def send(self, batch: bytes) -> None:
        """Stage the batch, and whatever the present leader lacks before it.

        Raises LeadlineSparkError.
        """
        self._kept.append(self._spill_file.keep(batch))
        self._stage()

    def follow(self, leader: str | None) -> None:
        """Stage everything anew if somebody else leads by now."""
        if leader is not None and leader != self.leader:
            self._restart(leader)
            self._stage()

    def _restart(self, leader: str) -> None:
        """Forget what was staged, and have the next leader do so, from the latest on."""
        self._leader_client.drop(leader, reversed(self.staged))
        self.staged.clear()

    def _stage(self) -> None:
        while len(self.staged) < len(self._kept):
            batch = self._spill_file.read(self._kept[len(self.staged)])
            try:
                answer = self._leader_client.ask("POST", "staged", batch).json()
            except Refusal as refusal:
                raise self._leader_client.refused(refusal) from refusal
            before, self.leader = self.leader, self._leader_client.route.leader
            self.staged.append(answer["staged_id"])
            if len(self.staged) > 1 and before != self.leader and self.leader is not None:
                # Batches are published in their order: begin again.
                self._restart(self.leader)


def repeatable(refusal: Refusal) -> Refusal:
    """Return the refusal as one to try again after, where its outcome is unknown.

    Only for requests that the leader recognises when they are repeated.
    """
    if refusal.outcome != "unknown" or refusal.retriable:
        return refusal
    return Refusal(
        refusal.status, refusal.error_code, refusal.message, "unknown", True, refusal.details
    )

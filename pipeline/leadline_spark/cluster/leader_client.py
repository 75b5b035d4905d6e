"""Requests to the leader of a partition, which may move while they are sent.

The client follows a refusal that names the new leader at once, and otherwise looks the leader up in
the metadata. The deadline starts again with each request, so that a long read survives any number
of elections, but fails when the cluster is gone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from leadline_client.backoff import backoff_pause
from leadline_client.errors import LeadlineError
from leadline_client.transport import Response
from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import (
    ClusterClient,
    document,
    leader_url,
    partition_info,
    reason,
)
from leadline_spark.errors import LeadlineSparkError

T = TypeVar("T")
_UNKNOWN = ". The outcome of an attempt is unknown: it may have been carried out."
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_GONE_S = 5.0
"""How long the metadata must lack a topic until it counts as deleted: a new one may be missing."""


def resource_path(topic_partition: TopicPartition, resource: str) -> str:
    """Return the path of a resource below a partition, such as `records`."""
    topic, partition = topic_partition
    return f"/v1/topics/{quote(topic)}/partitions/{partition}/{resource}"


@dataclass(slots=True)
class LeaderClient:
    """Sends requests to the leader of one partition. Not shared among threads.

    `leader` is the URL to try first, None to look it up. With `topic_id`, a topic of the same name
    and another id is an error. An error after a write whose outcome is unknown says so.
    """

    cluster: ClusterClient
    topic_partition: TopicPartition
    leader: str | None = None
    _: KW_ONLY
    topic_id: str | None = None
    deadline_s: float = 60.0
    _missing_since: float | None = field(default=None, init=False)
    _maybe_done: bool = field(default=False, init=False)

    def request(
        self,
        method: str,
        resource: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> Response:
        """Send a request until the leader answers, or until the deadline.

        It is repeated after an unknown outcome too, so it must be safe to repeat.

        Raises:
            LeadlineError: the leader refused, and any other leader would refuse as well.
            LeadlineSparkError: LEADLINE_LEADER_UNREACHABLE, _TOPIC_UNKNOWN or _TOPIC_RECREATED.

        """
        path = resource_path(self.topic_partition, resource)
        self._maybe_done = False

        def call(url: str) -> Response:
            try:
                return self.cluster.call(method, url, path, params, body, headers, wait_s)
            except LeadlineError as error:
                self._maybe_done |= method != "GET" and error.outcome == "unknown"
                raise

        return self._until_answered(call)

    def find_leader(self) -> None:
        """Look the leader up in the metadata until there is one. Raises LeadlineSparkError."""
        self.leader = None
        self._until_answered(lambda _: None)

    def end_of_epoch(self, epoch: int) -> int:
        """Return where a leader epoch ends in the leader's log (KIP-320).

        It is where later epochs begin if the log does not have that epoch. Raises as `request`.
        """
        end: int = document(self.request("GET", f"epochs/{epoch}"))["end_offset"]
        return end

    def refused(self, error: LeadlineError, code: str = "LEADLINE_REFUSED") -> LeadlineSparkError:
        """Return the error of a task for a final refusal."""
        message = f"{self.topic_partition}: {self.leader} refused: {reason(error)}"
        return LeadlineSparkError(code, message + self._unknown())

    def _until_answered(self, call: Callable[[str], T]) -> T:
        give_up = time.monotonic() + self.deadline_s
        failures = 0
        tried: dict[str, str] = {}
        while True:
            asked_s = 0.0
            if self.leader is None:
                self._look_up(tried)
            if self.leader is not None:
                try:
                    return call(self.leader)
                except LeadlineError as error:
                    if not (error.retriable or error.outcome == "unknown"):
                        raise
                    tried[self.leader] = reason(error)
                    asked_s = error.retry_after_s
                    self._follow_hint(error, tried)
            if time.monotonic() + asked_s >= give_up:
                raise self._unreachable(tried)
            if self.leader is None:
                failures += 1
                time.sleep(asked_s + _pause_s(failures))

    def _follow_hint(self, error: LeadlineError, tried: dict[str, str]) -> None:
        """Go on with the leader that a refusal names, unless it was tried before."""
        url = error.leader.url if error.leader else None
        self.leader = url if url and url not in tried else None

    def _look_up(self, tried: dict[str, str]) -> None:
        """Look the leader up in the metadata. A missing leader is no error before the deadline."""
        try:
            metadata = self.cluster.metadata([self.topic_partition.topic])
        except LeadlineSparkError as failure:
            tried["metadata"] = failure.message
            return
        if partition_info(metadata, self.topic_partition) is None:
            tried["metadata"] = "there is no such partition"
            self._check_missing()
            return
        self._missing_since = None
        self._check_topic_id(metadata.topics[self.topic_partition.topic].topic_id)
        self.leader = leader_url(metadata, self.topic_partition)
        if self.leader is None:
            tried["metadata"] = "the partition has no leader"

    def _check_missing(self) -> None:
        now = time.monotonic()
        self._missing_since = self._missing_since or now
        if now - self._missing_since >= min(_GONE_S, self.deadline_s / 2):
            message = f"There is no {self.topic_partition}."
            raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", message)

    def _check_topic_id(self, topic_id: str) -> None:
        if self.topic_id is not None and topic_id != self.topic_id:
            name = self.topic_partition.topic
            message = f"{name} was deleted and recreated: its id was {self.topic_id}"
            raise LeadlineSparkError("LEADLINE_TOPIC_RECREATED", f"{message}, is {topic_id}.")

    def _unreachable(self, tried: dict[str, str]) -> LeadlineSparkError:
        attempts = "; ".join(f"{address}: {why}" for address, why in tried.items())
        # It may well have answered: that too few replicas are in sync, for example.
        message = f"No leader of {self.topic_partition} served this within {self.deadline_s:.0f} s."
        return LeadlineSparkError(
            "LEADLINE_LEADER_UNREACHABLE", f"{message} Tried: {attempts}{self._unknown()}"
        )

    def _unknown(self) -> str:
        return _UNKNOWN if self._maybe_done else ""


def _pause_s(failures: int) -> float:
    return backoff_pause(
        failures, first=_FIRST_PAUSE_S, longest=_LONGEST_PAUSE_S, random=random.random()
    )

"""One task of a read: the records of a range, from whoever leads, whole or with an error.

A task never ends short silently. Offsets that are missing must be accounted for by the headers of
batches; that a leader of a later epoch still has what was planned is asked of its epoch history.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.cluster.routing import Route
from leadline_spark.cluster.transport import OCTETS, Answer, Refusal
from leadline_spark.codec.checksum import checksum
from leadline_spark.codec.decode import decode
from leadline_spark.codec.frames import frames
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import UNKNOWN_EPOCH
from leadline_spark.read.planning import Range

logger = logging.getLogger(__name__)
_OUT_OF_RANGE = 416
_GONE = frozenset({"LEADLINE_TOPIC_RECREATED", "LEADLINE_TOPIC_UNKNOWN"})
_WAIT_MS = 1_000
_HEADERS = {"Accept": OCTETS}
# Uncompressed: a proxy's gzip would cost more than it saves on batches that are compressed already.


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How tasks read; pickled into each of them."""

    columns: tuple[str, ...]
    fetch_max_bytes: int = 4 << 20
    deadline_s: float = 60.0
    fail_on_data_loss: bool = True
    decoder: str = "auto"


def read_range(
    connection: Connection, asked: Range, leader: str | None, settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order. `leader` is where to ask first, if anybody knows.

    Raises LeadlineSparkError: LEADLINE_DATA_LOSS, _TOPIC_RECREATED, _TOPIC_UNKNOWN,
    _LEADER_UNREACHABLE, _BATCH_CORRUPT, _REFUSED.
    """
    return _Reading(ClusterClient(connection), asked, leader, settings).run()


class _Reading:
    """A range that is being read: `position` is the next offset, `end` may come down."""

    def __init__(
        self, cluster: ClusterClient, asked: Range, leader: str | None, settings: ReadSettings
    ) -> None:
        self._asked = asked
        self._settings = settings
        self._route = Route(
            cluster, asked.topic_partition, leader, asked.topic_id, settings.deadline_s
        )
        self._cluster = cluster
        self._checksum = checksum(settings.decoder)
        self._epoch = asked.end_epoch
        self._moved = time.monotonic()
        self.position = asked.start
        self.end = asked.end

    def run(self) -> Iterator[pa.RecordBatch]:
        """Fetch and decode until the end is reached, or losses are accepted and the topic is gone.

        Raises LeadlineSparkError.
        """
        try:
            yield from self._batches()
        except LeadlineSparkError as failure:
            if self._settings.fail_on_data_loss or failure.code not in _GONE:
                raise
            logger.warning("%s: %s", failure.code, failure.message)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while self.position < self.end:
            answer = self._fetch()
            if answer is None:
                continue
            begin, self.position = self.position, self._next(answer.body)
            if self.position == begin:
                self._stalled(answer)
                continue
            yield from self._decoded(answer.body, begin)
            # Not before: whoever takes the records may be long about it, which is no waiting.
            self._moved = time.monotonic()

    def _decoded(self, body: bytes, begin: int) -> Iterator[pa.RecordBatch]:
        topic_partition, columns = self._asked.topic_partition, self._settings.columns
        try:
            yield from decode(
                body,
                begin,
                self.end,
                columns,
                topic_partition.topic,
                topic_partition.partition,
                self._checksum,
            )
        except LeadlineSparkError as failure:
            message = f"{self._asked} of {self._route.leader}: {failure.message}"
            raise LeadlineSparkError(failure.code, message) from failure

    def _fetch(self) -> Answer | None:
        """Ask the leader for what is next; None where the range had to be changed first."""
        params = {
            "offset": self.position,
            "max_bytes": self._settings.fetch_max_bytes,
            "wait_ms": _WAIT_MS,
        }
        path = self._path("records")

        def call(url: str) -> Answer:
            return self._cluster.call("GET", url, path, params, headers=_HEADERS, wait_s=1.0)

        try:
            answer = self._route.ask(call)
        except Refusal as refusal:
            self._refused(refusal)
            return None
        self._same_topic(answer)
        return answer if self._still_there(answer) else None

    def _path(self, rest: str) -> str:
        topic_partition = self._asked.topic_partition
        return f"/v1/topics/{topic_partition.topic}/partitions/{topic_partition.partition}/{rest}"

    def _next(self, body: bytes) -> int:
        """Return the offset after these batches, which must follow on what was read before."""
        position = self.position
        for frame in frames(body):
            if frame.base_offset > position:
                self._hole(position, min(frame.base_offset, self.end))
            if frame.base_offset >= self.end:
                return self.end
            position = max(position, frame.last_offset + 1)
        return min(position, self.end)

    def _hole(self, first: int, beyond: int) -> None:
        # No batch accounts for these offsets: batches that were emptied by compaction stay.
        if first < beyond:
            self._loss(f"offsets {first} to {beyond - 1} are in no batch of the log")

    def _same_topic(self, answer: Answer) -> None:
        found = answer.headers.get("x-leadline-topic-id")
        if found is not None and found != self._asked.topic_id:
            message = f"{self._asked}: the topic was deleted and made anew while it was read."
            raise LeadlineSparkError("LEADLINE_TOPIC_RECREATED", message)

    def _still_there(self, answer: Answer) -> bool:
        """Ask a leader of a later epoch whether the end of the range is still what it was."""
        epoch = int(answer.headers.get("x-leadline-leader-epoch", self._epoch))
        if self._epoch in (UNKNOWN_EPOCH, epoch):
            self._epoch = epoch
            return True
        end = self._end_of_epoch()
        self._epoch = epoch
        if end >= self.end:
            return True
        message = f"offsets {end} to {self.end - 1} were cut off by an election in epoch {epoch}"
        self._loss(message)
        self.end = max(end, self.position)
        return self.position < self.end

    def _end_of_epoch(self) -> int:
        """Return where the epoch of the plan ends now: where later ones begin, if it is unknown."""
        path = self._path(f"epochs/{self._asked.end_epoch}")
        try:
            found = self._route.ask(lambda url: self._cluster.call("GET", url, path)).json()
        except Refusal as refusal:
            raise self._error(refusal) from refusal
        end: int = found["end_offset"]
        return end

    def _refused(self, refusal: Refusal) -> None:
        if refusal.status != _OUT_OF_RANGE:
            raise self._error(refusal) from refusal
        start = int(refusal.details.get("log_start_offset", 0))
        if start > self.position:
            gone = min(start, self.end)
            self._loss(
                f"offsets {self.position} to {gone - 1} were deleted: the log begins at {start}"
            )
            self.position = gone
        else:
            # The log ends before what was committed once: it was cut, or the topic is another.
            self._route.leader = None
            self._route.ask(lambda _: None)
            self._loss(f"offset {self.position} is beyond the end of the log: {refusal.message}")
            self.end = self.position

    def _stalled(self, answer: Answer) -> None:
        """Nothing came: a new leader does not yet know how far records are committed.

        It may not for long, where too few replicas are in sync. What is to be read was committed,
        and its epoch is whole: that is no loss, and nothing may be left out.
        """
        if time.monotonic() - self._moved < self._settings.deadline_s:
            return
        end = answer.headers.get("x-leadline-high-watermark")
        message = (
            f"{self._asked} of {self._route.leader}: offset {self.position} was not readable for"
        )
        message = (
            f"{message} {self._settings.deadline_s:.0f} s, as the high watermark there is {end}."
        )
        advice = " What was committed will be again: wait until enough replicas are in sync."
        raise LeadlineSparkError("LEADLINE_LEADER_UNREACHABLE", message + advice)

    def _loss(self, what: str) -> None:
        """Fail, or say so in the log where the user wants to go on."""
        message = f"{self._asked} of {self._route.leader}: {what}."
        if self._settings.fail_on_data_loss:
            advice = " To go on without these records set failOnDataLoss to false."
            raise LeadlineSparkError("LEADLINE_DATA_LOSS", message + advice)
        logger.warning("LEADLINE_DATA_LOSS: %s", message)

    def _error(self, refusal: Refusal) -> LeadlineSparkError:
        message = f"{self._asked}: {self._route.leader} refused: {refusal}"
        return LeadlineSparkError("LEADLINE_REFUSED", message)

"""One task of a read: fetch and decode the records of a range of a partition.

They come from the leader or, with `replica=any`, from an in-sync follower while one has them.

A task never returns fewer records without an error. Headers of batches must account for missing
offsets, and a leader of a later epoch is asked by KIP-320 whether it still has the planned range.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from leadline_client.errors import LeadlineError, OffsetOutOfRange
from leadline_client.read_ahead import one_ahead
from leadline_client.transport import OCTETS, Response
from leadline_spark.cluster.cluster_client import ClusterClient, Connection, reason
from leadline_spark.cluster.leader_client import LeaderClient
from leadline_spark.codec.stored_batches import checksum, decode, stored_headers
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.data_loss import report_loss
from leadline_spark.read.offsets import UNKNOWN_EPOCH
from leadline_spark.read.planning import Range
from leadline_spark.read.replicas import FollowerClient

logger = logging.getLogger(__name__)
_TOPIC_GONE = frozenset({"LEADLINE_TOPIC_RECREATED", "LEADLINE_TOPIC_UNKNOWN"})
_WAIT_S = 1.0
# No Accept-Encoding: a proxy's gzip would cost more than it saves on batches that are compressed.
_HEADERS = {"Accept": OCTETS}


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How tasks read; pickled into each of them."""

    columns: tuple[str, ...]
    fetch_max_bytes: int = 16 << 20
    deadline_s: float = 60.0
    fail_on_data_loss: bool = True
    decoder: str = "auto"
    any_replica: bool = False
    rack: str | None = None


def read_range(
    connection: Connection, asked: Range, leader: str | None, settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order. `leader` is the URL to try first, None if unknown.

    Raises LeadlineSparkError: LEADLINE_DATA_LOSS, _TOPIC_RECREATED, _TOPIC_UNKNOWN,
    _LEADER_UNREACHABLE, _BATCH_CORRUPT, _REFUSED.
    """
    return _RangeReader(ClusterClient(connection), asked, leader, settings).run()


class _Fetched(NamedTuple):
    """Stored batches, of which a task wants the records with `start <= offset < end`.

    `source` is the URL of the replica that they came from.
    """

    body: bytes
    start: int
    end: int
    source: str | None


class _RangeReader:
    """Reads one range. `position` is the next offset; `end` decreases if records are lost."""

    def __init__(
        self, cluster: ClusterClient, asked: Range, leader: str | None, settings: ReadSettings
    ) -> None:
        self._asked = asked
        self._settings = settings
        self._client = LeaderClient(
            cluster,
            asked.topic_partition,
            leader,
            topic_id=asked.topic_id,
            deadline_s=settings.deadline_s,
        )
        self._followers = (
            FollowerClient(cluster, asked.topic_partition, asked.topic_id, settings.rack)
            if settings.any_replica
            else None
        )
        self._checksum = checksum(settings.decoder)
        self._epoch = asked.end_epoch
        self._progressed_at = time.monotonic()
        self.position = asked.start
        self.end = asked.end

    def run(self) -> Iterator[pa.RecordBatch]:
        """Fetch and decode until the end; if losses are accepted, stop where the topic is gone.

        Raises LeadlineSparkError.
        """
        try:
            yield from self._batches()
        except LeadlineSparkError as failure:
            if self._settings.fail_on_data_loss or failure.code not in _TOPIC_GONE:
                raise
            logger.warning("%s: %s", failure.code, failure.message)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Decode what was fetched, while the next batches are fetched."""
        for fetched in one_ahead(self._fetched()):
            yield from self._decoded(fetched)

    def _fetched(self) -> Iterator[_Fetched]:
        """Fetch the whole range, batch by batch."""
        while self.position < self.end:
            response = self._fetch()
            if response is None:
                continue
            begin, self.position = self.position, self._next_position(response.body)
            if self.position == begin:
                self._check_stalled(response)
                continue
            yield _Fetched(response.body, begin, self.end, self._source)
            # Set after the yield: the time in which nobody asks for more does not count.
            self._progressed_at = time.monotonic()

    def _decoded(self, fetched: _Fetched) -> Iterator[pa.RecordBatch]:
        body, start, end, source = fetched
        topic, partition = self._asked.topic_partition
        try:
            columns = self._settings.columns
            yield from decode(body, start, end, columns, topic, partition, self._checksum)
        except LeadlineSparkError as failure:
            message = f"{self._asked} of {source}: {failure.message}"
            raise LeadlineSparkError(failure.code, message) from failure

    @property
    def _source(self) -> str | None:
        """The URL of the replica that is read."""
        return (self._followers.url if self._followers else None) or self._client.leader

    def _fetch(self) -> Response | None:
        """Fetch the next batches; None if the range had to be changed first."""
        params = {
            "offset": self.position,
            "max_bytes": self._settings.fetch_max_bytes,
            "wait_ms": round(_WAIT_S * 1_000),
        }
        try:
            response = self._from_follower(params) or self._client.request(
                "GET", "records", params=params, headers=_HEADERS, wait_s=_WAIT_S
            )
        except OffsetOutOfRange as error:
            self._on_out_of_range(error)
            return None
        except LeadlineError as error:
            raise self._error(error) from error
        self._check_topic_id(response)
        return response if self._check_epoch(response) else None

    def _from_follower(self, params: Mapping[str, int]) -> Response | None:
        if self._followers is None:
            return None
        return self._followers.fetch(params, _HEADERS, self._epoch, _WAIT_S)

    def _next_position(self, body: bytes) -> int:
        """Return the offset after these batches, and check that they leave no gap."""
        position = self.position
        for header in stored_headers(body):
            gap_end = min(header.base_offset, self.end)
            if position < gap_end:
                self._report_loss(f"offsets {position} to {gap_end - 1} are in no batch of the log")
            if header.base_offset >= self.end:
                return self.end
            position = max(position, header.next_offset)
        return min(position, self.end)

    def _check_topic_id(self, response: Response) -> None:
        found = response.headers.get("x-leadline-topic-id")
        if found is not None and found != self._asked.topic_id:
            message = f"{self._asked}: the topic was deleted and recreated while it was read."
            raise LeadlineSparkError("LEADLINE_TOPIC_RECREATED", message)

    def _check_epoch(self, response: Response) -> bool:
        """Check that a leader of a later epoch has the whole range; False if nothing is left."""
        epoch = int(response.headers.get("x-leadline-leader-epoch", self._epoch))
        if self._epoch in (UNKNOWN_EPOCH, epoch):
            self._epoch = epoch
            return True
        try:
            end = self._client.end_of_epoch(self._asked.end_epoch)
        except LeadlineError as error:
            raise self._error(error) from error
        self._epoch = epoch
        if end >= self.end:
            return True
        cut = f"offsets {end} to {self.end - 1}"
        self._report_loss(f"{cut} were cut off by an election in epoch {epoch}")
        self.end = max(end, self.position)
        return self.position < self.end

    def _on_out_of_range(self, error: OffsetOutOfRange) -> None:
        start = int(error.details.get("log_start_offset", 0))
        if start > self.position:
            end = min(start, self.end)
            gone = f"offsets {self.position} to {end - 1} were deleted"
            self._report_loss(f"{gone}: the log begins at {start}")
            self.position = end
        else:
            # The log ends before what was committed: it was truncated, or the topic recreated.
            self._client.find_leader()
            beyond = f"offset {self.position} is beyond the end of the log"
            self._report_loss(f"{beyond}: {error.message}")
            self.end = self.position

    def _check_stalled(self, response: Response) -> None:
        """Raise LEADLINE_LEADER_UNREACHABLE if there was no progress until the deadline.

        A new leader does not know the high watermark until enough replicas are in sync. The range
        was committed and its epoch is whole, so nothing is lost, and nothing may be skipped.
        """
        if time.monotonic() - self._progressed_at < self._settings.deadline_s:
            return
        end = response.headers.get("x-leadline-high-watermark")
        reader = f"{self._asked} of {self._client.leader}"
        waited = f"was not readable for {self._settings.deadline_s:.0f} s"
        message = (
            f"{reader}: offset {self.position} {waited}, as the high watermark there is {end}. "
            "What was committed will be again: wait until enough replicas are in sync."
        )
        raise LeadlineSparkError("LEADLINE_LEADER_UNREACHABLE", message)

    def _report_loss(self, what: str) -> None:
        message = f"{self._asked} of {self._source}: {what}"
        report_loss(message, fail=self._settings.fail_on_data_loss)

    def _error(self, error: LeadlineError) -> LeadlineSparkError:
        message = f"{self._asked}: {self._client.leader} refused: {reason(error)}"
        return LeadlineSparkError("LEADLINE_REFUSED", message)

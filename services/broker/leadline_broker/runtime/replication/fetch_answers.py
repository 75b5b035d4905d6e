"""The rows of a response to a follower, and what they tell of producers."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from leadline_broker.domain.producers import NO_PRODUCER_ID
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import FetchSessionUnknown, OffsetOutOfRange, UnknownPartition
from leadline_common.long_lived import collector_paused
from leadline_common.rpc import FetchedRow, FetchedTopic, FetchRow

MOST_KNOWN: Final = 10_000
"""About how many producers and applications one response tells of: 10 ms, and a megabyte."""


class FetchAnswers:
    """The rows of one response, grouped by topic; see `ReplicaFetchRequest.takes_parts`."""

    def __init__(self, *, takes_parts: bool) -> None:
        self._topics: dict[str, list[FetchedRow]] = {}
        self._most = MOST_KNOWN if takes_parts else None
        self._known = 0
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._topics)

    def add(self, topic_id: str, row: FetchedRow) -> None:
        """Add a row."""
        self._topics.setdefault(topic_id, []).append(row)
        self.size += len(row.records)

    def add_unknown(self, topic_id: str, row: FetchRow) -> None:
        """Answer that there is no such partition here."""
        asked = row.partition, row.leader_epoch, row.fetch_offset, row.last_epoch
        self.add(topic_id, FetchedRow(*asked, UnknownPartition.code, -1, 0))

    def with_known(
        self, partition: Partition, answer: FetchedRow, told: tuple[int, int] | None = None
    ) -> FetchedRow:
        """Add what the follower's log will not tell if it has to restart at the log start.

        If that would be too much, the follower has to state its position again, as it does later.
        `told` is `FetchRow.told`.
        """
        if answer.error_code != OffsetOutOfRange.code:
            return answer
        if self._known >= MOST_KNOWN:
            return replace(answer, error_code=FetchSessionUnknown.code)
        start, after = told or (answer.log_start_offset, NO_PRODUCER_ID)
        if start != answer.log_start_offset:  # Retention has deleted more since.
            after = NO_PRODUCER_ID
        with collector_paused():
            known = partition.log.producers.before(answer.log_start_offset, after, self._most)
        self._known += len(known.producers) + len(known.publishes)
        return replace(answer, known=known)

    def topics(self) -> list[FetchedTopic]:
        """Return the rows."""
        return [FetchedTopic(topic_id, rows) for topic_id, rows in self._topics.items()]

"""A topic of the metadata that a broker serves: its rows, and when each of them changed.

Its fragments of documents are encoded when they are first requested. Pure: no IO.
"""

from __future__ import annotations

import msgspec

from leadline_broker.domain.metadata_history import ChangesSince
from leadline_common.rpc import PartitionRow, TopicRows

_json = msgspec.json.encode


class ServedTopic:
    """A topic as it is after one step of the metadata's history.

    `changed_in` is the step of the latest change. `whole_since` is the step from which on all
    changes can be sent as rows: the topic was created in it, or recreated, or lost a partition.
    One that has a single partition is always sent whole.
    """

    __slots__ = (
        "_changes",
        "_fragment",
        "_row_steps",
        "changed_in",
        "rows",
        "topic_id",
        "whole_since",
    )

    def __init__(self, topic: TopicRows, step: int, known: ServedTopic | None = None) -> None:
        self.topic_id = topic.topic_id
        self.rows = {row.partition: row for row in topic.partitions}
        self.changed_in = step
        self._fragment: bytes | None = None
        self._changes: tuple[int, bytes] | None = None
        self._row_steps: list[int] | None = None
        self.whole_since = step
        if known is not None and self._continues(known):
            before, steps = known.rows, known._steps()
            self.whole_since = known.whole_since
            self._row_steps = [
                steps[number] if before.get(number) == row else step
                for number, row in self.rows.items()
            ]

    def _continues(self, known: ServedTopic) -> bool:
        """Tell whether rows say what has changed; those of a single partition are the topic."""
        return (
            len(self.rows) > 1
            and known.topic_id == self.topic_id
            and known.rows.keys() <= self.rows.keys()
        )

    @property
    def is_encoded(self) -> bool:
        """Whether the fragment of the whole document has been requested before."""
        return self._fragment is not None

    def equals(self, topic: TopicRows) -> bool:
        """Tell whether a topic has this id and exactly these rows."""
        return (
            self.topic_id == topic.topic_id
            and len(self.rows) == len(topic.partitions)
            and all(self.rows.get(row.partition) == row for row in topic.partitions)
        )

    def fragment(self, name: str) -> bytes:
        """Return the whole topic, `"name":{…}`, as JSON."""
        if self._fragment is None:
            self._fragment = self._encode(name, list(self.rows.values()))
        return self._fragment

    def changes(self, name: str, since: ChangesSince) -> tuple[bytes, bool]:
        """Return what a caller lacks, `"name":{…}`, and whether that is the whole topic.

        It is empty if what has changed is not part of the document.
        """
        if since.whole_topics or self.whole_since > since.step or self._row_steps is None:
            return self.fragment(name), True
        if self._changes is None or self._changes[0] != since.step:
            steps = self._row_steps
            rows = [
                row
                for row, step in zip(self.rows.values(), steps, strict=True)
                if step > since.step
            ]
            # Callers ask from few states, and most of them from the same one.
            self._changes = (since.step, self._encode(name, rows) if rows else b"")
        return self._changes[1], False

    def _steps(self) -> dict[int, int]:
        if self._row_steps is None:
            return dict.fromkeys(self.rows, self.changed_in)
        return dict(zip(self.rows, self._row_steps, strict=True))

    def _encode(self, name: str, rows: list[PartitionRow]) -> bytes:
        partitions = [
            (row.partition, row.leader, row.leader_epoch, row.isr, row.replicas)
            for row in sorted(rows, key=lambda row: row.partition)
        ]
        body = {"topic_id": self.topic_id, "partitions": partitions}
        return b"%s:%s" % (_json(name), _json(body))

"""Which partitions are read: by names of topics, by a pattern, or one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import Metadata
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.offsets import parse_assign

WAYS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class SourceSubscription:
    """One of the three: `topics`, `pattern`, or `topic_partitions`."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    topic_partitions: tuple[TopicPartition, ...] = ()

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options, exactly one of which is to be given. Raises LeadlineSparkError."""
        given = [way for way in WAYS if way in options]
        if len(given) != 1:
            code = "LEADLINE_OPTION_CONFLICT" if given else "LEADLINE_OPTION_MISSING"
            message = (
                f"Give exactly one of {', '.join(WAYS)}; {', '.join(given) or 'none'} is given."
            )
            raise LeadlineSparkError(code, message)
        made = cls(
            options.names("subscribe"),
            _pattern(options.text("subscribePattern")),
            parse_assign(options.document("assign")) if "assign" in options else (),
        )
        if not (made.topics or made.pattern or made.topic_partitions):
            message = f"{given[0]} is empty: there is nothing to read."
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
        return made

    def asked(self) -> tuple[str, ...] | None:
        """Return the topics to ask metadata of; None for all."""
        if self.pattern is not None:
            return None
        return tuple(
            sorted(
                {
                    *self.topics,
                    *(topic_partition.topic for topic_partition in self.topic_partitions),
                }
            )
        )

    def chosen(self, metadata: Metadata) -> dict[TopicPartition, str]:
        """Return the partitions that are there, with their topics' ids, sorted."""
        if self.topic_partitions:
            found: Iterable[TopicPartition] = self.topic_partitions
        else:
            found = [
                TopicPartition(name, number)
                for name, topic in metadata.topics.items()
                if self._wants(name)
                for number in topic.partitions
            ]
        there = metadata.topics
        return {
            topic_partition: there[topic_partition.topic].topic_id
            for topic_partition in sorted(found)
            if topic_partition.topic in there
            and topic_partition.partition in there[topic_partition.topic].partitions
        }

    def missing(self, metadata: Metadata) -> list[str]:
        """Return what was named and does not exist: topics, or partitions."""
        absent = [name for name in self.topics if name not in metadata.topics]
        there = self.chosen(metadata)
        return absent + [
            str(topic_partition)
            for topic_partition in self.topic_partitions
            if topic_partition not in there
        ]

    def _wants(self, name: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, name) is not None
        return name in self.topics


def _pattern(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        re.compile(text)
    except re.error as failure:
        message = f"subscribePattern {text!r} is no regular expression: {failure}"
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message) from failure
    return text

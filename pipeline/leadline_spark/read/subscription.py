"""Which partitions are read: by names of topics, by a pattern, or one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from leadline_client.wire import Metadata, TopicPartition
from leadline_spark.cluster.cluster_client import partition_info
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.offsets import parse_assign

WAYS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class SourceSubscription:
    """The partitions of a read, by exactly one of `topics`, `pattern`, and `assigned`."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options, exactly one of which must be given. Raises LeadlineSparkError."""
        given = [way for way in WAYS if way in options]
        if len(given) != 1:
            code = "LEADLINE_OPTION_CONFLICT" if given else "LEADLINE_OPTION_MISSING"
            found = ", ".join(given) or "none"
            message = f"Give exactly one of {', '.join(WAYS)}; {found} is given."
            raise LeadlineSparkError(code, message)
        subscription = cls(
            options.names("subscribe"),
            _pattern(options.text("subscribePattern")),
            parse_assign(options.document("assign")) if "assign" in options else (),
        )
        if not (subscription.topics or subscription.pattern or subscription.assigned):
            message = f"{given[0]} is empty: there is nothing to read."
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
        return subscription

    def requested_topics(self) -> tuple[str, ...] | None:
        """Return the topics to request metadata for; None for all."""
        if self.pattern is not None:
            return None
        return tuple(sorted({*self.topics, *(tp.topic for tp in self.assigned)}))

    def chosen(self, metadata: Metadata) -> dict[TopicPartition, str]:
        """Return the partitions that exist, sorted, with the ids of their topics."""
        if self.assigned:
            found: Iterable[TopicPartition] = (
                tp for tp in self.assigned if partition_info(metadata, tp) is not None
            )
        else:
            found = (
                TopicPartition(name, row.partition)
                for name, topic in metadata.topics.items()
                if self._matches(name)
                for row in topic.partitions
            )
        return {tp: metadata.topics[tp.topic].topic_id for tp in sorted(found)}

    def missing(self, metadata: Metadata) -> list[str]:
        """Return the topics and partitions that the subscription names and that do not exist."""
        absent = [name for name in self.topics if name not in metadata.topics]
        return absent + [str(tp) for tp in self.assigned if partition_info(metadata, tp) is None]

    def _matches(self, name: str) -> bool:
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

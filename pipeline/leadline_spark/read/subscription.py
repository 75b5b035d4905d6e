"""Which partitions are read: by names of topics, by a pattern, or one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from leadline_spark.cluster.cluster import Metadata
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.offsets import TopicPartition, parse_assign

WAYS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Subscription:
    """One of the three: `topics`, `pattern`, or `places`."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    places: tuple[TopicPartition, ...] = ()

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options, exactly one of which is to be given. Raises LeadlineSparkError."""
        given = [way for way in WAYS if way in options]
        if len(given) != 1:
            code = "LEADLINE_OPTION_CONFLICT" if given else "LEADLINE_OPTION_MISSING"
            told = f"Give exactly one of {', '.join(WAYS)}; {', '.join(given) or 'none'} is given."
            raise LeadlineSparkError(code, told)
        made = cls(
            options.names("subscribe"),
            _pattern(options.text("subscribePattern")),
            parse_assign(options.document("assign")) if "assign" in options else (),
        )
        if not (made.topics or made.pattern or made.places):
            told = f"{given[0]} is empty: there is nothing to read."
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", told)
        return made

    def asked(self) -> tuple[str, ...] | None:
        """Return the topics to ask metadata of; None for all."""
        if self.pattern is not None:
            return None
        return tuple(sorted({*self.topics, *(place.topic for place in self.places)}))

    def chosen(self, metadata: Metadata) -> dict[TopicPartition, str]:
        """Return the partitions that are there, with their topics' ids, sorted."""
        if self.places:
            found: Iterable[TopicPartition] = self.places
        else:
            found = [
                TopicPartition(name, number)
                for name, topic in metadata.topics.items()
                if self._wants(name)
                for number in topic.partitions
            ]
        there = metadata.topics
        return {
            place: there[place.topic].topic_id
            for place in sorted(found)
            if place.topic in there and place.partition in there[place.topic].partitions
        }

    def missing(self, metadata: Metadata) -> list[str]:
        """Return what was named and does not exist: topics, or partitions."""
        absent = [name for name in self.topics if name not in metadata.topics]
        there = self.chosen(metadata)
        return absent + [str(place) for place in self.places if place not in there]

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
        told = f"subscribePattern {text!r} is no regular expression: {failure}"
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", told) from failure
    return text

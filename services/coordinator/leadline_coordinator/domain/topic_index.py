"""Which groups a topic concerns (the seed's consumerGroupsPerTopic, groupsWithWildcardTopics)."""

from __future__ import annotations

from collections.abc import Iterable

from leadline_coordinator.domain.patterns import matches
from leadline_coordinator.domain.records import Subscription


class TopicSubscriptionIndex:
    """What the groups have asked for, by topic and by pattern."""

    def __init__(self) -> None:
        self.consumer_groups_per_topic: dict[str, set[str]] = {}
        self.groups_with_wildcard_topics: dict[str, set[str]] = {}
        self._topics_of: dict[str, set[str]] = {}

    def update(self, group: str, subscriptions: Iterable[Subscription]) -> bool:
        """Take note of what the members of a group ask for now; none means forget the group.

        Returns:
            Whether it is anything else than before.

        """
        wanted = list(subscriptions)
        before = self._topics_of.get(group), self.groups_with_wildcard_topics.get(group)
        topics = {topic for one in wanted for topic in one.topics or ()}
        for topic in self._topics_of.pop(group, set()) - topics:
            groups = self.consumer_groups_per_topic[topic]
            groups.discard(group)
            if not groups:
                del self.consumer_groups_per_topic[topic]
        if topics:
            self._topics_of[group] = topics
        for topic in topics:
            self.consumer_groups_per_topic.setdefault(topic, set()).add(group)
        patterns = {one.pattern for one in wanted if one.pattern is not None}
        self.groups_with_wildcard_topics.pop(group, None)
        if patterns:
            self.groups_with_wildcard_topics[group] = patterns
        return before != (topics or None, patterns or None)

    def concerned(self, topic: str) -> set[str]:
        """Return the groups that are interested in a topic, by name or by pattern."""
        by_pattern = {
            group
            for group, patterns in self.groups_with_wildcard_topics.items()
            if any(matches(pattern, topic) for pattern in patterns)
        }
        return by_pattern | self.consumer_groups_per_topic.get(topic, set())

"""Which states of the metadata this broker has served, and which topics were deleted since.

Each request that the controller sends is a step from one state to the next, and the broker notes at
each topic and partition the step of its last change. A caller names the state that it has by its
tag, and gets what changed in later steps. There are two cases:

- The broker has served this very state. What has changed since is then what differed in one of the
  later steps.
- The broker has skipped it: it got one delta from a version before to a version after. The delta
  lists every topic that has changed since the earlier version, so these topics are sent whole. A
  row that is equal before and after may be different in the caller's state.

Anything else is unknown: a state from before the start of this broker, one that is too old, one in
the gap before a full request (the term of another controller, or a lost response). Pure: no IO.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import Final, NamedTuple

from leadline_common.metadata_tags import MetadataTag

_STATES: Final = 4_096
_DELETED: Final = 10_000


class ChangesSince(NamedTuple):
    """Which changes a caller lacks: those after `step`; of `whole_topics`, not only some rows."""

    step: int
    whole_topics: bool


class MetadataHistory:
    """The latest states, from `states` to twice as many, and the `deleted` last deleted topics."""

    def __init__(self, states: int = _STATES, deleted: int = _DELETED) -> None:
        self._most_states = states
        self._most_deleted = deleted
        self._first_step = 1
        self._tags: list[MetadataTag] = []
        self._full: list[bool] = []
        self._deleted: OrderedDict[str, int] = OrderedDict()

    @property
    def step(self) -> int:
        """The number of the latest state, 0 before the first."""
        return self._first_step + len(self._tags) - 1

    def advance(self, tag: MetadataTag, *, full: bool) -> int:
        """Begin the step to another state, by a delta or by a full request; return its number.

        Tags never decrease: a broker refuses lower controller epochs and versions.
        """
        self._tags.append(tag)
        self._full.append(full)
        if len(self._tags) > 2 * self._most_states:
            self._forget(self._most_states)
        return self.step

    def note_deleted(self, topic: str) -> None:
        """Note that the state of the current step lacks a topic."""
        self._deleted[topic] = self.step
        self._deleted.move_to_end(topic)
        if len(self._deleted) > self._most_deleted:
            _, step = self._deleted.popitem(last=False)
            # Who has a state from before it would not hear of this deletion.
            self._forget(step - self._first_step)

    def note_present(self, topic: str) -> None:
        """Note that the state of the current step has a topic."""
        self._deleted.pop(topic, None)

    def since(self, tag: MetadataTag) -> ChangesSince | None:
        """Return which changes a caller with this state lacks; None: it needs everything."""
        later = bisect_right(self._tags, tag)
        if not later:
            return None
        step = self._first_step + later - 1
        before = self._tags[later - 1]
        if before == tag:
            return ChangesSince(step, whole_topics=False)
        if before.controller_epoch != tag.controller_epoch:
            return None
        if later == len(self._tags):
            # The caller has a newer state than this broker.
            return ChangesSince(step, whole_topics=False)
        if self._full[later] or self._tags[later].controller_epoch != tag.controller_epoch:
            return None
        return ChangesSince(step, whole_topics=True)

    def deleted_since(self, step: int) -> list[str]:
        """Return the topics that were deleted in later steps and do not exist, latest first."""
        found = []
        for topic in reversed(self._deleted):
            if self._deleted[topic] <= step:
                break
            found.append(topic)
        return found

    def _forget(self, states: int) -> None:
        """Forget so many of the earliest states; none if it is not positive."""
        count = max(0, states)
        self._first_step += count
        del self._tags[:count], self._full[:count]

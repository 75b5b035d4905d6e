"""What a consumer group did: who was assigned what, what it was delivered, what it committed.

Checked is invariant I10: one owner per partition and generation; a commit is never
beyond what was delivered, and moves back by a reset only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from tests.support.checks.anomalies import Anomalies, AnomalyKind, TopicPartition
from tests.support.checks.monotone import Interval, falls


class Commit(NamedTuple):
    """An accepted commit, or a look at the committed offset (then `member` is empty).

    `began_s` and `ended_s` are when it was asked for and when it was answered, in
    seconds. If nobody knows whether it was accepted, `certain` is False.
    """

    offset: int
    began_s: float
    ended_s: float
    member: str = ""
    certain: bool = True


@dataclass(slots=True)
class GroupHistory:
    """The history of one group. Times are seconds on any one clock."""

    name: str
    commits: dict[TopicPartition, list[Commit]] = field(default_factory=lambda: defaultdict(list))
    _delivered: dict[TopicPartition, list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _resets: dict[TopicPartition, list[float]] = field(default_factory=lambda: defaultdict(list))
    _owners: dict[tuple[TopicPartition, int], list[tuple[str, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def assigned(
        self, member: str, generation: int, partitions: Iterable[TopicPartition], at_s: float
    ) -> None:
        """Note what a member owns in a generation."""
        for partition in partitions:
            self._owners[partition, generation].append((member, at_s))

    def delivered(self, partition: TopicPartition, end: int, at_s: float) -> None:
        """Note that some member was given the records below `end`."""
        self._delivered[partition].append((at_s, end))

    def committed(self, partition: TopicPartition, commit: Commit) -> None:
        """Note a commit that was not refused, or an offset that was seen to be committed."""
        self.commits[partition].append(commit)

    def was_reset(self, partition: TopicPartition, offset: int, at_s: float) -> None:
        """Note that an operator set an offset: it counts as delivered, and may be lower."""
        self._resets[partition].append(at_s)
        self._delivered[partition].append((at_s, offset))

    def check(self, found: Anomalies) -> None:
        """Find everything that is wrong with the group."""
        self._owned_twice(found)
        for partition, commits in self.commits.items():
            self._beyond(partition, commits, found)
            self._moved_back(partition, commits, found)

    def _owned_twice(self, found: Anomalies) -> None:
        for (partition, generation), owners in self._owners.items():
            members = sorted({member for member, _ in owners})
            if len(members) > 1:
                detail = f"{self.name} generation {generation} assigned it to {members}"
                when = max(at_s for _, at_s in owners)
                kind = AnomalyKind.TWO_OWNERS
                found.add(kind, partition, generation, detail, at_s=when, who=self.name)

    def _beyond(
        self, partition: TopicPartition, commits: Iterable[Commit], found: Anomalies
    ) -> None:
        rows = sorted(self._delivered[partition])
        times = [at_s for at_s, _ in rows]
        reached = [0, *accumulate((end for _, end in rows), max)]
        for one in commits:
            # A look may come late: what was committed by its end was delivered by its end.
            until_s = one.began_s if one.member else one.ended_s
            delivered = reached[bisect_right(times, until_s)]
            if one.offset > delivered:
                detail = f"{one.member or 'somebody'} committed {one.offset} for {self.name}, "
                detail += f"of which {delivered} was delivered"
                kind = AnomalyKind.COMMIT_BEYOND_DELIVERED
                found.add(kind, partition, one.offset, detail, at_s=one.ended_s, who=one.member)

    def _moved_back(
        self, partition: TopicPartition, commits: list[Commit], found: Anomalies
    ) -> None:
        rows = [
            Interval(one.began_s, one.ended_s, one.offset, one.offset, number)
            for number, one in enumerate(commits)
            if one.certain
        ]
        for number, earlier in falls(rows, rows):
            low, high = commits[number], commits[earlier]
            resets = self._resets[partition]
            if any(high.began_s <= at_s <= low.ended_s for at_s in resets):
                continue
            detail = f"{low.member or 'seen'} at {low.offset} for {self.name}, "
            detail += f"after {high.offset} by {high.member or 'nobody known'}"
            kind = AnomalyKind.COMMIT_MOVED_BACK
            found.add(kind, partition, low.offset, detail, at_s=low.ended_s, who=low.member)

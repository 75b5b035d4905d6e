"""The entry to the assignors: range, round robin and sticky. Pure.

The coordinator decides with it, and the what-if API shows its result.

Range treats each topic by itself, as Kafka 0.8 did. The threads of all subscribed members
form a row, and each gets a contiguous range of partitions. If the numbers do not divide,
the first ranges are larger by one. So partitions of the same number of two topics with
equal counts and subscribers go to the same member, as joins need. Example: 10 partitions,
member a with two threads, b with one: a reads 0-3 and 4-6, b reads 7-9.

Round robin deals all partitions of all topics to all threads in turn, and passes over a
thread whose member has not asked for the topic. If all members asked for the same topics,
no thread has two partitions more than another. Example: topics t and u of three partitions
each, members a and b: a reads t-0, t-2, u-1, and b reads t-1, u-0, u-2.

Sticky is in `sticky.py`.

A member may read some topics with fewer threads than others, as in Kafka 0.8, where a consumer
gave each topic its number of streams. Its first threads then read such a topic. Range and
round robin count these threads for each topic. Sticky weighs a member by all its threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import cycle, groupby
from operator import attrgetter

import msgspec

from leadline_client.channel import Assignor
from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.assignors.group_spec import (
    Assignment,
    GroupSpec,
    group_spec,
    last_owners,
)
from leadline_coordinator.domain.assignors.sticky import assign_sticky


class Outcome(msgspec.Struct, frozen=True):
    """An assignment; each member's partitions are ordered by topic, then by number."""

    assignment: Assignment
    moved: tuple[TopicPartition, ...]
    """The partitions that another member had before, in order."""


def assign(
    assignor: Assignor,
    topics: Mapping[str, int],
    subscriptions: Mapping[str, Collection[str]],
    previous: Mapping[str, Iterable[tuple[str, int]]] | None = None,
    *,
    threads: Mapping[str, int] | None = None,
    topic_threads: Mapping[str, Mapping[str, int]] | None = None,
    instance_ids: Mapping[str, str] | None = None,
    generations: Mapping[str, int] | None = None,
) -> Outcome:
    """Give every partition of every topic that a member asked for exactly one owner.

    `topics` maps existing topics to their numbers of partitions. `subscriptions` maps
    members to the topics that they asked for; topics that do not exist are ignored.
    `previous` is what members had, as far as known; it may name former members and
    deleted topics. `threads` defaults to 1; `topic_threads` are the numbers of threads that
    differ from it, by member and topic. `instance_ids` are those of static members,
    also of former ones: a static member that returns under another member id takes over
    what it had. `generations` is the generation of a member's entry in `previous`: if two
    members claim a partition, the lower generation loses it, and if both have the same, it
    has no valid owner.

    Takes well under a second for 400 members and 10,000 partitions, and seconds for 100,000
    partitions or subscriptions: call it off the event loop.
    """
    statics = instance_ids or {}
    group = group_spec(
        topics,
        subscriptions,
        threads=threads or {},
        topic_threads=topic_threads or {},
        instance_ids=statics,
    )
    owners = last_owners(group, previous or {}, instance_ids=statics, generations=generations or {})
    match assignor:
        case "range":
            assignment = _assign_ranges(group)
        case "roundrobin":
            assignment = _assign_round_robin(group)
        case "sticky":
            assignment = assign_sticky(group, owners)
    for topic_partitions in assignment.values():
        topic_partitions.sort()
    moved = (
        topic_partition
        for member, topic_partitions in assignment.items()
        for topic_partition in topic_partitions
        if owners.get(topic_partition, member) != member
    )
    return Outcome(assignment, tuple(sorted(moved)))


def assignment_work(
    assignor: Assignor,
    topics: Mapping[str, int],
    subscriptions: Mapping[str, Collection[str]],
    threads: Mapping[str, int],
    topic_threads: Mapping[str, Mapping[str, int]],
) -> int:
    """Estimate the steps of `assign`, of about 5 µs each: no fewer than the worst case takes.

    If members asked for different topics, sticky searches all subscriptions several times, and
    round robin may pass over all threads for each partition.
    """
    partitions = sum(topics.values())
    work = partitions + sum(map(len, subscriptions.values()))
    rows = {m: max((threads.get(m, 1), *topic_threads.get(m, {}).values())) for m in subscriptions}
    if assignor == "range":
        return work + sum(rows[m] * len(wanted) for m, wanted in subscriptions.items()) // 200
    is_mixed = len(set(map(tuple, subscriptions.values()))) > 1
    if assignor == "roundrobin":
        return work + sum(rows.values()) * (partitions if is_mixed else 1) // 100
    return work * (8 if is_mixed else 1)


def split_among_threads(
    assignor: Assignor,
    assigned: Iterable[TopicPartition],
    threads: int,
    topic_threads: Mapping[str, int] | None = None,
) -> list[list[TopicPartition]]:
    """Split a member's assignment among its threads as the assignor counted them.

    Range gives each thread a contiguous range of each topic, the others deal in turn. Only
    the first `topic_threads` threads get partitions of a topic that is named there.
    """
    counts = topic_threads or {}
    split: list[list[TopicPartition]] = [[] for _ in range(threads)]
    turns = cycle(range(threads))
    for topic, of_topic in groupby(sorted(assigned), key=attrgetter("topic")):
        topic_partitions, count = list(of_topic), min(threads, counts.get(topic, threads))
        if assignor == "range":
            for thread, places in zip(split, _ranges(len(topic_partitions), count), strict=False):
                thread.extend(topic_partitions[place] for place in places)
            continue
        for topic_partition in topic_partitions:
            split[next(turn for turn in turns if turn < count)].append(topic_partition)
    return split


def _assign_ranges(group: GroupSpec) -> Assignment:
    assignment: Assignment = {member: [] for member in group.members}
    for topic, members in group.subscribers().items():
        row = [member for member in members for _ in range(group.threads_of(member, topic))]
        for member, numbers in zip(row, _ranges(group.topics[topic], len(row)), strict=False):
            assignment[member].extend(TopicPartition(topic, number) for number in numbers)
    return assignment


def _ranges(count: int, parts: int) -> Iterator[range]:
    """Cut [0, count) into contiguous ranges, the first larger by one; empty ones are left out."""
    size, larger = divmod(count, parts)
    start = 0
    for place in range(min(count, parts)):
        end = start + size + (place < larger)
        yield range(start, end)
        start = end


def _assign_round_robin(group: GroupSpec) -> Assignment:
    assignment: Assignment = {member: [] for member in group.members}
    members = group.members
    turns = cycle([(member, n) for member in members for n in range(group.threads[member])])
    wanted = {
        member: {topic: group.threads_of(member, topic) for topic in topics}
        for member, topics in group.subscriptions.items()
    }
    for topic_partition in group.partitions():
        topic = topic_partition.topic
        member = next(member for member, n in turns if n < wanted[member].get(topic, 0))
        assignment[member].append(topic_partition)
    return assignment

"""Sticky if members asked for different topics: balanced loads, and the fewest moves.

Goals, in order: balanced loads (the least sum of squares of partitions per thread, so that no
chain of moves could level them further); the fewest partitions moved.

Constraints: a partition can go only to a member that asked for its topic. So a loaded member may be
relieved by one with which it has no topic in common, through a third.

Method: `levels` finds how many partitions each member has in any balanced assignment, to within one
for each thread, and which members may get those of a topic. The fewest moves within these limits
are a cheapest flow of partitions from topics to members. Partitions of a topic differ only in who
had them, so only numbers count: how many of each topic a member holds, and how many it claims
because it had them. Giving up a claim costs a move, and all else is free. First every member keeps
its claims, and what nobody had goes to the least loaded. `flow` then finds the cheapest way from
the members with too many, and from partitions without a member, to the members with too few. The
result is optimal. The time grows with the number of subscriptions, not with that of moves.

Example: a asked for t, b for t and u, c for u. a has t-0, b has u-0, u-1 and u-2, c joins: it gets
one partition of u, and nothing else moves.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heapreplace

from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.assignors.flow import Network
from leadline_coordinator.domain.assignors.group_spec import Assignment, GroupSpec
from leadline_coordinator.domain.assignors.levels import lowest_levels


def assign_levelled(group: GroupSpec, claims: Assignment) -> Assignment:
    """Assign with balanced loads and the fewest moves from `claims`, what members had."""
    shares = _Shares(group, claims)
    shares.place_unclaimed()
    shares.level()
    return shares.deal_out()


class _Shares:
    """How many partitions of which topic each member holds; members and topics are indexes."""

    def __init__(self, group: GroupSpec, claims: Assignment) -> None:
        self._group = group
        self._counts = list(group.topics.values())
        topics = {topic: place for place, topic in enumerate(group.topics)}
        members = {member: place for place, member in enumerate(group.members)}
        self._threads = [group.threads[member] for member in group.members]
        levels = lowest_levels(group)
        self._levels = [levels[member] for member in group.members]
        self._receivers = [
            self._lowest([members[member] for member in subscribers])
            for subscribers in group.subscribers().values()
        ]
        may_hold = [set(receivers) for receivers in self._receivers]
        self._claims: list[dict[int, list[int]]] = [{} for _ in members]
        for member, place in members.items():
            for topic, number in claims[member]:
                if place in may_hold[topics[topic]]:
                    self._claims[place].setdefault(topics[topic], []).append(number)
        self._held = [{t: len(own) for t, own in mine.items()} for mine in self._claims]
        self._load = [sum(held.values()) for held in self._held]

    def _lowest(self, subscribers: list[int]) -> list[int]:
        """Return those with the lowest level: no other gets partitions of the topic."""
        lowest = min(self._levels[member] for member in subscribers)
        return [member for member in subscribers if self._levels[member] == lowest]

    def place_unclaimed(self) -> None:
        """Give what nobody had to the least loaded, topics with the fewest receivers first.

        No member gets more than it may have; partitions may be left over.
        """
        for topic in sorted(range(len(self._counts)), key=lambda t: len(self._receivers[t])):
            heap = [
                (self._load[member] // self._threads[member], member)
                for member in self._receivers[topic]
                if self._load[member] < self._most(member)
            ]
            heapify(heap)
            for _ in range(self._free(topic)):
                if not heap:
                    break
                member = heap[0][1]
                self._held[member][topic] = self._held[member].get(topic, 0) + 1
                self._load[member] += 1
                if self._load[member] < self._most(member):
                    heapreplace(heap, (self._load[member] // self._threads[member], member))
                else:
                    heappop(heap)

    def level(self) -> None:
        """Bring every member within its limits with the fewest moves."""
        members, topics = len(self._load), len(self._counts)
        network = Network(members + topics + 1)
        last = members + topics
        for member, load in enumerate(self._load):
            least, most = self._least(member), self._most(member)
            taken = min(max(load, least), most)
            network.add(member, last, room=most - taken, flow=taken - least)
            network.excess[member] = load - taken
            network.excess[last] += taken
        network.excess[last] -= sum(self._counts)
        arcs = []
        for topic, count in enumerate(self._counts):
            network.excess[members + topic] = self._free(topic)
            for member in self._receivers[topic]:
                claimed = len(self._claims[member].get(topic, ()))
                more = self._held[member].get(topic, 0) - claimed
                arc = network.add(members + topic, member, room=count - more, flow=more)
                arcs.append((topic, member, arc))
                if claimed:
                    arc = network.add(members + topic, member, room=0, flow=claimed, cost=-1)
                    arcs.append((topic, member, arc))
        network.solve()
        self._held = [{} for _ in self._held]
        for topic, member, arc in arcs:
            if held := network.flow(arc):
                self._held[member][topic] = self._held[member].get(topic, 0) + held

    def _free(self, topic: int) -> int:
        """Return how many partitions of a topic no member holds."""
        return self._counts[topic] - sum(
            self._held[member].get(topic, 0) for member in self._receivers[topic]
        )

    def _least(self, member: int) -> int:
        return self._threads[member] * self._levels[member]

    def _most(self, member: int) -> int:
        return self._threads[member] * (self._levels[member] + 1)

    def deal_out(self) -> Assignment:
        """Choose the partitions: each member keeps its lowest claims, the rest is dealt in turn."""
        names = list(self._group.topics)
        dealt: list[list[TopicPartition]] = [[] for _ in self._load]
        for topic, subscribers in enumerate(self._receivers):
            free = dict.fromkeys(range(self._counts[topic]))
            room: deque[tuple[int, int]] = deque()
            for member in subscribers:
                held = self._held[member].get(topic, 0)
                kept = self._claims[member].get(topic, [])[:held]
                for number in kept:
                    del free[number]
                    dealt[member].append(TopicPartition(names[topic], number))
                if held > len(kept):
                    room.append((member, held - len(kept)))
            for number in free:
                member, wanted = room.popleft()
                dealt[member].append(TopicPartition(names[topic], number))
                if wanted > 1:
                    room.append((member, wanted - 1))
        return dict(zip(self._group.members, dealt, strict=True))

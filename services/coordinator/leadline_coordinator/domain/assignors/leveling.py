"""Sticky if members asked for different topics: level the loads along chains of moves.

Goals, in order: levelled loads (the least sum of squares of partitions per thread, so
that no chain of moves could level them further); the fewest partitions moved.

Constraints: a partition can go only to a member that asked for its topic. So a loaded
member may be relieved by one with which it has no topic in common, through a third.

Method: this is a minimum-cost flow from topics to members. Partitions of a topic differ
only in who had them, so only numbers count: how many of each topic a member holds, and
how many it claims because it had them. Giving up a partition beyond the claims saves a
move, receiving one beyond them costs a move; all else is free. First every member keeps
its claims, and what nobody had goes to the least loaded. Then, from the highest level
down, the search finds the cheapest chains from the members at that level to all others. A
chain is applied if it ends below the level, or at the level and saves moves. Because only
cheapest chains are applied, no circle of moves can arise that would save moves (the
invariant of successive shortest paths). So the result is optimal when no chain is worth
applying. Each chain lowers the sum of squares or the number of moves, so the method ends.
A search costs about the number of all subscriptions, and serves one chain from each
member at the level.

Example: a asked for t, b for t and u, c for u. a has t-0, b has u-0, u-1 and u-2, c
joins: it gets one partition of u, and nothing else moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heapreplace

from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.assignors.group_spec import Assignment, GroupSpec

_NOWHERE = -1
_FAR = 1 << 60


def assign_levelled(group: GroupSpec, claims: Assignment) -> Assignment:
    """Assign with levelled loads and the fewest moves from `claims`, what members had."""
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
        self._subscribers = [[members[m] for m in ms] for ms in group.subscribers().values()]
        self._threads = [group.threads[member] for member in group.members]
        self._claims: list[dict[int, list[int]]] = [{} for _ in members]
        for member, place in members.items():
            for topic, number in claims[member]:
                self._claims[place].setdefault(topics[topic], []).append(number)
        self._held = [{t: len(own) for t, own in mine.items()} for mine in self._claims]
        self._load = [sum(held.values()) for held in self._held]

    def place_unclaimed(self) -> None:
        """Give what nobody had to the least loaded, topics with the fewest subscribers first."""
        for topic in sorted(range(len(self._counts)), key=lambda t: len(self._subscribers[t])):
            subscribers = self._subscribers[topic]
            free = self._counts[topic] - sum(self._held[m].get(topic, 0) for m in subscribers)
            heap = [(self._next_level(member), member) for member in subscribers]
            heapify(heap)
            for _ in range(free):
                member = heap[0][1]
                self._receive(topic, member)
                heapreplace(heap, (self._next_level(member), member))

    def level(self) -> None:
        """Apply chains until none is worth it."""
        relieved = 1
        while relieved:
            levels = sorted({self._level(m) for m in range(len(self._load))}, reverse=True)
            relieved = sum(self._relieve(level) for level in levels)

    def deal_out(self) -> Assignment:
        """Choose the partitions: each member keeps its lowest claims, the rest is dealt in turn."""
        names = list(self._group.topics)
        dealt: list[list[TopicPartition]] = [[] for _ in self._load]
        for topic, subscribers in enumerate(self._subscribers):
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

    def _level(self, member: int) -> int:
        """Return the partitions of the fullest thread less one; -1 if it has none."""
        return (self._load[member] - 1) // self._threads[member]

    def _next_level(self, member: int) -> int:
        """Return the partitions of the thread that would get the next one."""
        return self._load[member] // self._threads[member]

    def _relieve(self, level: int) -> bool:
        """Apply all chains worth it from members at this level; tell whether there were any."""
        relieved = False
        while True:
            sources = [m for m in range(len(self._load)) if self._level(m) == level]
            chains = _Chains(self._held, self._claims, self._subscribers)
            chains.search(sources)
            if not self._apply_chains(chains, set(sources), level):
                return relieved
            relieved = True

    def _apply_chains(self, chains: _Chains, sources: set[int], level: int) -> bool:
        """Apply the chains that are worth it; no two share a source or a hop."""
        used: set[tuple[str, int, int]] = set()
        for member in chains.ends():
            end = self._next_level(member)
            if end > level or (end == level and chains.cost[member] >= 0):
                continue
            hops = chains.to(member, sources)
            ways = {("from", giver, topic) for giver, topic, _ in hops}
            ways |= {("to", receiver, topic) for _, topic, receiver in hops}
            if hops[0][0] in sources and used.isdisjoint(ways):
                for giver, topic, receiver in hops:
                    self._give_up(topic, giver)
                    self._receive(topic, receiver)
                sources.discard(hops[0][0])
                used |= ways
        return bool(used)

    def _receive(self, topic: int, member: int) -> None:
        self._held[member][topic] = self._held[member].get(topic, 0) + 1
        self._load[member] += 1

    def _give_up(self, topic: int, member: int) -> None:
        self._held[member][topic] -= 1
        self._load[member] -= 1
        if not self._held[member][topic]:
            del self._held[member][topic]


class _Chains:
    """The cheapest chains from some members to all others, in moves.

    `cost` is that of the chain to each member. A chain is stored as its last hop: the topic
    that the member receives, and the members that give that topic up most cheaply. The
    first of them is the one through which the chain was found; others may be sources.
    """

    def __init__(
        self,
        held: Sequence[dict[int, int]],
        claims: Sequence[dict[int, list[int]]],
        subscribers: Sequence[Sequence[int]],
    ) -> None:
        self._held = held
        self._claims = claims
        self._subscribers = subscribers
        self.cost = [_FAR] * len(held)
        self._by = [_NOWHERE] * len(held)
        self._givers: list[list[int]] = [[] for _ in subscribers]
        self._topic_cost = [_FAR] * len(subscribers)

    def search(self, sources: Sequence[int]) -> None:
        """Find the chains: relax hops until none gets cheaper (Bellman-Ford with a queue)."""
        for member in sources:
            self.cost[member] = 0
        queue = deque(sources)
        waiting = set(sources)
        while queue:
            member = queue.popleft()
            waiting.discard(member)
            for topic in self._cheaper_topics(member):
                for receiver in self._cheaper_members(topic):
                    if receiver not in waiting:
                        waiting.add(receiver)
                        queue.append(receiver)

    def ends(self) -> list[int]:
        """Return the members at which a chain ends."""
        return [m for m, topic in enumerate(self._by) if topic != _NOWHERE]

    def to(self, member: int, sources: set[int]) -> list[tuple[int, int, int]]:
        """Return the hops (giver, topic, receiver) of a chain that ends at this member.

        It begins at one of `sources` if one is left that is as cheap as any.
        """
        hops = []
        while (topic := self._by[member]) != _NOWHERE:
            giver = self._giver_of(topic, sources)
            hops.append((giver, topic, member))
            member = giver
        return hops[::-1]

    def _giver_of(self, topic: int, sources: set[int]) -> int:
        givers = self._givers[topic]
        while len(givers) > 1 and not self._begins_at(givers[-1], sources):
            givers.pop()
        return givers[-1]

    def _begins_at(self, member: int, sources: set[int]) -> bool:
        return member in sources and self._by[member] == _NOWHERE

    def _cheaper_topics(self, giver: int) -> list[int]:
        claims = self._claims[giver]
        found = []
        for topic, held in self._held[giver].items():
            cost = self.cost[giver] - (held > len(claims.get(topic, ())))
            if cost < self._topic_cost[topic]:
                self._topic_cost[topic] = cost
                self._givers[topic] = [giver]
                found.append(topic)
            elif cost == self._topic_cost[topic]:
                self._givers[topic].append(giver)
        return found

    def _cheaper_members(self, topic: int) -> list[int]:
        found = []
        base = self._topic_cost[topic]
        for member in self._subscribers[topic]:
            if self.cost[member] <= base:
                continue
            claimed = len(self._claims[member].get(topic, ()))
            cost = base + (self._held[member].get(topic, 0) >= claimed)
            if cost < self.cost[member]:
                self.cost[member] = cost
                self._by[member] = topic
                found.append(member)
        return found

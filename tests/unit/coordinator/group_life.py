"""Random lives of a consumer group: who joins, leaves and crashes, and what is known of it.

A life is drawn from its seed alone. It holds what the coordinator would know when it
assigns: claims of members that missed a rebalance are stale, those of crashed ones
stay for a while, a static member comes back under another member id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from leadline_client.channel import Assignor
from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.assignors.assign import Outcome, assign

MAX_MEMBERS = 6


@dataclass
class Claims:
    """What is known of who had what, under one assignor."""

    previous: dict[str, list[TopicPartition]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)


class Life:
    """A group whose members all ask for the same topics (`equal`), or each for some."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._names = 0
        self.equal = self._random.random() < 0.5
        self.topics: dict[str, int] = {}
        self.subscriptions: dict[str, list[str]] = {}
        self.threads: dict[str, int] = {}
        self.instance_ids: dict[str, str] = {}
        self.claims: dict[Assignor, Claims] = {}
        self.generation = 0
        self.delayed: set[str] = set()
        self.event = ""
        for _ in range(self._random.randint(1, 4)):
            self._create_topic()
        for _ in range(self._random.randint(1, 3)):
            self._join()

    def step(self) -> None:
        """Let one thing happen; `event` says what."""
        happenings = (
            *(self._join, self._join, self._leave, self._crash, self._restart),
            *(self._resubscribe, self._create_topic, self._delete_topic),
            *(self._add_partitions, self._miss_some),
        )
        happening = self._random.choice(happenings)
        self.event = happening.__name__.strip("_")
        happening()

    def assign(self, assignor: Assignor) -> Outcome:
        """Assign from what is known."""
        claims = self.claims.setdefault(assignor, Claims())
        return assign(
            assignor,
            self.topics,
            self.subscriptions,
            claims.previous,
            threads=self.threads,
            instance_ids=self.instance_ids,
            generations=claims.generations,
        )

    def learn(self, assignor: Assignor, outcome: Outcome) -> None:
        """Take an outcome as what members have from now on, but for those that miss it."""
        claims = self.claims[assignor]
        for member in list(claims.previous):
            gone = member not in self.subscriptions
            if gone and claims.generations[member] < self.generation - 2:
                del claims.previous[member]
        for member, partitions in outcome.assignment.items():
            if member not in self.delayed:
                claims.previous[member] = partitions
                claims.generations[member] = self.generation

    def begin_generation(self) -> None:
        """Count the next generation, which again all members learn of."""
        self.generation += 1
        self.delayed.clear()

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._random.randrange(100):02}-{self._names}"

    def _member(self) -> str | None:
        return self._random.choice(list(self.subscriptions)) if self.subscriptions else None

    def _some_topics(self) -> list[str]:
        known = list(self.topics)
        return self._random.sample(known, self._random.randint(0, len(known)))

    def _join(self) -> None:
        if len(self.subscriptions) >= MAX_MEMBERS:
            return
        member = self._name("m")
        self.subscriptions[member] = list(self.topics) if self.equal else self._some_topics()
        if self._random.random() < 0.2:
            self.threads[member] = self._random.randint(2, 3)
        if self._random.random() < 0.3:
            self.instance_ids[member] = self._name("i")

    def _leave(self) -> None:
        if member := self._member():
            del self.subscriptions[member]
            for claims in self.claims.values():
                claims.previous.pop(member, None)

    def _crash(self) -> None:
        if member := self._member():
            del self.subscriptions[member]

    def _restart(self) -> None:
        """Let a static member come back under a new id, before it was missed."""
        static = [m for m in self.subscriptions if m in self.instance_ids]
        if static:
            old, new = self._random.choice(static), self._name("m")
            self.subscriptions[new] = self.subscriptions.pop(old)
            self.threads[new] = self.threads.get(old, 1)
            self.instance_ids[new] = self.instance_ids[old]

    def _resubscribe(self) -> None:
        if not self.equal and (member := self._member()):
            self.subscriptions[member] = self._some_topics()

    def _create_topic(self) -> None:
        topic = self._name("t")
        self.topics[topic] = self._random.randint(0, 5)
        if self.equal:
            for wanted in self.subscriptions.values():
                wanted.append(topic)

    def _delete_topic(self) -> None:
        """Delete a topic; members go on asking for it."""
        if self.topics:
            del self.topics[self._random.choice(list(self.topics))]

    def _add_partitions(self) -> None:
        if self.topics:
            self.topics[self._random.choice(list(self.topics))] += self._random.randint(1, 3)

    def _miss_some(self) -> None:
        """Let some members miss the rebalance: what they say that they have is then of before."""
        some = [m for m in self.subscriptions if self._random.random() < 0.5]
        self.delayed.update(some)

"""Black-box checks of what clients did and saw; used by the simulators and by e2e tests.

A send ends in one of three ways: *acked* with its offset, *refused* (definitely
nothing was appended), or *unknown*. Values are unique over a whole history.
Consumers note each poll while the run goes on; groups what they were assigned and
committed; anybody the latest offsets that they were told. The reads given to
`check` are the final ones, made after everything has healed: whole partitions,
and replicas' files where a test can read them.

    history = History()
    row = history.send_batch(["a", "b"], ("t", 0), producer=1, at_s=1.0)
    history.ack_batch(row, base_offset=0, at_s=1.1)
    reader = history.consumer("reader")
    reader.poll(("t", 0), [(0, "a"), (1, "b")], at_s=1.2)
    reader.finished()
    assert history.check([]) == []

Times are seconds on one clock, or left out altogether: then the order of calls counts.
Everything is kept in columns of numbers, so that five million records can be checked
(`benchmarks/history_checker.py`). `anomalies.py` lists what is found.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.checks.advertised_ends import AdvertisedEnds
from tests.support.checks.anomalies import Anomalies, Anomaly, AnomalyKind, TopicPartition
from tests.support.checks.group_history import GroupHistory
from tests.support.checks.partition_log import PartitionLog
from tests.support.checks.polls import Polls, Read
from tests.support.checks.send_outcomes import SendOutcomes
from tests.support.checks.sends import UNPLACED, Outcome, Sends

__all__ = ["Anomaly", "AnomalyKind", "History", "Read", "Send", "TopicPartition"]


@dataclass(frozen=True, slots=True)
class Send:
    """One value that a producer sent. `offset` is set when it was acked, if the answer said it."""

    value: Hashable
    partition: TopicPartition
    producer: Hashable
    offset: int | None = None


@dataclass(slots=True)
class Consumer:
    """One consumer and all its polls; with a group, what it gets is delivered to the group."""

    name: str
    history: History = field(repr=False)
    group: GroupHistory | None = None
    polls: dict[TopicPartition, Polls] = field(default_factory=dict)
    until_end: bool = False

    def poll(
        self,
        partition: TopicPartition,
        records: Sequence[tuple[int, Hashable]],
        at_s: float | None = None,
    ) -> None:
        """Note what one poll returned of a partition: (offset, value) in the order given."""
        if not records:
            return
        polls = self._begin(partition, at_s)
        id_of = self.history.sends.id_of
        polls.add((offset for offset, _ in records), [id_of(value) for _, value in records])
        self._deliver(partition, max(offset for offset, _ in records) + 1, polls)

    def poll_run(
        self,
        partition: TopicPartition,
        offset: int,
        values: Sequence[Hashable],
        at_s: float | None = None,
    ) -> None:
        """Note a poll whose records have consecutive offsets from `offset` on."""
        if not values:
            return
        polls = self._begin(partition, at_s)
        polls.add_run(offset, map(self.history.sends.id_of, values))
        self._deliver(partition, offset + len(values), polls)

    def assigned(
        self, partitions: Iterable[TopicPartition], generation: int, at_s: float | None = None
    ) -> None:
        """Note what it owns from now on; the next poll of each may begin anywhere."""
        partitions, at_s = list(partitions), self.history.time(at_s)
        for partition in partitions:
            self.sought(partition)
        if self.group is not None:
            self.group.assigned(self.name, generation, partitions, at_s)

    def sought(self, partition: TopicPartition) -> None:
        """Note that its next poll of a partition need not follow the one before."""
        self._polls(partition).moved()

    def finished(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Note that it (with its group) has read these, and all it polled, from start to end."""
        self.until_end = True
        for partition in partitions:
            self._polls(partition)

    def _polls(self, partition: TopicPartition) -> Polls:
        return self.polls.setdefault(partition, Polls(self.name))

    def _begin(self, partition: TopicPartition, at_s: float | None) -> Polls:
        polls = self._polls(partition)
        polls.begin(self.history.time(at_s))
        return polls

    def _deliver(self, partition: TopicPartition, end: int, polls: Polls) -> None:
        if self.group is not None:
            self.group.delivered(partition, end, polls.poll_s[-1])


@dataclass(slots=True)
class History:
    """Everything that clients did and saw."""

    sends: Sends = field(default_factory=Sends)
    consumers: list[Consumer] = field(default_factory=list)
    groups: dict[str, GroupHistory] = field(default_factory=dict)
    ends: AdvertisedEnds = field(default_factory=AdvertisedEnds)
    _ticks: int = 0

    def time(self, at_s: float | None) -> float:
        """Return `at_s`, or the number of this call where there is no clock."""
        self._ticks += 1
        return float(self._ticks) if at_s is None else at_s

    # -- what happens --------------------------------------------------------------

    def send_batch(
        self,
        values: Sequence[Hashable],
        partition: TopicPartition,
        producer: Hashable = 0,
        at_s: float | None = None,
    ) -> int:
        """Note that values are being sent together; return the number of this send.

        Raises:
            ValueError: a value was sent before; checks need unique values.

        """
        return self.sends.begin(values, partition, producer, self.time(at_s))

    def ack_batch(
        self, send: int, base_offset: int | None = None, at_s: float | None = None
    ) -> None:
        """Note that a send was acknowledged, with its first offset if the answer said it."""
        base = UNPLACED if base_offset is None else base_offset
        self.sends.end(send, Outcome.ACKED, self.time(at_s), base)

    def refuse_batch(self, send: int, at_s: float | None = None) -> None:
        """Note that a send was refused for good: nothing was appended."""
        self.sends.end(send, Outcome.REFUSED, self.time(at_s))

    def give_up_batch(self, send: int, at_s: float | None = None) -> None:
        """Note that the outcome of a send will never be known."""
        self.sends.end(send, Outcome.UNKNOWN, self.time(at_s))

    def send(self, value: Hashable, topic: str, partition: int, producer: Hashable = 0) -> None:
        """Note that one value is being sent. Raises ValueError if it was sent before."""
        self.send_batch((value,), (topic, partition), producer)

    def ack(self, value: Hashable, offset: int | None = None) -> None:
        """Note that a value that was sent alone was acknowledged."""
        self.ack_batch(self.sends.row_of_value(value), offset)

    def refuse(self, value: Hashable) -> None:
        """Note that a value that was sent alone was refused for good."""
        self.refuse_batch(self.sends.row_of_value(value))

    def give_up(self, value: Hashable) -> None:
        """Note that the outcome of a value that was sent alone will never be known."""
        self.give_up_batch(self.sends.row_of_value(value))

    def consumer(self, name: str, group: str | None = None) -> Consumer:
        """Return a new consumer, whose polls are noted."""
        made = Consumer(name, self, None if group is None else self.group(group))
        self.consumers.append(made)
        return made

    def group(self, name: str) -> GroupHistory:
        """Return a group's history."""
        return self.groups.setdefault(name, GroupHistory(name))

    # -- what is known -------------------------------------------------------------

    def count(self, outcome: Outcome | None = None) -> int:
        """Return how many records were sent, or how many of them ended in some way."""
        if outcome is None:
            return len(self.sends.values)
        return sum(len(self.sends.ids_of(row)) for row in self.sends.rows(outcome))

    @property
    def sent(self) -> dict[Hashable, Send]:
        """All sends, by value."""
        return self._sends(range(len(self.sends.first)))

    @property
    def acked(self) -> dict[Hashable, Send]:
        """The acknowledged sends, by value."""
        return self._sends(self.sends.rows(Outcome.ACKED))

    @property
    def refused(self) -> dict[Hashable, Send]:
        """The sends that were refused for good, by value."""
        return self._sends(self.sends.rows(Outcome.REFUSED))

    @property
    def unknown(self) -> dict[Hashable, Send]:
        """The sends whose outcome will never be known, by value."""
        return self._sends(self.sends.rows(Outcome.UNKNOWN))

    def _sends(self, rows: Iterable[int]) -> dict[Hashable, Send]:
        sends = self.sends
        return {
            sends.values[one]: Send(
                sends.values[one],
                sends.partition_of(one),
                sends.producers.all[sends.producer[row]],
                sends.offset_of(one),
            )
            for row in rows
            for one in sends.ids_of(row)
        }

    # -- what is wrong -------------------------------------------------------------

    def check(self, reads: Iterable[Read] = (), *, limit: int = 10_000) -> list[Anomaly]:
        """Return what is wrong: with the run, and with these final reads.

        Of each kind at most `limit` are listed, and how many more there are.
        """
        found = Anomalies(limit)
        final: dict[TopicPartition, list[Read]] = {}
        for read in reads:
            final.setdefault(read.partition, []).append(read)
        rows = self.sends.by_partition()
        polled = (one for consumer in self.consumers for one in consumer.polls)
        for partition in dict.fromkeys([*final, *polled]):
            seen = [self._polls_of(read) for read in final.get(partition, ())]
            seen += [c.polls[partition] for c in self.consumers if partition in c.polls]
            log = PartitionLog(partition, seen)
            log.check(self.sends, found)
            outcomes = SendOutcomes(self.sends, rows.get(partition, ()), log, found)
            outcomes.check(self._audience(partition))
        for group in self.groups.values():
            group.check(found)
        self.ends.check(found)
        return found.all()

    def _polls_of(self, read: Read) -> Polls:
        """Return a final read as one poll, without a time."""
        polls = Polls(read.source, read.complete, read.log_start)
        offsets, values = (offset for offset, _ in read.records), (v for _, v in read.records)
        polls.add(offsets, map(self.sends.id_of, values))
        return polls

    def _audience(self, partition: TopicPartition) -> Mapping[str, set[int]]:
        """Return what was delivered to each consumer, or group, that read to the end."""
        heard: dict[str, set[int]] = {}
        for consumer in self.consumers:
            name = consumer.name if consumer.group is None else f"group {consumer.group.name}"
            if consumer.until_end and (consumer.group is not None or partition in consumer.polls):
                heard.setdefault(name, set())
        for consumer in self.consumers:
            name = consumer.name if consumer.group is None else f"group {consumer.group.name}"
            if name in heard and partition in consumer.polls:
                heard[name].update(consumer.polls[partition].ids)
        return heard
